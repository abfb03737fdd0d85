"""What every format offers to `read_trace`."""

from pathlib import Path
from typing import Protocol

from compass_abs.traces.gathering import Clock, Gatherer, RowOrder
from compass_abs.traces.trace import Trace


class Format(Protocol):
    """A published layout."""

    @property
    def name(self) -> str:
        """What `--format` calls it."""

    @property
    def title(self) -> str:
        """What people call it."""

    @property
    def clock(self) -> Clock:
        """What its times count from."""

    @property
    def order(self) -> RowOrder:
        """What to make of rows out of order."""

    def matches(self, path: Path) -> bool:
        """True when the file has this layout."""

    def declared_capacity(self, path: Path) -> int | None:
        """GPUs of a node, where the file itself says."""

    def gather(self, path: Path, capacity: int, gatherer: Gatherer) -> None:
        """Reads every row of the file into the gatherer."""

    def finish(self, trace: Trace, path: Path) -> Trace:
        """Adds what the layout knows beside the jobs."""
