"""Events and series as bytes: read back by a reader written from the format's description alone."""

from base64 import b64decode
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_abs.reporting import Ended, JobView, Moved, NodeChanged, ReportError, Started, StepSeries
from compass_abs.reporting.encoding import encode_events, encode_jobs, encode_series


def numbers(text: str) -> Iterator[int]:
    """Variable-length integers, seven bits a byte, the lowest first."""
    value = shift = 0
    for byte in b64decode(text):
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            yield value
            value = shift = 0


def signed(value: int) -> int:
    return -(value + 1) // 2 if value % 2 else value // 2


def test_events_read_back_are_those_written() -> None:
    events = [
        Started(10.0, 3, (5, 300)),
        Moved(10.0, 3, 1, 7),
        NodeChanged(99.96, 200, 0),
        Ended(5000.0, 3),
    ]
    assert list(numbers(encode_events(events, 10.0))) == [
        0, 3 * 4 + 0, 5, 300,
        0, 3 * 4 + 2, 1, 7,
        900, 200 * 4 + 3, 0,
        49_000, 3 * 4 + 1,
    ]  # fmt: skip


def test_events_that_go_back_in_time_are_refused() -> None:
    with pytest.raises(ReportError, match="go back in time"):
        encode_events([Ended(5.0, 0), Ended(4.0, 1)], 0.0)


def test_jobs_read_back_are_those_written() -> None:
    jobs = [JobView("a", 1, 8, 5.0), JobView("b", 300, 1, 4.0)]
    read = list(numbers(encode_jobs(jobs, 0.0)))
    assert read[:2] == [1, 8]
    assert read[3:5] == [300, 1]
    assert [signed(read[2]), signed(read[5])] == [50, -10]


@given(st.lists(st.tuples(st.integers(0, 10**7), st.integers(-1000, 100_000)), max_size=60, unique_by=lambda p: p[0]))
def test_series_read_back_has_every_step_that_changes_something(points: list[tuple[int, int]]) -> None:
    points = sorted(points)
    text = encode_series(StepSeries([t / 10 for t, _ in points], [v for _, v in points]), 0.0, 1.0)
    read, now, level = list(numbers(text)), 0, 0
    steps = []
    for k in range(0, len(read), 2):
        now, level = now + read[k], level + signed(read[k + 1])
        steps.append((now, level))
    assert steps == [(t, v) for i, (t, v) in enumerate(points) if i == 0 or points[i - 1][1] != v]


def test_series_with_two_values_in_a_tick_keeps_the_later() -> None:
    read = list(numbers(encode_series(StepSeries([0.0, 1.0, 1.01], [0.0, 5.0, 2.0]), 0.0, 1.0)))
    assert [read[2], signed(read[3])] == [10, 2]


def test_series_of_shares_keeps_thousandths() -> None:
    read = list(numbers(encode_series(StepSeries([0.0], [0.8567]), 0.0, 0.001)))
    assert signed(read[1]) == 857
