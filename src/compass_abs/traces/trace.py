"""A trace: jobs in the order of their submission, and what is known of where they come from."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from compass_abs.model import Job
from compass_abs.traces.errors import TraceError

DAY = 86_400.0
#: No trace has more jobs: a kept one takes half a kilobyte, and a machine that runs out of memory says nothing useful.
MOST_JOBS = 20_000_000


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes of one GPU model and size in the cluster that a trace was recorded on."""

    model: str
    gpus: int
    nodes: int


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs by (submitted, order in the file), and everything a result has to say about them.

    `submitted` counts seconds from the first midnight: day n is [(n-1) × 86,400, n × 86,400).
    """

    jobs: tuple[Job, ...]
    name: str = "trace"
    #: GPUs of a node.
    capacity: int = 8
    #: The midnight at which day 1 begins; None when the file has no dates, and then day 1 begins at its second 0.
    origin: datetime | None = None
    #: Why jobs were left out, and how many for each reason.
    dropped: dict[str, int] = field(default_factory=dict)
    #: What a reader of any result from this trace must be told.
    notes: tuple[str, ...] = ()
    #: True for generated jobs.
    synthetic: bool = False
    #: The file, or the command that makes these jobs again.
    source: str = ""
    #: The cluster that the jobs ran on, where the publisher says.
    fleet: tuple[NodeGroup, ...] = ()

    def days(self) -> tuple[int, ...]:
        """Days on which something was submitted, in order; the first calendar day is day 1."""
        seen: dict[int, None] = {}
        for job in self.jobs:
            seen[int(job.submitted // DAY) + 1] = None
        return tuple(seen)

    def date(self, number: int) -> str:
        """The calendar date of a day, or "" when the trace has no dates."""
        return "" if self.origin is None else (self.origin + timedelta(days=number - 1)).date().isoformat()


def window(trace: Trace, start: float, end: float, name: str | None = None) -> Trace:
    """The jobs submitted in [start, end), on the trace's own clock."""
    if not (math.isfinite(start) and math.isfinite(end)) or end <= start:
        raise TraceError(
            f"window [{start}, {end}) of trace {trace.name!r}: expected a start before the end, in seconds"
        )
    jobs = trace.jobs
    first = bisect_left(jobs, start, key=_submitted)
    last = bisect_left(jobs, end, lo=first, key=_submitted)
    return replace(trace, jobs=jobs[first:last], name=name or f"{trace.name}[{start:.15g},{end:.15g})")


def day(trace: Trace, number: int) -> Trace:
    """The jobs submitted on one day; the cluster is meant to be empty at its start and to run until all finish."""
    part = window(trace, (number - 1) * DAY, number * DAY, f"{trace.name} day {number}")
    if not part.jobs:
        days = trace.days()
        known = f"days with jobs: {_ranges(days)}" if days else "the trace is empty"
        raise TraceError(f"day {number} of trace {trace.name!r} has no jobs; {known}")
    return part


def sort_jobs(jobs: Sequence[Job]) -> tuple[Job, ...]:
    """The jobs by time of submission; equals keep their order."""
    return tuple(sorted(jobs, key=_submitted))


def _submitted(job: Job) -> float:
    return job.submitted


def _ranges(numbers: Sequence[int]) -> str:
    """`1, 8-9, 11-167`."""
    runs: list[tuple[int, int]] = []
    for n in numbers:
        if runs and runs[-1][1] == n - 1:
            runs[-1] = (runs[-1][0], n)
        else:
            runs.append((n, n))
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
