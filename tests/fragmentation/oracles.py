"""Φ* and U* by other means than the product's: all packings of a small cluster, and dynamic programming."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations_with_replacement

Front = tuple[tuple[int, int], ...]


def contents(capacity: int) -> list[tuple[int, ...]]:
    """Every content of a node, by counting up; written apart from the product's pattern generators on purpose."""
    found = [()]
    for size in range(1, capacity + 1):
        found += [p + (size,) * n for p in found for n in range(1, (capacity - sum(p)) // size + 1)]
    return found


def counts_of(items: Sequence[int], capacity: int) -> tuple[int, ...]:
    return tuple(items.count(g) if g else 0 for g in range(capacity + 1))


def multisets(total: int, capacity: int) -> Iterator[list[int]]:
    """Counts of every multiset of instances with at most this many GPUs in all."""

    def extend(gpus: int, left: int, counts: list[int]) -> Iterator[list[int]]:
        if gpus > capacity:
            yield list(counts)
            return
        for n in range(left // gpus + 1):
            yield from extend(gpus + 1, left - gpus * n, [*counts, n])

    return extend(1, total, [0])


@cache
def best_on_small_clusters(nodes: int, capacity: int) -> dict[tuple[int, ...], tuple[int, int]]:
    """Fewest partial and fewest used nodes of every multiset that fits, from all packings of so many nodes."""
    base = 1 + nodes * capacity
    weights = [0] + [base**k for k in range(capacity)]
    options = [
        (sum(weights[g] for g in items), 0 < sum(items) < capacity, len(items) > 0) for items in contents(capacity)
    ]
    best: dict[int, tuple[int, int]] = {}
    for packing in combinations_with_replacement(options, nodes):
        key = partial = used = 0
        for code, is_partial, is_used in packing:
            key += code
            partial += is_partial
            used += is_used
        known = best.get(key)
        best[key] = (partial, used) if known is None else (min(known[0], partial), min(known[1], used))
    decoded = {}
    for key, value in best.items():
        counts = [0]
        for _ in range(capacity):
            key, n = divmod(key, base)
            counts.append(n)
        decoded[tuple(counts)] = value
    return decoded


class DynamicProgram:
    """The Pareto front of (partial, used) nodes over all packings, whatever number of nodes they take."""

    #: Bits for each size's count; the highest stays free to catch a borrow.
    BITS = 9

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.guard = sum(1 << (self.BITS * k + self.BITS - 1) for k in range(capacity))
        self.by_largest: list[list[tuple[int, bool]]] = [[] for _ in range(capacity + 1)]
        for items in contents(capacity):
            if items:
                code = self.code(counts_of(items, capacity))
                self.by_largest[max(items)].append((code, sum(items) < capacity))
        self.fronts: dict[int, Front] = {0: ((0, 0),)}

    def code(self, counts: Sequence[int]) -> int:
        return sum(n << (self.BITS * (g - 1)) for g, n in enumerate(counts) if g)

    def front(self, counts: Sequence[int]) -> Front:
        return self._front(self.code(counts))

    def _front(self, code: int) -> Front:
        known = self.fronts.get(code)
        if known is not None:
            return known
        largest = (code.bit_length() - 1) // self.BITS + 1
        guarded = code | self.guard
        points = set()
        for pattern, is_partial in self.by_largest[largest]:
            left = guarded - pattern
            if left & self.guard == self.guard:
                points.update((p + is_partial, u + 1) for p, u in self._front(left ^ self.guard))
        front = tuple(sorted(a for a in points if not any(b != a and b[0] <= a[0] and b[1] <= a[1] for b in points)))
        self.fronts[code] = front
        return front
