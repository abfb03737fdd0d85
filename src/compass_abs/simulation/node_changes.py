"""Node failures, additions and cordons, as events of a trace."""

import csv
import math
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
    found = []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        missing = {"time", "node", "status"} - set(reader.fieldnames or ())
        if missing:
            raise NodeChangeError(f"{path}: column {min(missing)!r} is missing, expected time,node,status")
        for row in reader:
            place = f"{path}: row {reader.line_num}"
            try:
                time = float(row["time"] or "")
            except ValueError:
                time = math.nan
            if not math.isfinite(time):
                raise NodeChangeError(f"{place}: time is {row['time']!r}, expected seconds")
            if row["status"] not in list(NodeStatus):
                known = ", ".join(NodeStatus)
                raise NodeChangeError(f"{place}: status is {row['status']!r}, expected one of {known}")
            if not row["node"]:
                raise NodeChangeError(f"{place}: node is empty, expected a name")
            found.append(NodeChange(time, row["node"], NodeStatus(row["status"])))
    return found
