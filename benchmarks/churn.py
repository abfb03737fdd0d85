"""A stationary stream of arrivals and departures that keeps a cluster about 90 % busy."""

import random
import time
from collections import deque
from collections.abc import Callable

from compass_abs.model import ClusterState, Job
from compass_abs.schedulers.base import Scheduler, Situation

#: Instance sizes and their weights, after the shares of the Venus trace (Table 1 of the paper).
SIZES = (1, 2, 4, 3, 5, 6, 7, 8)
WEIGHTS = (62, 5, 5, 0.3, 0.2, 0.3, 0.2, 27)


def events_per_second(make: Callable[[ClusterState], Scheduler], nodes: int, events: int, seed: int = 0) -> float:
    """Arrivals and departures handled in a second of CPU time, compaction included, once the cluster is full."""
    rng = random.Random(seed)
    state = ClusterState(nodes)
    scheduler, situation = make(state), Situation()
    running: list[str] = []
    jobs = deque(
        Job(f"j{k:07}", rng.choice((1, 1, 1, 2)), size)
        for k, size in enumerate(rng.choices(SIZES, WEIGHTS, k=events + nodes * 8))
    )
    while state.free_gpus > 0.1 * 8 * nodes:
        job = jobs.popleft()
        if scheduler.admit(job, situation).admitted:
            running.append(job.id)
    picks = [rng.random() for _ in range(events)]
    begin = time.process_time()
    for pick in picks:
        if state.free_gpus < 0.1 * 8 * nodes:
            k = int(pick * len(running))
            running[k], running[-1] = running[-1], running[k]
            scheduler.finish(running.pop(), situation)
        else:
            job = jobs.popleft()
            if scheduler.admit(job, situation).admitted:
                running.append(job.id)
    return events / (time.process_time() - begin)
