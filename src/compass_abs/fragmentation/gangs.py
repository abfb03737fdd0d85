"""The largest gang that fits: now, and after the best repacking."""

from collections.abc import Sequence

from compass_abs.fragmentation.closed_form import PROVEN_CAPACITIES
from compass_abs.fragmentation.demand import DemandError, check_counts, check_size
from compass_abs.fragmentation.exact import minimum_used
from compass_abs.fragmentation.pinned import HeldNodes, largest_gang_around
from compass_abs.model import ClusterState


def largest_gang(state: ClusterState, gpus: int) -> int:
    """How many instances of this size fit now, without moving anything."""
    check_size(gpus, state.capacity)
    return state.room(gpus)


def largest_gang_repacked(counts: Sequence[int], nodes: int, gpus: int, capacity: int = 8) -> int:
    """How many instances of this size fit beside these when everything may move; 0 when these alone don't.

    By bisection where U* has a closed form: it does not fall when instances are added, so w more fit up to the
    largest w with U* ≤ N. Elsewhere by one integer program.
    """
    check_counts(counts, capacity)
    check_size(gpus, capacity)
    if type(nodes) is not int or nodes < 0:
        raise DemandError(f"nodes is {nodes!r}, expected a whole number ≥ 0")
    demand = list(counts)
    already = demand[gpus]

    def fits(more: int) -> bool:
        demand[gpus] = already + more
        return minimum_used(demand, capacity) <= nodes

    free = nodes * capacity - sum(g * n for g, n in enumerate(counts))
    if free < 0 or not fits(0):
        return 0
    if capacity not in PROVEN_CAPACITIES:
        return largest_gang_around(HeldNodes((nodes, *[0] * capacity), tuple(counts)), gpus, capacity)
    low, high = 0, min(nodes * (capacity // gpus), free // gpus)
    while low < high:
        middle = (low + high + 1) // 2
        if fits(middle):
            low = middle
        else:
            high = middle - 1
    return low
