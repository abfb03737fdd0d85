"""A stationary stream of arrivals and departures that keeps a cluster about 90 % busy."""

import random
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NamedTuple

from compass_abs.model import ClusterState, Job
from compass_abs.schedulers.base import Scheduler, Situation

#: Instance sizes and their weights, after the shares of the Venus trace (Table 1 of the paper).
SIZES = (1, 2, 4, 3, 5, 6, 7, 8)
WEIGHTS = (62, 5, 5, 0.3, 0.2, 0.3, 0.2, 27)


class Churn:
    """A scheduler on a cluster that is filled to nine tenths at once, and the stream that keeps it there."""

    def __init__(
        self, scheduler: Scheduler, sizes: Sequence[int] = SIZES, weights: Sequence[float] = WEIGHTS, seed: int = 0
    ) -> None:
        self.scheduler = scheduler
        self._sizes, self._weights = sizes, weights
        self._rng = random.Random(seed)
        self._running: list[str] = []
        self._spare = 0.1 * scheduler.state.free_gpus
        self._submitted = 0
        while scheduler.state.free_gpus > self._spare:
            job = self._jobs(1)[0]
            if scheduler.admit(job, Situation()).admitted:
                self._running.append(job.id)

    def run(self, events: int) -> float:
        """Handles so many arrivals and departures, compaction included; says how many seconds of CPU that took."""
        jobs = deque(self._jobs(events))
        picks = [self._rng.random() for _ in range(events)]
        state, running, spare, situation = self.scheduler.state, self._running, self._spare, Situation()
        admit, finish = self.scheduler.admit, self.scheduler.finish
        begin = time.process_time()
        for pick in picks:
            if state.free_gpus < spare:
                k = int(pick * len(running))
                running[k], running[-1] = running[-1], running[k]
                finish(running.pop(), situation)
            else:
                job = jobs.popleft()
                if admit(job, situation).admitted:
                    running.append(job.id)
        return time.process_time() - begin

    def calls(self, events: int) -> float:
        """Calls of Python functions for each event: what it costs apart from caches and neighbours."""
        count = 0

        def called(frame: FrameType, event: str, argument: object) -> None:
            nonlocal count
            count += event == "call"

        sys.setprofile(called)
        try:
            self.run(events)
        finally:
            sys.setprofile(None)
        return count / events

    def _jobs(self, many: int) -> list[Job]:
        first, self._submitted = self._submitted, self._submitted + many
        sizes = self._rng.choices(self._sizes, self._weights, k=many)
        return [Job(f"j{first + k:07}", self._rng.choice((1, 1, 1, 2)), size) for k, size in enumerate(sizes)]


class Rates(NamedTuple):
    """Events a second, over many short turns."""

    median: float
    #: Of the turn that nine in ten are slower than: what there is where no neighbour takes caches and cores.
    quiet: float


def rates_side_by_side(churns: Sequence[Churn], rounds: int, chunk: int) -> list[Rates]:
    """Each in turn, turns being so short that a noisy minute falls on all of them alike."""
    times = [[churn.run(chunk) for churn in churns] for _ in range(rounds)]
    columns = map(sorted, zip(*times, strict=True))
    return [Rates(chunk / column[rounds // 2], chunk / column[rounds // 10]) for column in columns]


def events_per_second(make: Callable[[ClusterState], Scheduler], nodes: int, events: int, seed: int = 0) -> float:
    """Arrivals and departures handled in a second of CPU time, compaction included, once the cluster is full."""
    return events / Churn(make(ClusterState(nodes)), seed=seed).run(events)
