"""A stationary stream of arrivals and departures that keeps a cluster about 90 % busy."""

import random
import time
from collections import deque
from collections.abc import Callable, Sequence

from compass_abs.model import ClusterState, Job
from compass_abs.schedulers.base import Scheduler, Situation

#: Instance sizes and their weights, after the shares of the Venus trace (Table 1 of the paper).
SIZES = (1, 2, 4, 3, 5, 6, 7, 8)
WEIGHTS = (62, 5, 5, 0.3, 0.2, 0.3, 0.2, 27)


def events_per_second(make: Callable[[ClusterState], Scheduler], nodes: int, events: int, seed: int = 0) -> float:
    """Arrivals and departures handled in a second of CPU time, compaction included, once the cluster is full."""
    return stream(make(ClusterState(nodes)), SIZES, WEIGHTS, events, seed)


def stream(scheduler: Scheduler, sizes: Sequence[int], weights: Sequence[float], events: int, seed: int = 0) -> float:
    """The same, of a scheduler on an empty cluster and of any sizes of instances."""
    rng = random.Random(seed)
    state, situation = scheduler.state, Situation()
    running: list[str] = []
    spare = 0.1 * state.free_gpus
    jobs = deque(
        Job(f"j{k:07}", rng.choice((1, 1, 1, 2)), size)
        for k, size in enumerate(rng.choices(sizes, weights, k=events + state.free_gpus))
    )
    while state.free_gpus > spare:
        job = jobs.popleft()
        if scheduler.admit(job, situation).admitted:
            running.append(job.id)
    picks = [rng.random() for _ in range(events)]
    begin = time.process_time()
    for pick in picks:
        if state.free_gpus < spare:
            k = int(pick * len(running))
            running[k], running[-1] = running[-1], running[k]
            scheduler.finish(running.pop(), situation)
        else:
            job = jobs.popleft()
            if scheduler.admit(job, situation).admitted:
                running.append(job.id)
    return events / (time.process_time() - begin)
