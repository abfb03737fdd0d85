"""Multisets of instance sizes, as tuples of counts: `counts[g]` instances of g GPUs, index 0 unused."""

from functools import cache

Counts = tuple[int, ...]


@cache
def multisets(total: int, sizes: tuple[int, ...], capacity: int) -> tuple[Counts, ...]:
    """Every multiset of these sizes that adds up to at most `total`, the empty one first (67 for 8 GPUs)."""
    found: list[Counts] = []

    def extend(counts: list[int], position: int, left: int) -> None:
        if position == len(sizes):
            found.append(tuple(counts))
            return
        size = sizes[position]
        for number in range(left // size + 1):
            counts[size] = number
            extend(counts, position + 1, left - number * size)
        counts[size] = 0

    extend([0] * (capacity + 1), 0, total)
    return tuple(sorted(found, key=lambda counts: (weight(counts), counts)))


def weight(counts: Counts) -> int:
    """GPUs of a multiset."""
    return sum(size * number for size, number in enumerate(counts))
