"""Durations cut at a limit: found only where there is a cut, and refilled from the right law."""

import math
import random
from collections.abc import Callable

import pytest

from compass_abs.model import Job
from compass_abs.traces import Tail, Trace, TraceError
from compass_abs.traces.tail import find_cut, refill, with_tail

CUT = 1_000.0


def pareto(number: int, exponent: float, seed: int = 1) -> list[float]:
    draw = random.Random(seed).random
    return [100.0 * (1 - draw()) ** (-1 / exponent) for _ in range(number)]


def jobs_of(durations: list[float], gpus: Callable[[int], int] = lambda i: 1) -> list[Job]:
    return [Job(f"j{i}", 1, gpus(i), float(i), d) for i, d in enumerate(durations)]


def cut_at(durations: list[float]) -> list[float]:
    return [min(d, CUT) for d in durations]


def test_cut_is_found_and_natural_maximum_is_not() -> None:
    durations = pareto(20_000, 1.5)
    assert find_cut(jobs_of(cut_at(durations))) == CUT
    assert find_cut(jobs_of(durations)) is None


def test_cut_is_found_below_a_stray_longer_job() -> None:
    assert find_cut(jobs_of([*cut_at(pareto(20_000, 1.5)), 9 * CUT])) == CUT


def test_common_short_duration_is_no_cut() -> None:
    assert find_cut(jobs_of([60.0] * 5_000 + [float(i) for i in range(61, 5_000)])) is None


def test_refilled_tail_follows_the_law_that_was_cut() -> None:
    exponent = 1.2
    jobs = jobs_of(cut_at(pareto(60_000, exponent)))
    refilled = [job.duration or 0.0 for job in refill(jobs, CUT, seed=7)]
    beyond = sorted(d for d in refilled if d > CUT)
    # Of a Pareto law between c and 7c the median is where half of the mass below 7c is passed.
    median = CUT * (1 - 0.5 * (1 - 7**-exponent)) ** (-1 / exponent)
    assert beyond[len(beyond) // 2] == pytest.approx(median, rel=0.05)
    assert beyond[-1] <= 7 * CUT


def test_refilling_touches_only_what_was_cut() -> None:
    jobs = jobs_of(cut_at(pareto(20_000, 1.5)))
    for before, after in zip(jobs, refill(jobs, CUT, 3), strict=True):
        if before.duration == CUT:
            assert (after.duration or 0) >= CUT
            assert (after.id, after.submitted, after.gpus) == (before.id, before.submitted, before.gpus)
        else:
            assert after is before


def test_refilling_draws_long_tails_for_the_classes_that_have_them() -> None:
    heavy, light = pareto(20_000, 0.5, seed=1), pareto(20_000, 3.0, seed=2)
    jobs = jobs_of(
        cut_at([d for pair in zip(heavy, light, strict=True) for d in pair]), lambda i: 1 if i % 2 == 0 else 8
    )
    logs: dict[int, list[float]] = {1: [], 8: []}
    for job in refill(jobs, CUT, 5):
        if (job.duration or 0) > CUT:
            logs[job.gpus].append(math.log((job.duration or 0) / CUT))
    assert math.fsum(logs[1]) / len(logs[1]) > 2 * math.fsum(logs[8]) / len(logs[8])


def test_refilling_is_a_function_of_the_seed() -> None:
    jobs = jobs_of(cut_at(pareto(5_000, 1.0)))
    assert refill(jobs, CUT, 1) == refill(jobs, CUT, 1)
    assert refill(jobs, CUT, 1) != refill(jobs, CUT, 2)


def test_every_trace_with_a_cut_says_how_it_was_treated() -> None:
    trace = Trace(tuple(jobs_of(cut_at(pareto(20_000, 1.5)))))
    published, refilled = with_tail(trace, Tail.AS_PUBLISHED, 0), with_tail(trace, Tail.REFILLED, 4)
    assert published.jobs == trace.jobs
    assert "are cut at 1,000 s, as published" in published.notes[0]
    assert "refilled from a fitted Pareto tail, seed 4" in refilled.notes[0]


def test_refilling_where_nothing_was_cut_is_refused() -> None:
    with pytest.raises(TraceError, match="no durations are cut"):
        with_tail(Trace(tuple(jobs_of(pareto(5_000, 1.5)))), Tail.REFILLED, 0)


def test_synthetic_trace_is_never_called_cut() -> None:
    trace = Trace(tuple(jobs_of(cut_at(pareto(20_000, 1.5)))), synthetic=True)
    assert with_tail(trace, Tail.AS_PUBLISHED, 0).notes == ()
