"""What a scheduler would have done better or worse than what really happened, from what was seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median
from typing import Any

from compass_abs.audit.history import History, JobHistory
from compass_abs.audit.observation import AuditError
from compass_abs.audit.what_if import Fate, Outcome, WhatIf

Measures = Sequence[tuple[float, int, int, int]]


@dataclass(frozen=True, slots=True)
class ShadowOptions:
    """Who is in charge in the other telling."""

    scheduler: str = "compass-jit"
    parameters: tuple[tuple[str, str], ...] = ()
    queue: str = "fifo"
    #: Move what doesn't declare that it may be moved, too.
    everything_moves: bool = False
    pause: float = 8.0


@dataclass(frozen=True, slots=True)
class Compared:
    """One job that waited in the period: how long really, and how long under the other scheduler."""

    job: str
    pool: str
    instances: int
    gpus: int
    submitted: float
    #: None where it hadn't started when the period ended.
    really: float | None
    shadow: float | None
    moves: int

    @property
    def earlier(self) -> float | None:
        """Seconds by which it would have started earlier; negative for later. None where neither or one is known."""
        return None if self.really is None or self.shadow is None else self.really - self.shadow


@dataclass(frozen=True, slots=True)
class PoolShadow:
    """One pool, really and otherwise."""

    pool: str
    nodes: int
    #: Partial nodes and avoidable ones, averaged over time.
    really_partial: float
    really_avoidable: float
    shadow_partial: float
    shadow_avoidable: float
    moves: int
    jobs_moved: int
    gpu_seconds: float
    requeued: int
    skipped: int
    #: Time, avoidable nodes: really and otherwise.
    really_over_time: tuple[tuple[float, int], ...]
    shadow_over_time: tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """The comparison."""

    options: ShadowOptions
    begin: float
    end: float
    observations: int
    #: Usual seconds between observations: no time is known better than that.
    resolution: float
    pools: tuple[PoolShadow, ...]
    jobs: tuple[Compared, ...]
    #: What couldn't be known.
    caveats: tuple[str, ...]

    def _by(self, sign: int) -> list[Compared]:
        return [job for job in self.jobs if job.earlier is not None and sign * job.earlier > max(self.resolution, 1.0)]

    @property
    def earlier(self) -> list[Compared]:
        """Jobs that would have started earlier, the most so first, of those that really started."""
        return sorted(self._by(1), key=lambda job: (-(job.earlier or 0.0), job.job))

    @property
    def later(self) -> list[Compared]:
        """Jobs that would have started later."""
        return sorted(self._by(-1), key=lambda job: (job.earlier or 0.0, job.job))

    @property
    def only_shadow(self) -> list[Compared]:
        """Jobs that would have started in the period, and really didn't."""
        return [job for job in self.jobs if job.really is None and job.shadow is not None]

    @property
    def only_really(self) -> list[Compared]:
        """Jobs that did start in the period, and wouldn't have."""
        return [job for job in self.jobs if job.really is not None and job.shadow is None]

    def waits(self) -> tuple[float, float]:
        """Mean waiting time of the jobs that started in both, in seconds: really, otherwise."""
        both = [
            (j.really - j.submitted, j.shadow - j.submitted)
            for j in self.jobs
            if j.really is not None and j.shadow is not None
        ]
        return (fmean(r for r, _ in both), fmean(s for _, s in both)) if both else (0.0, 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        really, shadow = self.waits()
        return {
            "scheduler": self.options.scheduler,
            "parameters": dict(self.options.parameters),
            "queue": self.options.queue,
            "everything_moves": self.options.everything_moves,
            "begin": self.begin,
            "end": self.end,
            "observations": self.observations,
            "resolution": self.resolution,
            "mean_wait": {"really": really, "shadow": shadow},
            "jobs_earlier": len(self.earlier),
            "jobs_later": len(self.later),
            "jobs_started_only_in_shadow": len(self.only_shadow),
            "jobs_started_only_really": len(self.only_really),
            "pools": [
                {field: getattr(pool, field) for field in PoolShadow.__dataclass_fields__} for pool in self.pools
            ],
            "jobs": [
                {**{field: getattr(job, field) for field in Compared.__dataclass_fields__}, "earlier": job.earlier}
                for job in self.jobs
            ],
            "caveats": list(self.caveats),
        }


def compare(history: History, options: ShadowOptions | None = None) -> ShadowReport:
    """Replays what was seen under the other scheduler, and sets it beside what happened."""
    options = options or ShadowOptions()
    if len(history.times) < 2:
        raise AuditError(f"there are {len(history.times)} observations so far; a comparison takes two or more")
    outcomes = [
        WhatIf(
            history,
            name,
            options.scheduler,
            dict(options.parameters),
            options.queue,
            options.everything_moves,
            options.pause,
        ).run()
        for name in history.pools
        if history.pools[name].nodes
        and min(seen[0][0] for seen in history.pools[name].nodes.values()) <= history.times[0]
    ]
    times = history.times
    gaps = [after - before for before, after in pairwise(times)]
    resolution = median(gaps)
    pools = tuple(_pool(history, outcome) for outcome in outcomes)
    jobs = tuple(
        sorted(
            (_compared(fate, outcome.pool) for outcome in outcomes for fate in outcome.fates if not fate.job.initial),
            key=lambda job: (job.submitted, job.job),
        )
    )
    caveats = _caveats(history, outcomes, gaps, resolution)
    return ShadowReport(options, times[0], times[-1], len(times), resolution, pools, jobs, caveats)


def _compared(fate: Fate, pool: str) -> Compared:
    job = fate.job
    submitted = job.submitted if job.submitted is not None else job.free_since or job.started or 0.0
    return Compared(job.id, pool, job.instances, job.gpus, submitted, job.started, fate.started, fate.moves)


def _pool(history: History, outcome: Outcome) -> PoolShadow:
    real, end = history.pools[outcome.pool].measures, history.times[-1]
    return PoolShadow(
        pool=outcome.pool,
        nodes=len(history.pools[outcome.pool].nodes),
        really_partial=_mean(real, 1, end),
        really_avoidable=_mean(real, 2, end),
        shadow_partial=_mean(outcome.measures, 1, end),
        shadow_avoidable=_mean(outcome.measures, 2, end),
        moves=outcome.moves,
        jobs_moved=len(outcome.moved_jobs),
        gpu_seconds=outcome.gpu_seconds,
        requeued=outcome.requeued,
        skipped=outcome.skipped,
        really_over_time=tuple((each[0], each[2]) for each in real),
        shadow_over_time=tuple((each[0], each[2]) for each in outcome.measures),
    )


def _mean(measures: Measures, column: int, end: float) -> float:
    """The average over time of something that keeps its value until the next measure."""
    if not measures or end <= measures[0][0]:
        return float(measures[0][column]) if measures else 0.0
    ends = [each[0] for each in measures[1:]] + [end]
    area = sum(each[column] * (until - each[0]) for each, until in zip(measures, ends, strict=True))
    return area / (end - measures[0][0])


def _caveats(
    history: History, outcomes: Sequence[Outcome], gaps: Sequence[float], resolution: float
) -> tuple[str, ...]:
    found = [
        "A job is taken to last as long as it was seen to last; on other nodes it might have been faster or slower.",
        f"Ends are known to {resolution:,.0f} s, the time between observations; shorter jobs may have been missed.",
        "Only GPUs count: a job may really have waited for CPUs, memory, a quota or a choice of its scheduler that "
        "nobody could see.",
    ]
    here = {fate.job.id for outcome in outcomes for fate in outcome.fates}
    jobs: list[JobHistory] = [job for job in history.jobs if job.id in here]
    running = sum(1 for job in jobs if job.started is not None and job.ended is None)
    never = sum(1 for job in jobs if job.started is None)
    if running:
        found.append(f"{running:,} jobs still ran in the end: how long they last isn't known, so they hold their GPUs.")
    if never:
        found.append(f"{never:,} jobs never started: once started in the shadow, they hold their GPUs to the end.")
    if gaps and max(gaps) > 5 * resolution:
        found.append(f"Nobody watched for {max(gaps):,.0f} s at a stretch; what came and went in it isn't known.")
    elsewhere = len(history.jobs) - sum(len(outcome.fates) for outcome in outcomes)
    if elsewhere:
        found.append(f"{elsewhere:,} jobs are left out: of pools that came later, or larger than a node.")
    fixed = sum(1 for job in history.jobs if job.fixed and not job.initial)
    if fixed:
        found.append(
            f"{fixed:,} jobs that are bound to their nodes came later; in the shadow they may start on any node."
        )
    return tuple(found)
