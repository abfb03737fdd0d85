"""Fragmentation as others measure it, for comparison."""

from collections.abc import Sequence

from compass_abs.fragmentation.demand import DemandError, check_capacity, check_size
from compass_abs.model import ClusterState


def fgd_node_table(popularity: Sequence[float], capacity: int = 8) -> tuple[float, ...]:
    """FGD's fragmentation of a node with f free GPUs, for f from 0 to the capacity (Weng et al., ATC'23).

    `popularity[g]` weighs tasks of g GPUs. A task that does not fit makes every free GPU a fragment; one that fits
    makes none, since whole GPUs are all that is asked for. So F(f) = f · Pr[task > f].
    """
    check_capacity(capacity)
    if len(popularity) != capacity + 1:
        raise DemandError(f"popularity has {len(popularity)} entries, expected {capacity + 1}, index 0 unused")
    for gpus, weight in enumerate(popularity):
        if isinstance(weight, bool) or not 0 <= weight < float("inf") or (gpus == 0 and weight):
            raise DemandError(f"popularity[{gpus}] is {weight!r}, expected {'0' if gpus == 0 else 'a number ≥ 0'}")
    total = sum(popularity)
    if not total:
        raise DemandError("popularity is 0 for every size: FGD needs to know which tasks are common")
    return tuple(free * sum(popularity[free + 1 :]) / total for free in range(capacity + 1))


def fgd(state: ClusterState, popularity: Sequence[float]) -> float:
    """FGD's measure: GPUs of the pool that a typical task cannot be expected to use."""
    table = fgd_node_table(popularity, state.capacity)
    return sum(nodes * table[free] for free, nodes in enumerate(state.histogram()))


def unusable_free_ratio(state: ClusterState, gpus: int) -> float:
    """The share of free GPUs that no instance of this size can use (Alfred's Frag(c, s)); 0 when none is free."""
    check_size(gpus, state.capacity)
    return 1 - state.room(gpus) * gpus / state.free_gpus if state.free_gpus else 0.0


def free_on_partial_ratio(state: ClusterState) -> float:
    """The share of free GPUs that lie on partial nodes (DRR's fragmentation rate); 0 when none is free."""
    if not state.free_gpus:
        return 0.0
    return 1 - state.empty_nodes * state.capacity / state.free_gpus
