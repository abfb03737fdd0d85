"""Durations that a publisher cut at a limit: found, named in the notes, and on request refilled."""

import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum

from compass_abs.model import Job
from compass_abs.traces.errors import TraceError
from compass_abs.traces.trace import Trace

#: A value that this share of all jobs has in common, with next to nothing beyond it, is a cut and no coincidence
#: (Venus: 1.9 % at 172,800 s and one job beyond).
_PILE = 0.005
_BEYOND = 0.001
#: The tail is fitted to durations from a quarter of the cut on: long enough to be tail, enough of them to fit.
_FIT_FROM = 0.25
#: Fewer observations than this and a class borrows the fit of all jobs.
_FEWEST = 50
#: Nothing is refilled beyond this many times the cut: 14 days for Venus, the time limit of the one job in its file
#: that ended by TIMEOUT.
_LONGEST = 7.0


class Tail(StrEnum):
    """What to do with durations that were cut."""

    AS_PUBLISHED = "as-published"
    REFILLED = "refilled"


def find_cut(jobs: Sequence[Job]) -> float | None:
    """The duration at which the file was cut; None when it wasn't."""
    durations = Counter(job.duration for job in jobs if job.duration is not None)
    if len(jobs) < 1_000:
        return None
    beyond = 0
    for value in sorted(durations, reverse=True):
        if durations[value] >= _PILE * len(jobs):
            return value
        beyond += durations[value]
        if beyond > _BEYOND * len(jobs):
            return None
    return None


def with_tail(trace: Trace, tail: Tail, seed: int) -> Trace:
    """The trace with its cut durations as they are or refilled, and a note that says which."""
    # A generator's durations end where its model's do; nobody cut them.
    cut = None if trace.synthetic else find_cut(trace.jobs)
    if cut is None:
        if tail is Tail.REFILLED:
            raise TraceError(f"trace {trace.name!r}: no durations are cut, there is no tail to refill")
        return trace
    number = sum(job.duration == cut for job in trace.jobs)
    share = f"{number:,} of {len(trace.jobs):,} durations ({number / len(trace.jobs):.1%})"
    if tail is Tail.AS_PUBLISHED:
        return replace(trace, notes=(*trace.notes, f"{share} are cut at {cut:,.0f} s, as published"))
    jobs = refill(trace.jobs, cut, seed)
    note = f"{share} cut at {cut:,.0f} s are refilled from a fitted Pareto tail, seed {seed}"
    return replace(trace, jobs=jobs, notes=(*trace.notes, note))


def refill(jobs: Sequence[Job], cut: float, seed: int) -> tuple[Job, ...]:
    """The jobs, those cut given durations drawn from a Pareto tail beyond the cut, by size class.

    The exponent is the maximum-likelihood one for data censored at the cut, α = n / (Σ ln(x/u) + k ln(c/u)), with n
    durations x from u = c/4 up to the cut c and k cut ones. What is drawn lies between c and 7 c.
    """
    overall = _exponent(jobs, cut)
    if overall is None:
        raise TraceError(f"too few durations between {_FIT_FROM * cut:,.0f} and {cut:,.0f} s to fit a tail")
    classes: dict[int, list[Job]] = {}
    for job in jobs:
        classes.setdefault(_size_class(job), []).append(job)
    exponents = {key: _exponent(members, cut) or overall for key, members in classes.items()}
    draw = random.Random(seed).random
    refilled = []
    for job in jobs:
        if job.duration == cut:
            job = replace(job, duration=float(round(_beyond(cut, exponents[_size_class(job)], draw()))))
        refilled.append(job)
    return tuple(refilled)


def _size_class(job: Job) -> int:
    """1, 2 to 7, 8 GPUs, or several nodes."""
    total = job.total_gpus
    return 0 if total == 1 else 1 if total < 8 else 2 if total == 8 else 3


def _exponent(jobs: Sequence[Job], cut: float) -> float | None:
    start = _FIT_FROM * cut
    known = [job.duration for job in jobs if job.duration is not None and start <= job.duration < cut]
    cut_ones = sum(job.duration == cut for job in jobs)
    if len(known) < _FEWEST:
        return None
    return len(known) / (math.fsum(math.log(x / start) for x in known) + cut_ones * math.log(cut / start))


def _beyond(cut: float, exponent: float, uniform: float) -> float:
    """The quantile of a Pareto law between the cut and `_LONGEST` times it."""
    kept = 1 - _LONGEST**-exponent
    return cut * float((1 - uniform * kept) ** (-1 / exponent))
