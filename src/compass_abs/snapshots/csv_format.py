"""Snapshots in CSV: node,capacity,instances with sizes like `4 2:train-7 1!` (`SIZE[:JOB][!]`, ! for pinned)."""

import csv
import io
import re
from dataclasses import replace

from compass_abs.snapshots import fields
from compass_abs.snapshots.rows import InstanceRow, NodeRow, SnapshotError

COLUMNS = ("node", "capacity", "instances", "pool", "gpu", "status", "unknown_gpus")
REQUIRED = ("node", "capacity", "instances")
_INSTANCE = re.compile(r"(?P<gpus>[^:!]+)(:(?P<job>.*[^!]))?(?P<pinned>!?)")


def rows_of_csv(content: str, source: str) -> list[NodeRow]:
    """The nodes of a snapshot in CSV. Several rows of one node add up, so that one row an instance works too."""
    reader = csv.reader(io.StringIO(content, newline=""), skipinitialspace=True, strict=True)
    rows: dict[str, NodeRow] = {}
    header: list[str] = []
    try:
        for cells in reader:
            where = f"{source}: row {reader.line_num}"
            if not any(cell.strip() for cell in cells) or cells[0].startswith("#"):
                continue
            if not header:
                header = _header(cells, where)
                continue
            if len(cells) != len(header):
                raise SnapshotError(f"{where}: has {len(cells)} columns, expected {len(header)}: {', '.join(header)}")
            row = _row(dict(zip(header, (cell.strip() for cell in cells), strict=True)), where)
            rows[row.name] = _joined(rows[row.name], row) if row.name in rows else row
            rows[row.name].check()
    except csv.Error as error:
        raise SnapshotError(f"{source}: row {reader.line_num}: not CSV: {error}") from None
    if not header:
        raise SnapshotError(f"{source}: is empty, expected JSON, or CSV with the columns {', '.join(REQUIRED)}")
    return list(rows.values())


def _header(cells: list[str], where: str) -> list[str]:
    header = [cell.strip().lower() for cell in cells]
    for column in REQUIRED:
        if column not in header:
            raise SnapshotError(f"{where}: there is no column {column!r} in {fields.shown(', '.join(header))}")
    for column in header:
        if column not in COLUMNS:
            raise SnapshotError(f"{where}: unknown column {fields.shown(column)}, expected one of {', '.join(COLUMNS)}")
        if header.count(column) > 1:
            raise SnapshotError(f"{where}: column {column!r} occurs twice")
    return header


def _row(cells: dict[str, str], where: str) -> NodeRow:
    return NodeRow(
        name=fields.text(cells["node"], where, "node"),
        capacity=fields.whole_number(cells["capacity"], where, "capacity", 1),
        instances=tuple(_instance(word, where) for word in cells["instances"].replace(";", " ").split()),
        pool=fields.text(cells.get("pool", ""), where, "pool"),
        gpu=fields.text(cells.get("gpu", ""), where, "gpu"),
        status=fields.node_status(cells.get("status", ""), where),
        unknown_gpus=fields.whole_number(cells.get("unknown_gpus") or "0", where, "unknown_gpus", 0),
        where=where,
    )


def _instance(word: str, where: str) -> InstanceRow:
    match = _INSTANCE.fullmatch(word)
    if match is None:
        raise SnapshotError(
            f"{where}: instance is {fields.shown(word)}, expected SIZE, SIZE:JOB, and ! at the end when pinned"
        )
    gpus = fields.whole_number(match["gpus"], where, "size of an instance", 1)
    job = None if match["job"] is None else fields.text(match["job"], where, "job")
    return InstanceRow(gpus, job, pinned=bool(match["pinned"]))


def _joined(row: NodeRow, more: NodeRow) -> NodeRow:
    for column in ("capacity", "pool", "gpu", "status"):
        before, now = getattr(row, column), getattr(more, column)
        if before != now:
            raise SnapshotError(
                f"{more.where}: {column} of node {row.name!r} is {now!s}, but {before!s} in {row.where}"
            )
    return replace(
        row,
        instances=row.instances + more.instances,
        unknown_gpus=row.unknown_gpus + more.unknown_gpus,
        where=more.where,
    )
