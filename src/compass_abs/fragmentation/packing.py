"""A packing: which instances share a node, and how often."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from compass_abs.fragmentation.demand import check_capacity, check_counts
from compass_abs.model import InvariantError

#: Sizes of the instances on one node, largest first.
Pattern = tuple[int, ...]
#: A pattern and how many nodes hold it; neither need be normal, `packing_of` sees to that.
Group = tuple[Pattern, int]


@dataclass(frozen=True, slots=True)
class Packing:
    """Patterns with the number of nodes that hold each; its size does not depend on the cluster's."""

    capacity: int
    patterns: tuple[tuple[Pattern, int], ...]

    @property
    def used_nodes(self) -> int:
        """Nodes that hold something."""
        return sum(count for _, count in self.patterns)

    @property
    def partial_nodes(self) -> int:
        """Nodes that hold something, but are not full."""
        return sum(count for pattern, count in self.patterns if sum(pattern) < self.capacity)

    def counts(self) -> list[int]:
        """Instances by size; index 0 is unused."""
        counts = [0] * (self.capacity + 1)
        for pattern, count in self.patterns:
            for gpus in pattern:
                counts[gpus] += count
        return counts

    def validate(self, counts: Sequence[int]) -> None:
        """Raises unless this packs exactly these instances, each on one node, and no node beyond its capacity."""
        check_counts(counts, self.capacity)
        for pattern, count in self.patterns:
            if count < 1 or not pattern or sum(pattern) > self.capacity or min(pattern) < 1:
                raise InvariantError(f"packing: {count} nodes of {self.capacity} GPUs hold {pattern}")
            if list(pattern) != sorted(pattern, reverse=True):
                raise InvariantError(f"packing: pattern {pattern} is not sorted, largest first")
        if len(dict(self.patterns)) != len(self.patterns):
            raise InvariantError(f"packing: a pattern is listed twice in {self.patterns}")
        if self.counts() != list(counts):
            raise InvariantError(f"packing: holds {self.counts()} instances by size, expected {list(counts)}")


def packing_of(capacity: int, groups: Iterable[Group]) -> Packing:
    """A packing of nodes given in any order: equal patterns joined, empty ones dropped, fullest first."""
    joined: dict[Pattern, int] = {}
    for items, count in groups:
        pattern = tuple(sorted(items, reverse=True))
        if pattern and count:
            joined[pattern] = joined.get(pattern, 0) + count
    ordered = sorted(joined.items(), key=lambda entry: (-sum(entry[0]), tuple(-gpus for gpus in entry[0])))
    return Packing(capacity, tuple(ordered))


@cache
def patterns_within(room: int) -> tuple[Pattern, ...]:
    """Every way to put instances into this many GPUs, the empty one first: 67 for 8 GPUs, 915 for 16."""
    if room:
        check_capacity(1 << (room - 1).bit_length())
    found: list[Pattern] = []

    def extend(prefix: Pattern, largest: int, left: int) -> None:
        found.append(prefix)
        for gpus in range(min(largest, left), 0, -1):
            extend((*prefix, gpus), gpus, left - gpus)

    extend((), room, room)
    return tuple(found)
