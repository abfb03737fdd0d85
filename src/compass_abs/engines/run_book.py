"""The runs that an engine knows."""

from collections.abc import Iterable
from typing import Generic, TypeVar

from compass_abs.engines.protocol import RunId
from compass_abs.engines.supervised_run import SupervisedRun

RunT = TypeVar("RunT", bound=SupervisedRun)


class RunBook(dict[RunId, RunT], Generic[RunT]):
    """By their ids, as a dictionary; and those of a node without looking at all the others."""

    def __init__(self) -> None:
        super().__init__()
        self._of_nodes: dict[str, dict[RunId, RunT]] = {}

    def on(self, node: str) -> Iterable[RunT]:
        """Those that were ordered to a node."""
        return self._of_nodes.get(node, {}).values()

    def __setitem__(self, run: RunId, found: RunT) -> None:
        self._forget(run)
        super().__setitem__(run, found)
        self._of_nodes.setdefault(found.node, {})[run] = found

    def __delitem__(self, run: RunId) -> None:
        self._forget(run)
        super().__delitem__(run)

    def discard(self, run: RunId) -> None:
        """Takes it out, if it is there."""
        if run in self:
            del self[run]

    def _forget(self, run: RunId) -> None:
        known = self.get(run)
        if known is not None:
            others = self._of_nodes[known.node]
            del others[run]
            if not others:
                del self._of_nodes[known.node]
