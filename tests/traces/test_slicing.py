"""Days and windows: every job is in exactly one day, and the trace's clock is kept."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_abs.model import Job
from compass_abs.traces import DAY, Trace, TraceError, day, window
from compass_abs.traces.trace import sort_jobs

TIMES = st.lists(st.integers(0, 6 * 86_400 - 1).map(float), min_size=1, max_size=40)


def trace_of(times: list[float]) -> Trace:
    return Trace(sort_jobs([Job(f"j{i}", 1, 1, at, 10.0) for i, at in enumerate(times)]), name="t")


@given(TIMES)
def test_days_partition_the_jobs(times: list[float]) -> None:
    trace = trace_of(times)
    parts = [day(trace, n).jobs for n in trace.days()]
    assert tuple(job for part in parts for job in part) == trace.jobs
    for number, part in zip(trace.days(), parts, strict=True):
        assert all((number - 1) * DAY <= job.submitted < number * DAY for job in part)


@given(TIMES, st.integers(0, 6 * 86_400), st.integers(1, 3 * 86_400))
def test_window_holds_exactly_the_jobs_submitted_in_it(times: list[float], start: int, length: int) -> None:
    trace = trace_of(times)
    expected = tuple(job for job in trace.jobs if start <= job.submitted < start + length)
    assert window(trace, start, start + length).jobs == expected


def test_midnight_belongs_to_the_day_it_begins() -> None:
    trace = trace_of([DAY - 1, DAY, 2 * DAY])
    assert trace.days() == (1, 2, 3)
    assert [job.submitted for job in day(trace, 2).jobs] == [DAY]


def test_slice_keeps_what_must_be_said_of_the_trace() -> None:
    whole = Trace(
        trace_of([0.0, DAY]).jobs,
        name="t",
        capacity=4,
        origin=datetime(2020, 3, 18),
        dropped={"never ran": 2},
        notes=("cut",),
        synthetic=True,
        source="f.csv",
    )
    part = day(whole, 2)
    assert part.name == "t day 2"
    assert (part.capacity, part.origin, part.dropped, part.notes) == (4, whole.origin, {"never ran": 2}, ("cut",))
    assert part.synthetic
    assert part.source == "f.csv"
    assert part.date(2) == "2020-03-19"


def test_day_without_jobs_says_which_days_have_some() -> None:
    with pytest.raises(TraceError, match=r"day 3 of trace 't' has no jobs; days with jobs: 1-2, 4$"):
        day(trace_of([0.0, DAY, 3 * DAY]), 3)
    with pytest.raises(TraceError, match="day 0"):
        day(trace_of([0.0]), 0)


@pytest.mark.parametrize(("start", "end"), [(5.0, 5.0), (6.0, 5.0), (float("nan"), 5.0), (0.0, float("inf"))])
def test_window_that_is_none_is_refused(start: float, end: float) -> None:
    with pytest.raises(TraceError, match="expected a start before the end"):
        window(trace_of([0.0]), start, end)


def test_trace_without_dates_has_no_dates() -> None:
    assert trace_of([0.0]).date(1) == ""
