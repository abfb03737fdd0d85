"""Node failures, additions and cordons, as events of a trace."""

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from compass_abs.model import CompassError, NodeStatus


class NodeChangeError(CompassError):
    """A row of a node event file that can't be read."""


@dataclass(frozen=True, slots=True)
class NodeChange:
    """At `time` a node gets a status; `UP` for a name that the cluster doesn't have adds a node."""

    time: float
    node: str
    status: NodeStatus


def read_node_changes(path: Path) -> list[NodeChange]:
    """The rows of a CSV file with the columns time (seconds), node, status (up, cordoned, draining, lost)."""
    # What isn't UTF-8 becomes a sign that no column, status or number has.
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        reader = csv.DictReader(file)
        try:
            missing = {"time", "node", "status"} - set(reader.fieldnames or ())
            if missing:
                raise NodeChangeError(f"{path}: column {min(missing)!r} is missing, expected time,node,status")
            return [
                _change(row, f"{path}, row {number} (line {reader.line_num})") for number, row in enumerate(reader, 1)
            ]
        except csv.Error as error:
            raise NodeChangeError(f"{path}, line {reader.line_num}: unreadable ({error})") from None


def _change(row: Mapping[str, str | None], place: str) -> NodeChange:
    try:
        time = float(row["time"] or "")
    except ValueError:
        time = math.nan
    if not math.isfinite(time):
        raise NodeChangeError(f"{place}: time is {row['time']!r}, expected seconds")
    status, node = row["status"], row["node"]
    if status not in list(NodeStatus):
        raise NodeChangeError(f"{place}: status is {status!r}, expected one of {', '.join(NodeStatus)}")
    if not node or "\ufffd" in node:
        raise NodeChangeError(f"{place}: node is {node!r}, expected a name in UTF-8")
    return NodeChange(time, node, NodeStatus(status))
