"""Runs in processes of this machine."""

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from multiprocessing.synchronize import Event

from compass_abs.experiments.cell import Cell
from compass_abs.experiments.errors import SweepError
from compass_abs.experiments.executors.base import Outcome, attempt


class LocalExecutor:
    """As many processes as told; none besides this one when that is one."""

    def __init__(self, workers: int, options: Mapping[str, str]) -> None:
        if options:
            raise SweepError(f"engine 'local' has no option {next(iter(options))!r}")
        self._workers = workers

    def run(self, cells: Sequence[Cell]) -> Iterator[Outcome]:
        """Every run's outcome, as it becomes known."""
        if self._workers == 1 or len(cells) < 2:
            for position, cell in enumerate(cells):
                yield attempt(position, cell)
            return
        # Not forked: the table reader has threads, whose locks a forked child would inherit held.
        context = get_context("spawn")
        abandoned = context.Event()
        pool = ProcessPoolExecutor(min(self._workers, len(cells)), context, _be_a_good_child, (os.getpid(), abandoned))
        finished = False
        try:
            yield from self._drain(pool, list(enumerate(cells)))
            finished = True
        except BrokenProcessPool as error:
            raise SweepError("a worker process died, perhaps for lack of memory; run the same command again") from error
        finally:
            if not finished:
                abandoned.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _drain(self, pool: ProcessPoolExecutor, todo: list[tuple[int, Cell]]) -> Iterator[Outcome]:
        """Keeps a few runs ahead of the workers, so that stopping early abandons little."""
        todo.reverse()
        running: set[Future[Outcome]] = set()
        while todo or running:
            while todo and len(running) < 3 * self._workers:
                running.add(pool.submit(attempt, *todo.pop()))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from sorted((future.result() for future in done), key=lambda outcome: outcome.position)


def _be_a_good_child(parent: int, abandoned: Event) -> None:
    """Leaves interrupting to the parent; ends, in the middle of a run if need be, when nobody waits for it any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        # A killed parent can set no event, but its children are handed to another.
        while os.getppid() == parent and not abandoned.wait(0.5):
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
