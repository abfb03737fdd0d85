"""The paper's measures on the state of a pool. N counts the nodes that are up; with none, every share is 0."""

from compass_abs.fragmentation.exact import inherent, minimum_used
from compass_abs.model import ClusterState


def gross(state: ClusterState) -> float:
    """F: the share of nodes that are partial."""
    return _share(state.partial_nodes, state)


def inherent_share(state: ClusterState) -> float:
    """F*: the share of nodes that are partial in the best packing of what runs."""
    return _share(inherent(state.demand, state.capacity), state)


def sif(state: ClusterState) -> float:
    """Scheduler-induced fragmentation: F − F*."""
    return _share(avoidable_partial_nodes(state), state)


def avoidable_partial_nodes(state: ClusterState) -> int:
    """N·SIF: partial nodes beyond those of the best packing (Φ − Φ*)."""
    return state.partial_nodes - inherent(state.demand, state.capacity)


def avoidable_used_nodes(state: ClusterState) -> int:
    """Used nodes beyond those of the best packing (U − U*): what gangs of whole nodes wait for."""
    return state.used_nodes - minimum_used(state.demand, state.capacity)


def _share(nodes: int, state: ClusterState) -> float:
    available = state.available_nodes
    return nodes / available if available else 0.0
