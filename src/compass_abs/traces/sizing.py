"""How many nodes a workload gets: N(η) of section 5.2."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate

from compass_abs.model import Job
from compass_abs.traces.errors import TraceError


def cluster_size(jobs: Iterable[Job], eta: float, capacity: int = 8) -> int:
    """N(η) = max(⌈p_η / capacity⌉, N^maxjob).

    p_η is the smallest level that the concurrent demand D(t), every job starting the moment it is submitted, does not
    exceed for at least a share η of its support (the time during which D > 0). N^maxjob is the fewest nodes on which
    the largest single job fits.
    """
    return cluster_sizes(jobs, (eta,), capacity)[0]


def cluster_sizes(jobs: Iterable[Job], etas: Sequence[float], capacity: int = 8) -> list[int]:
    """N(η) for each of several η."""
    jobs = list(jobs)
    for eta in etas:
        if not 0 < eta <= 1:
            raise TraceError(f"eta is {eta!r}, expected a share above 0 and at most 1, such as 0.90")
    if not jobs:
        raise TraceError("a cluster cannot be sized for no jobs")
    largest = max(nodes_for(job, capacity) for job in jobs)
    return [max(-(-level // capacity), largest) for level in _percentiles(concurrent_demand(jobs), etas)]


def nodes_for(job: Job, capacity: int = 8) -> int:
    """The fewest nodes that hold the whole gang."""
    if job.gpus > capacity:
        raise TraceError(f"job {job.id!r}: gpus is {job.gpus}, but a node has {capacity}")
    return -(-job.instances // (capacity // job.gpus))


def demand_percentile(jobs: Iterable[Job], eta: float) -> int:
    """p_η: the smallest level that D(t) does not exceed for a share η of its support; 0 without any."""
    return _percentiles(concurrent_demand(jobs), (eta,))[0]


def _percentiles(demand: Iterable[tuple[float, float, int]], etas: Sequence[float]) -> list[int]:
    steps = [step for step in demand if step[2] > 0]
    # Exact, so that a level held for precisely the share η counts, whatever the order of the sum. Whole seconds are
    # what nearly every trace has, and integers are twenty times as fast.
    exact: type[int] | type[Fraction] = int if all(s.is_integer() and e.is_integer() for s, e, _ in steps) else Fraction
    time_at: dict[int, int | Fraction] = {}
    for start, end, level in steps:
        time_at[level] = time_at.get(level, 0) + exact(end) - exact(start)
    levels = sorted(time_at)
    held = list(accumulate(time_at[level] for level in levels))
    found = []
    for eta in etas:
        # The η that was meant, 9/10, and not the float nearest to it.
        enough = Fraction(repr(float(eta))) * (held[-1] if held else 0)
        found.append(levels[bisect_left(held, enough)] if held else 0)
    return found


def concurrent_demand(jobs: Iterable[Job]) -> Iterator[tuple[float, float, int]]:
    """D(t) as steps (from, to, GPUs), in order, from the first submission to the last end."""
    change: dict[float, int] = {}
    for job in jobs:
        if job.duration is None:
            raise TraceError(f"job {job.id!r} has no duration; its demand over time is unknown")
        start = float(job.submitted)
        end = start + job.duration
        change[start] = change.get(start, 0) + job.total_gpus
        change[end] = change.get(end, 0) - job.total_gpus
    demand, before = 0, 0.0
    for i, instant in enumerate(sorted(change)):
        if i:
            yield before, instant, demand
        demand += change[instant]
        before = instant
