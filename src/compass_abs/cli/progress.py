"""A progress bar for what takes longer than two seconds, on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

#: Nobody needs a bar for less, in seconds.
PATIENCE = 2.0


class _Bar:
    def __init__(self, title: str, total: int) -> None:
        self._title, self._total = title, total
        self._began = monotonic()
        self._shown: tuple[Progress, TaskID] | None = None

    def __call__(self, done: int) -> None:
        if self._shown is None:
            if monotonic() - self._began < PATIENCE:
                return
            self._shown = self._open()
        progress, task = self._shown
        progress.update(task, completed=done)

    def _open(self) -> "tuple[Progress, TaskID]":
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("jobs, done in"),
            TimeRemainingColumn(),
        )  # fmt: skip
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        progress.start()
        return progress, progress.add_task(self._title, total=self._total)

    def close(self) -> None:
        if self._shown is not None:
            self._shown[0].stop()


@contextmanager
def progress_bar(title: str, total: int, quiet: bool) -> Iterator[Callable[[int], None] | None]:
    """Yields what to call with the number of jobs done; None where nobody would see it."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(title, total)
    try:
        yield bar
    finally:
        bar.close()
