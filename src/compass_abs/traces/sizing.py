"""How many nodes a workload gets: N(η) of section 5.2."""

from collections.abc import Iterable, Iterator
from fractions import Fraction

from compass_abs.model import Job
from compass_abs.traces.errors import TraceError


def cluster_size(jobs: Iterable[Job], eta: float, capacity: int = 8) -> int:
    """N(η) = max(⌈p_η / capacity⌉, N^maxjob).

    p_η is the smallest level that the concurrent demand D(t), every job starting the moment it is submitted, does not
    exceed for at least a share η of its support (the time during which D > 0). N^maxjob is the fewest nodes on which
    the largest single job fits.
    """
    jobs = list(jobs)
    if not 0 < eta <= 1:
        raise TraceError(f"eta is {eta!r}, expected a share above 0 and at most 1, such as 0.90")
    if not jobs:
        raise TraceError("a cluster cannot be sized for no jobs")
    largest = max(nodes_for(job, capacity) for job in jobs)
    return max(-(-demand_percentile(jobs, eta) // capacity), largest)


def nodes_for(job: Job, capacity: int = 8) -> int:
    """The fewest nodes that hold the whole gang."""
    if job.gpus > capacity:
        raise TraceError(f"job {job.id!r}: gpus is {job.gpus}, but a node has {capacity}")
    return -(-job.instances // (capacity // job.gpus))


def demand_percentile(jobs: Iterable[Job], eta: float) -> int:
    """p_η: the smallest level that D(t) does not exceed for a share η of its support; 0 without any."""
    steps = [step for step in concurrent_demand(jobs) if step[2] > 0]
    # Exact, so that a level held for precisely the share η counts, whatever the order of the sum. Whole seconds are
    # what nearly every trace has, and integers are twenty times as fast.
    exact: type[int] | type[Fraction] = int if all(s.is_integer() and e.is_integer() for s, e, _ in steps) else Fraction
    time_at: dict[int, int | Fraction] = {}
    for start, end, demand in steps:
        time_at[demand] = time_at.get(demand, 0) + exact(end) - exact(start)
    # The η that was meant, 9/10, and not the float nearest to it.
    enough = Fraction(repr(float(eta))) * sum(time_at.values())
    held: int | Fraction = 0
    for level in sorted(time_at):
        held += time_at[level]
        if held >= enough:
            return level
    return 0


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
