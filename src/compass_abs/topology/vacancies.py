"""Domains by their empty members, on every level, so that choosing one takes the same time however many there are."""

from collections.abc import Iterable

from compass_abs.model import ClusterState
from compass_abs.model.index_set import IndexSet
from compass_abs.topology.topology import Topology


class Vacancies:
    """For each level of domains, the domains with exactly so many empty members."""

    def __init__(self, state: ClusterState, topology: Topology) -> None:
        self._state = state
        self._sizes = [level.usable for level in topology.levels]
        #: Whether a member is empty, by the level whose domains it belongs to; panels first.
        self._empty: list[list[bool]] = []
        self._count: list[list[int]] = []
        self.by_empty: list[list[IndexSet]] = []
        empty = [False] * len(state.nodes)
        for panel in state.by_free[state.capacity]:
            empty[panel] = True
        for size in self._sizes:
            count = [sum(empty[first : first + size]) for first in range(0, len(empty), size)]
            buckets = [IndexSet(len(count)) for _ in range(size + 1)]
            for domain, number in enumerate(count):
                buckets[number].add(domain)
            self._empty.append(empty)
            self._count.append(count)
            self.by_empty.append(buckets)
            empty = [number == size for number in count]

    def touch(self, panels: Iterable[int]) -> None:
        """These panels may hold something else than before."""
        empty = self._state.by_free[self._state.capacity]
        for panel in panels:
            self._set(0, panel, panel in empty)

    def take(self, level: int, member: int) -> None:
        """A member is as good as in use; `touch` says otherwise."""
        self._set(level, member, False)

    def room(self, level: int, units: int) -> int:
        """How many instances of so many members fit the domains of a level."""
        buckets = self.by_empty[level]
        return sum(len(buckets[free]) * (free // units) for free in range(units, self._sizes[level] + 1))

    def tightest(self, level: int, units: int) -> int:
        """The lowest of the domains with fewest empty members that suffice; -1 where there is none."""
        buckets, size = self.by_empty[level], self._sizes[level]
        free = next((free for free in range(units, size + 1) if buckets[free]), -1)
        if free == size and level + 1 < len(self._sizes):
            # Opening an empty one: where the level above has least to lose.
            return self.empty_members(level + 1, self.tightest(level + 1, 1))[0]
        return buckets[free].first() if free >= 0 else -1

    def empty_members(self, level: int, domain: int) -> list[int]:
        """The empty members of a domain, lowest first."""
        first = domain * self._sizes[level]
        return [member for member in range(first, first + self._sizes[level]) if self._empty[level][member]]

    def _set(self, level: int, member: int, value: bool) -> None:
        if self._empty[level][member] is value:
            return
        self._empty[level][member] = value
        size = self._sizes[level]
        domain, counts = member // size, self._count[level]
        self.by_empty[level][counts[domain]].remove(domain)
        counts[domain] += 1 if value else -1
        self.by_empty[level][counts[domain]].add(domain)
        if level + 1 < len(self._sizes):
            self._set(level + 1, domain, counts[domain] == size)
