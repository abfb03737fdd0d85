"""Runs in processes of this machine."""

import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

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
        pool = ProcessPoolExecutor(
            min(self._workers, len(cells)), get_context("spawn"), _be_a_good_child, (os.getpid(),)
        )
        try:
            yield from self._drain(pool, list(enumerate(cells)))
        except BrokenProcessPool as error:
            raise SweepError("a worker process died, perhaps for lack of memory; run the same command again") from error
        finally:
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


def _be_a_good_child(parent: int) -> None:
    """Leaves interrupting to the parent, and doesn't outlive one that was killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
