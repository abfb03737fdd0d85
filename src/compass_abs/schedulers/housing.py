"""Where empty nodes come from, and who is told what happens on nodes: the operators' door to the level above them."""

from collections.abc import Iterable, Sequence

from compass_abs.model import Cause, ClusterState, Instance


class Housing:
    """A single level: every empty node may be had, lowest first, and nobody else wants to know.

    `hierarchical_tiers.py` has the one with levels above and below.
    """

    def __init__(self, state: ClusterState) -> None:
        self.state = state

    def openable(self) -> int:
        """How many empty nodes may be opened."""
        return self.state.by_free[self.state.capacity].size

    def open(self, wanted: int) -> Iterable[int]:
        """Empty nodes in the order in which to use them: `wanted` or more, fewer where there aren't as many."""
        return self.state.by_free[self.state.capacity]

    def changed(self, nodes: Sequence[int]) -> None:
        """Instances were placed on these nodes, or left them."""

    def moved(self, instance: Instance, source: int, target: int, cause: Cause) -> None:
        """An instance was moved by an operator."""
