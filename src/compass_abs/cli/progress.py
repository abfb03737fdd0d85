"""A progress bar for what takes longer than two seconds, on a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn, TaskID

    from compass_abs.simulation import Result

#: Nobody needs a bar for less, in seconds.
PATIENCE = 2.0


class _Bar:
    def __init__(self, title: str, total: int, columns: "Callable[[], tuple[ProgressColumn, ...]]") -> None:
        self._title, self._total, self._columns = title, total, columns
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
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = TextColumn("{task.description}"), BarColumn(), *self._columns(), TimeRemainingColumn()
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        progress.start()
        return progress, progress.add_task(self._title, total=self._total)

    def close(self) -> None:
        if self._shown is not None:
            self._shown[0].stop()


def _counted(what: str) -> "Callable[[], tuple[ProgressColumn, ...]]":
    def columns() -> "tuple[ProgressColumn, ...]":
        from rich.progress import MofNCompleteColumn, TextColumn

        return MofNCompleteColumn(), TextColumn(f"{what}, done in")

    return columns


def _bytes() -> "tuple[ProgressColumn, ...]":
    from rich.progress import DownloadColumn, TextColumn

    return DownloadColumn(), TextColumn("read, done in")


def progress_bar(
    title: str, total: int, quiet: bool = False, what: str = "jobs"
) -> AbstractContextManager[Callable[[int], None] | None]:
    """Yields what to call with the number of jobs (or what else is counted) done; None where nobody would see it."""
    return _watched(title, total, quiet, _counted(what))


def saving_bar(result: "Result", title: str, quiet: bool) -> AbstractContextManager[Callable[[int], None] | None]:
    """Yields what to call with the rows of a result that have been written."""
    return progress_bar(f"writing {title}", result.events.height + result.timeseries.height, quiet, "rows")


def reading_bar(trace: str, quiet: bool = False) -> AbstractContextManager[Callable[[int], None] | None]:
    """Yields what to call with the bytes that have been read of a trace's file; None where nobody would see it."""
    from compass_abs.traces.catalog import locate

    path, _ = locate(trace)
    return _watched(f"reading {path.name}", path.stat().st_size, quiet, _bytes)


@contextmanager
def _watched(
    title: str, total: int, quiet: bool, columns: "Callable[[], tuple[ProgressColumn, ...]]"
) -> Iterator[Callable[[int], None] | None]:
    if quiet or not sys.stderr.isatty():
        yield None
        return
    bar = _Bar(title, total, columns)
    try:
        yield bar
    finally:
        bar.close()
