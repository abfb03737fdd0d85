"""What a workload is made of: instance sizes, arrivals, durations, and how often the WCC holds."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from compass_abs.model import Job
from compass_abs.traces.sizing import cluster_sizes, concurrent_demand
from compass_abs.traces.trace import DAY, Trace, window

_QUANTILES = (0.05, 0.25, 0.50, 0.75, 0.90, 0.95, 0.99)
_ETAS = (0.85, 0.90, 0.95)


class SizeClass(StrEnum):
    """The classes of Table 1."""

    ONE = "1"
    FRIENDLY = "FF"
    UNFRIENDLY = "FUF"
    WHOLE = "whole"


def class_of(gpus: int, capacity: int = 8) -> SizeClass:
    """The class of an instance: a whole node, one GPU, a divisor of the node (FF), or neither (FUF)."""
    if gpus == capacity:
        return SizeClass.WHOLE
    if gpus == 1:
        return SizeClass.ONE
    return SizeClass.UNFRIENDLY if capacity % gpus else SizeClass.FRIENDLY


def instance_counts(jobs: Iterable[Job], capacity: int = 8) -> list[int]:
    """Instances of each size; index 0 is unused."""
    counts = [0] * (capacity + 1)
    for job in jobs:
        counts[job.gpus] += job.instances
    return counts


def instance_shares(jobs: Iterable[Job], capacity: int = 8) -> dict[SizeClass, float]:
    """Table 1: the share of instances in each class."""
    shares = dict.fromkeys(SizeClass, 0)
    for gpus, number in enumerate(instance_counts(jobs, capacity)):
        if gpus:
            shares[class_of(gpus, capacity)] += number
    total = sum(shares.values())
    return {kind: number / total if total else 0.0 for kind, number in shares.items()}


def wcc_coverage(jobs: Sequence[Job], capacity: int = 8) -> float | None:
    """ρ on the no-wait replay: the share of the time with something running during which the WCC holds.

    None for nodes that slots don't divide, such as racks of 72 GPUs, of which the condition says nothing.
    No cluster is needed: every job runs from its submission for its duration. On a cluster that makes jobs wait, ρ
    may differ; the simulator reports that one.
    """
    if vacancy(capacity):
        return None
    # p1 ≥ p3 + 3 p5 + 2 p6 + p7 in counts: enough 1-GPU instances for all vacancies.
    change: dict[float, list[int]] = {}
    for job in jobs:
        if job.duration is None:
            continue
        surplus = job.instances * (1 if job.gpus == 1 else -vacancy(job.gpus))
        for instant, sign in ((float(job.submitted), 1), (job.submitted + job.duration, -1)):
            entry = change.setdefault(instant, [0, 0])
            entry[0] += sign * surplus
            entry[1] += sign
    margin = running = 0
    held, support, before = [0.0], [0.0], 0.0
    for instant in sorted(change):
        if running:
            support.append(instant - before)
            if margin >= 0:
                held.append(instant - before)
        margin += change[instant][0]
        running += change[instant][1]
        before = instant
    whole = math.fsum(support)
    return math.fsum(held) / whole if whole else 1.0


def vacancy(gpus: int) -> int:
    """GPUs of its slot that an anchor leaves free: the next power of two less its size."""
    return (1 << (gpus - 1).bit_length()) - gpus


@dataclass(frozen=True, slots=True)
class Summary:
    """What `compass trace info` prints."""

    name: str
    synthetic: bool
    source: str
    origin: str | None
    capacity: int
    jobs: int
    instances: int
    gpus: int
    gpu_hours: float
    days_with_jobs: int
    first_day: int
    last_day: int
    instance_shares: dict[str, float]
    instances_by_size: dict[str, int]
    largest_gang_instances: int
    gang_share_of_jobs: float
    jobs_per_day: dict[str, float]
    arrivals_by_hour: tuple[float, ...]
    duration_mean: float
    duration_quantiles: dict[str, float]
    demand_mean_gpus: float
    demand_peak_gpus: int
    nodes: dict[str, int]
    wcc_coverage: float | None
    days_wcc_throughout: int
    dropped: dict[str, int]
    notes: tuple[str, ...]
    fleet: tuple[tuple[str, int, int], ...]


def summarize(trace: Trace, progress: Callable[[int], None] | None = None) -> Summary:
    """Everything that `compass trace info` says of a trace or a slice of one.

    `progress` is called with the number of jobs whose day has been looked at.
    """
    jobs, capacity = trace.jobs, trace.capacity
    days = trace.days()
    sizes, throughout = [], 0
    for n in days:
        part = window(trace, (n - 1) * DAY, n * DAY).jobs
        throughout += wcc_coverage(part, capacity) == 1.0
        sizes.append(len(part))
        if progress is not None:
            progress(sum(sizes))
    sizes.sort()
    durations = sorted(job.duration for job in jobs if job.duration is not None)
    counts = instance_counts(jobs, capacity)
    steps = list(concurrent_demand(jobs))
    support = math.fsum(end - start for start, end, gpus in steps if gpus)
    gpu_seconds = math.fsum((end - start) * gpus for start, end, gpus in steps)
    hours = [0] * 24
    for job in jobs:
        hours[int(job.submitted % DAY // 3600)] += 1
    return Summary(
        name=trace.name,
        synthetic=trace.synthetic,
        source=trace.source,
        origin=None if trace.origin is None else trace.origin.isoformat(),
        capacity=capacity,
        jobs=len(jobs),
        instances=sum(counts),
        gpus=sum(job.total_gpus for job in jobs),
        gpu_hours=gpu_seconds / 3600,
        days_with_jobs=len(days),
        first_day=days[0],
        last_day=days[-1],
        instance_shares={kind.value: share for kind, share in instance_shares(jobs, capacity).items()},
        instances_by_size={str(gpus): n for gpus, n in enumerate(counts) if n},
        largest_gang_instances=max(job.instances for job in jobs),
        gang_share_of_jobs=sum(job.instances > 1 for job in jobs) / len(jobs),
        jobs_per_day={
            "min": sizes[0],
            "median": _quantile(sizes, 0.5),
            "mean": len(jobs) / len(days),
            "max": sizes[-1],
        },
        arrivals_by_hour=tuple(n / len(jobs) for n in hours),
        duration_mean=math.fsum(durations) / len(durations),
        duration_quantiles={f"p{q * 100:.0f}": _quantile(durations, q) for q in _QUANTILES},
        demand_mean_gpus=gpu_seconds / support if support else 0.0,
        demand_peak_gpus=max((gpus for _, _, gpus in steps), default=0),
        nodes=_nodes(jobs, capacity),
        wcc_coverage=wcc_coverage(jobs, capacity),
        days_wcc_throughout=throughout,
        dropped=dict(trace.dropped),
        notes=trace.notes,
        fleet=tuple((group.model, group.gpus, group.nodes) for group in trace.fleet),
    )


@dataclass(frozen=True, slots=True)
class DayLine:
    """One day as `compass trace info --by-day` shows it."""

    day: int
    date: str
    jobs: int
    gpus: int
    instance_shares: dict[str, float]
    nodes: dict[str, int]
    wcc_coverage: float | None


def summarize_days(trace: Trace, progress: Callable[[int], None] | None = None) -> list[DayLine]:
    """A line for each day with jobs: its mix, its cluster, and how often the WCC holds on it.

    `progress` is called with the number of jobs of the days done.
    """
    lines: list[DayLine] = []
    done = 0
    for number in trace.days():
        jobs = window(trace, (number - 1) * DAY, number * DAY).jobs
        done += len(jobs)
        lines.append(
            DayLine(
                day=number,
                date=trace.date(number),
                jobs=len(jobs),
                gpus=sum(job.total_gpus for job in jobs),
                instance_shares={k.value: share for k, share in instance_shares(jobs, trace.capacity).items()},
                nodes=_nodes(jobs, trace.capacity),
                wcc_coverage=wcc_coverage(jobs, trace.capacity),
            )
        )
        if progress is not None:
            progress(done)
    return lines


def _nodes(jobs: Sequence[Job], capacity: int) -> dict[str, int]:
    sizes = cluster_sizes(jobs, _ETAS, capacity)
    return {f"{eta:.2f}": nodes for eta, nodes in zip(_ETAS, sizes, strict=True)}


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least this share does not exceed."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
