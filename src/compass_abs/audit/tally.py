"""Counts of what was set aside, by reason."""

from compass_abs.audit.observation import Remark


class Tally:
    """Adds up by reason, in the order in which reasons first came up."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, tuple[int, int]] = {}

    def add(self, what: str, count: int, gpus: int = 0) -> None:
        """So many more, with so many GPUs."""
        before = self._counts.get(what, (0, 0))
        self._counts[what] = (before[0] + count, before[1] + gpus)

    def remarks(self) -> tuple[Remark, ...]:
        """The sums."""
        return tuple(Remark(what, count, gpus) for what, (count, gpus) in self._counts.items())
