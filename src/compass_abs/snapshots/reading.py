"""Reading a snapshot from text, a file, or standard input."""

import sys
from pathlib import Path

from compass_abs.model import ClusterState
from compass_abs.snapshots.csv_format import rows_of_csv
from compass_abs.snapshots.json_format import rows_of_json
from compass_abs.snapshots.pools import pools_of
from compass_abs.snapshots.rows import NodeRow, SnapshotError


def snapshot_rows(content: str, source: str = "snapshot") -> list[NodeRow]:
    """The nodes of a snapshot in JSON or CSV, whichever it is; `source` is named in messages."""
    rows = rows_of_json(content, source) if content.lstrip()[:1] in ("{", "[") else rows_of_csv(content, source)
    if not rows:
        raise SnapshotError(f"{source}: there is no node in it, expected at least one")
    return rows


def read_snapshot(content: str, source: str = "snapshot") -> dict[str, ClusterState]:
    """The pools of a snapshot in JSON or CSV, by name."""
    return pools_of(snapshot_rows(content, source))


def load_snapshot(path: str | Path) -> dict[str, ClusterState]:
    """The pools of a snapshot in a file, or on standard input when the path is `-`."""
    standard_input = str(path) == "-"
    source = "standard input" if standard_input else str(path)
    data = sys.stdin.buffer.read() if standard_input else Path(path).read_bytes()
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SnapshotError(f"{source}: byte {error.start} is not UTF-8 text; expected JSON or CSV") from None
    return read_snapshot(content, source)
