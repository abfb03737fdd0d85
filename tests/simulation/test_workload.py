"""Parts of a trace."""

import pytest

from compass_abs.model import CompassError, Job
from compass_abs.simulation import workload
from compass_abs.simulation.workload import day_workload, whole_workload, window_workload
from compass_abs.traces import DAY, Trace


def trace(days: int = 20) -> Trace:
    jobs = tuple(Job(f"j{i}", 1, 1 + i % 8, i * DAY / 4, 100) for i in range(4 * days))
    return Trace(jobs, "t", dropped={"no GPUs": 3}, notes=("cut",))


def test_the_whole_trace_has_no_history() -> None:
    part = whole_workload(trace())
    assert (len(part.jobs), part.history) == (80, ())
    assert part.about["dropped"] == {"no GPUs": 3}


def test_a_day_has_its_jobs_and_the_longer_of_both_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workload, "HISTORY_JOBS", 5)
    part = day_workload(trace(), 10)
    assert [job.id for job in part.jobs] == ["j36", "j37", "j38", "j39"]
    assert [job.id for job in part.history] == [f"j{i}" for i in range(8, 36)]
    monkeypatch.setattr(workload, "HISTORY_JOBS", 30)
    assert [job.id for job in day_workload(trace(), 10).history] == [f"j{i}" for i in range(6, 36)]


def test_a_window_has_its_jobs() -> None:
    part = window_workload(trace(), DAY, 1.5 * DAY)
    assert [job.id for job in part.jobs] == ["j4", "j5"]
    assert [job.id for job in part.history] == ["j0", "j1", "j2", "j3"]


def test_a_window_is_named_to_the_second_and_below() -> None:
    part = window_workload(trace(days=120), 7_938_123.25, 9_000_000)
    assert part.about["part"] == "window 7938123.25:9000000"
    assert part.trace.name == "t[7938123.25,9000000)"


def test_a_day_without_jobs_is_named() -> None:
    with pytest.raises(CompassError, match="day 21"):
        day_workload(trace(), 21)
