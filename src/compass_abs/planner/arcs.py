"""What nodes receive, as flow: for nodes of so many members that their multisets can't be listed.

A node with f members free is a path that starts at level K - f; an arc from level a to a + g is an instance of g
members that it receives, and the path ends where it likes (Valério de Carvalho's arc-flow formulation). There are at
most K arcs for each size, where nodes of 72 have millions of multisets, and the relaxation is as tight.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from compass_abs.planner.patterns import Counts


class Rows(Protocol):
    """A model that takes rows and columns."""

    def row(self, lower: float, upper: float) -> int:
        """A new row; says its index."""

    def column(self, cost: float, upper: float, entries: dict[int, float]) -> int:
        """A new column; says its index."""


@dataclass(slots=True)
class Arcs:
    """The columns of the flow."""

    capacity: int
    #: By the members that are free before anything arrives.
    starts: dict[int, int] = field(default_factory=dict)
    #: By level and size.
    arcs: dict[tuple[int, int], int] = field(default_factory=dict)

    def receipts(self, values: Any) -> list[tuple[int, Counts, int]]:
        """The flow as paths: (members free, what such a node receives, how many do)."""
        left = {arc: round(values[column]) for arc, column in self.arcs.items()}
        found: dict[tuple[int, Counts], int] = {}
        for free, column in self.starts.items():
            for _ in range(round(values[column])):
                received, level = [0] * (self.capacity + 1), self.capacity - free
                while (size := next((g for g in range(self.capacity, 0, -1) if left.get((level, g))), 0)) > 0:
                    left[level, size] -= 1
                    received[size] += 1
                    level += size
                if any(received):
                    found[free, tuple(received)] = found.get((free, tuple(received)), 0) + 1
        return [(free, received, number) for (free, received), number in sorted(found.items())]


def add_arcs(
    model: Rows,
    capacity: int,
    nodes: int,
    supply: Sequence[int],
    balance: Sequence[int],
    frees: Collection[int],
    sizes: Sequence[int],
    gained: Callable[[dict[int, float], int, int], dict[int, float]],
) -> Arcs:
    """Columns for nodes with any of these many members `frees` free, that receive instances of these sizes.

    `gained` adds what turning a node with so many free into one with so many does to targets.
    """
    found = Arcs(capacity)
    levels = [model.row(0, 0) for _ in range(capacity + 1)]
    partial = 1
    for free in sorted(frees):
        entries: dict[int, float] = {supply[free]: 1, levels[capacity - free]: 1}
        found.starts[free] = model.column(0.0, nodes, gained(entries, free, partial))
    reached = {capacity - free for free in frees}
    for level in range(capacity):
        if level not in reached:
            continue
        for size in sizes:
            if level + size <= capacity:
                entries = {levels[level]: -1, levels[level + size]: 1, balance[size]: 1}
                found.arcs[level, size] = model.column(0.0, nodes, entries)
                reached.add(level + size)
        if level:
            model.column(0.0, nodes, {levels[level]: -1})
    model.column(0.0, nodes, gained({levels[capacity]: -1}, partial, 0))
    return found
