"""Φ* and U*: the closed forms where they are proven, the pattern program elsewhere."""

from collections.abc import Sequence

from compass_abs.fragmentation.closed_form import (
    PROVEN_CAPACITIES,
    in_eighths,
    inherent_of_8,
    minimum_used_of_8,
)
from compass_abs.fragmentation.demand import check_counts, total_gpus
from compass_abs.fragmentation.pairs import is_fluid
from compass_abs.fragmentation.pattern_program import fewest_partial_count, fewest_used


def inherent(counts: Sequence[int], capacity: int = 8) -> int:
    """Φ*: the fewest partial nodes in any packing of these instances (section 3.2 of the paper)."""
    check_counts(counts, capacity)
    if capacity in PROVEN_CAPACITIES:
        return inherent_of_8(in_eighths(counts, capacity))
    if is_fluid(counts, capacity):
        return int(total_gpus(counts) % capacity > 0)
    return fewest_partial_count(counts, capacity)


def minimum_used(counts: Sequence[int], capacity: int = 8) -> int:
    """U*: the fewest used nodes in any packing of these instances; they fit N nodes if and only if U* ≤ N."""
    check_counts(counts, capacity)
    if capacity in PROVEN_CAPACITIES:
        return minimum_used_of_8(in_eighths(counts, capacity))
    if is_fluid(counts, capacity):
        return -(-total_gpus(counts) // capacity)
    return fewest_used(counts, capacity).used_nodes
