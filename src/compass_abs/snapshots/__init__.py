"""What a cluster looks like at one moment: a small JSON or CSV file in, a `ClusterState` for each pool out."""

from compass_abs.snapshots.json_format import json_of_pools
from compass_abs.snapshots.pools import pools_of
from compass_abs.snapshots.reading import load_snapshot, read_snapshot, snapshot_rows
from compass_abs.snapshots.rows import InstanceRow, NodeRow, SnapshotError

__all__ = [
    "InstanceRow",
    "NodeRow",
    "SnapshotError",
    "json_of_pools",
    "load_snapshot",
    "pools_of",
    "read_snapshot",
    "snapshot_rows",
]
