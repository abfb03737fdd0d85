"""Releases the jobs of a gang together, in one command, once the last of them has been submitted."""

import contextlib
import threading
import time

from compass_abs.engines.protocol import EngineRefusalError, EngineUnavailableError, RunId
from compass_abs.engines.slurm.commands import SlurmCommands

#: An incomplete gang (some of its instances only rejoin) is released when nothing was added for this long.
_QUIET = 0.2
_RETRY = 1.0


class Releaser:
    """Jobs that are submitted and held."""

    def __init__(self, commands: SlurmCommands) -> None:
        self._commands = commands
        self._condition = threading.Condition()
        self._held: dict[RunId, int] = {}
        #: When each gang, by job and generation, is due by the monotonic clock.
        self._due: dict[tuple[str, int], float] = {}
        self._closing = False
        self._thread = threading.Thread(target=self._release_all, name="slurm-release", daemon=True)
        self._thread.start()

    def add(self, run: RunId, job: int, *, complete: bool) -> None:
        """This job is held; `complete` when it is the last of its gang."""
        with self._condition:
            if run not in self._held:
                self._held[run] = job
                gang = (run.job_id, run.generation)
                self._due[gang] = 0.0 if complete else time.monotonic() + _QUIET
                self._condition.notify()

    def close(self) -> None:
        """Releases what is held, and ends. What can't be released is found held by the next engine."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join(60.0)

    def _release_all(self) -> None:
        while True:
            with self._condition:
                while not self._closing and (not self._due or min(self._due.values()) > time.monotonic()):
                    due = min(self._due.values(), default=None)
                    self._condition.wait(None if due is None else max(0.0, due - time.monotonic()))
                now = time.monotonic()
                gangs = {gang for gang, due in self._due.items() if due <= now or self._closing}
                jobs = {run: job for run, job in self._held.items() if (run.job_id, run.generation) in gangs}
                closing = self._closing
            if jobs:
                self._try(jobs, gangs)
            if closing:
                return

    def _try(self, jobs: dict[RunId, int], gangs: set[tuple[str, int]]) -> None:
        try:
            self._commands.release(jobs.values())
        except EngineUnavailableError:
            with self._condition:
                self._due.update({gang: time.monotonic() + _RETRY for gang in gangs})
            return
        except EngineRefusalError:
            # One of them is gone, and scontrol may have left out those behind it.
            for job in jobs.values():
                with contextlib.suppress(EngineRefusalError, EngineUnavailableError):
                    self._commands.release([job])
        with self._condition:
            for run in jobs:
                self._held.pop(run, None)
            for gang in gangs:
                if not any((run.job_id, run.generation) == gang for run in self._held):
                    self._due.pop(gang, None)
