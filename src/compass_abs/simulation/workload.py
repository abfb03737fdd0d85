"""The part of a trace that is simulated, with the days before it for schedulers that learn."""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from compass_abs.model import Job
from compass_abs.traces import DAY, Trace, TraceError, cluster_size, day, window

#: What schedulers that learn the demand get to see of the time before: the longest memory of any of them in days
#: (FGD's week) and in submissions (CAFGD's long window).
HISTORY_SECONDS, HISTORY_JOBS = 7 * DAY, 10_000


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs for an empty cluster, run until all have finished."""

    trace: Trace
    history: tuple[Job, ...] = ()
    #: What a result has to say about where its jobs come from.
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def jobs(self) -> tuple[Job, ...]:
        """In the order of submission."""
        return self.trace.jobs

    def nodes(self, eta: float) -> int:
        """N(η), the size of its cluster as in section 5.2."""
        return cluster_size(self.trace.jobs, eta, self.trace.capacity)


def whole_workload(trace: Trace) -> Workload:
    """Everything, replayed without a break."""
    return Workload(trace, (), _about(trace, {"part": "all"}))


def day_workload(trace: Trace, number: int) -> Workload:
    """The jobs submitted on one day; the first calendar day of the trace is day 1."""
    part = day(trace, number)
    about = {"part": f"day {number}", **({"date": trace.date(number)} if trace.origin else {})}
    return Workload(part, _before(trace, (number - 1) * DAY), _about(part, about))


def window_workload(trace: Trace, start: float, end: float) -> Workload:
    """The jobs submitted in [start, end) seconds of the trace's clock."""
    part = window(trace, start, end)
    if not part.jobs:
        raise TraceError(
            f"no job of trace {trace.name!r} was submitted in [{start:.15g}, {end:.15g}) s; its jobs were submitted "
            f"from {trace.jobs[0].submitted:.15g} to {trace.jobs[-1].submitted:.15g} s"
        )
    return Workload(part, _before(trace, start), _about(part, {"part": f"window {start:.15g}:{end:.15g}"}))


def _before(trace: Trace, start: float) -> tuple[Job, ...]:
    jobs = trace.jobs
    end = bisect_left(jobs, start, key=_submitted)
    first = min(bisect_left(jobs, start - HISTORY_SECONDS, key=_submitted), max(0, end - HISTORY_JOBS))
    return jobs[first:end]


def _submitted(job: Job) -> float:
    return job.submitted


def _about(trace: Trace, part: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": trace.name,
        "source": trace.source,
        "synthetic": trace.synthetic,
        **part,
        "jobs": len(trace.jobs),
        "dropped": dict(trace.dropped),
        "notes": [*trace.notes, *_pools(trace)],
    }


def _pools(trace: Trace) -> list[str]:
    """That jobs which name several pools share one cluster here."""
    pools = list(dict.fromkeys(job.pool for job in trace.jobs if job.pool))
    if len(pools) < 2:
        return []
    shown = ", ".join(pools[:4]) + (", ..." if len(pools) > 4 else "")
    return [f"jobs of {len(pools)} pools ({shown}) are replayed on one cluster; to give each its own, split the trace"]
