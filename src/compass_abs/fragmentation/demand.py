"""What is asked of a cluster, as counts by size: checked, and measured against the paper's condition on it."""

from collections.abc import Sequence
from functools import cache

from compass_abs.model import CAPACITIES, CompassError


class DemandError(CompassError):
    """Counts of instances, a size or a capacity that make no sense."""


@cache
def slot_width(gpus: int) -> int:
    """The width w* of the slot that anchors an instance of this size: the next power of two."""
    if type(gpus) is not int or gpus < 1:
        raise DemandError(f"gpus is {gpus!r}, expected a whole number ≥ 1")
    return 1 << (gpus - 1).bit_length()


def check_capacity(capacity: int) -> None:
    """Raises unless nodes may have this many GPUs."""
    if type(capacity) is not int or capacity not in CAPACITIES:
        raise DemandError(f"capacity is {capacity!r}, expected one of {CAPACITIES}")


def check_size(gpus: int, capacity: int) -> None:
    """Raises unless an instance may have this many GPUs."""
    check_capacity(capacity)
    if type(gpus) is not int or not 1 <= gpus <= capacity:
        raise DemandError(f"gpus is {gpus!r}, expected a whole number from 1 to {capacity}")


def check_counts(counts: Sequence[int], capacity: int) -> None:
    """Raises unless `counts[g]` can be read as the number of instances of g GPUs."""
    if type(capacity) is not int or capacity not in CAPACITIES:
        check_capacity(capacity)
    if len(counts) != capacity + 1:
        raise DemandError(
            f"counts has {len(counts)} entries, expected {capacity + 1}: one for each size up to {capacity} GPUs, "
            "and index 0, which is unused"
        )
    for count in counts:
        if type(count) is not int or count < 0:
            gpus = next(g for g, n in enumerate(counts) if type(n) is not int or n < 0)
            raise DemandError(f"counts[{gpus}] is {counts[gpus]!r}, expected a whole number ≥ 0")
    if counts[0]:
        raise DemandError(f"counts[0] is {counts[0]!r}, but no instance has 0 GPUs: is the list shifted by one?")


def total_gpus(counts: Sequence[int]) -> int:
    """GPUs that are asked for in all (T)."""
    return sum(gpus * count for gpus, count in enumerate(counts))


@cache
def _fillers_of(capacity: int) -> tuple[int, ...]:
    """1-GPU instances that an instance of each size needs for its slot to be full; 0 for the sizes 0 and 1."""
    return (0, 0, *(slot_width(gpus) - gpus for gpus in range(2, capacity + 1)))


def wcc_margin(counts: Sequence[int], capacity: int = 8) -> int:
    """1-GPU instances beyond those that would fill every slot: n1 − Σ (w*(g) − g)·n_g over g ≥ 2.

    The workload composition condition (WCC, the paper's compactness theorem) holds when it is not negative.
    """
    check_counts(counts, capacity)
    needed = sum(fillers * count for fillers, count in zip(_fillers_of(capacity), counts, strict=True))
    return counts[1] - needed


def wcc_holds(counts: Sequence[int], capacity: int = 8) -> bool:
    """Whether there are enough 1-GPU instances to fill every slot."""
    return wcc_margin(counts, capacity) >= 0
