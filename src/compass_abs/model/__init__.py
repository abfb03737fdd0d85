"""The paper's nouns: jobs, instances, nodes, and the state of a cluster. Standard library only."""

from compass_abs.model.cluster_state import CAPACITIES, ClusterState, Gang
from compass_abs.model.decision import Cause, Decision, Migration, Mode, Placement, Reason, Verdict
from compass_abs.model.errors import (
    CompassError,
    DuplicateJobError,
    InvalidJobError,
    InvariantError,
    PlacementError,
    UnknownJobError,
    UnknownNodeError,
)
from compass_abs.model.index_set import IndexSet
from compass_abs.model.invariants import check_state
from compass_abs.model.job import Instance, Job
from compass_abs.model.node import Node, NodeStatus
from compass_abs.model.slot import Slot

__all__ = [
    "CAPACITIES",
    "Cause",
    "ClusterState",
    "CompassError",
    "Decision",
    "DuplicateJobError",
    "Gang",
    "IndexSet",
    "Instance",
    "InvalidJobError",
    "InvariantError",
    "Job",
    "Migration",
    "Mode",
    "Node",
    "NodeStatus",
    "Placement",
    "PlacementError",
    "Reason",
    "Slot",
    "UnknownJobError",
    "UnknownNodeError",
    "Verdict",
    "check_state",
]
