"""The real Venus trace: the paper's day, and the figures that the project promises of it."""

from pathlib import Path

import pytest

from compass_abs.simulation import Setup, Summary, bound, replay
from compass_abs.simulation.workload import Workload, day_workload
from compass_abs.traces import read_trace


@pytest.fixture(scope="module")
def day92(traces: Path) -> Workload:
    return day_workload(read_trace(traces / "venus" / "cluster_log.csv"), 92)


def run(workload: Workload, scheduler: str) -> Summary:
    return replay(workload.jobs, Setup(scheduler, workload.nodes(0.90)), history=workload.history)


def test_day_92_under_best_fit_is_fragmented(day92: Workload) -> None:
    summary = run(day92, "gfs")
    assert 0.28 <= summary.afr <= 0.33
    assert 0.78 <= summary.agu <= 0.86


def test_day_92_under_compass_abs_is_not(day92: Workload) -> None:
    summary = run(day92, "compass-abs")
    assert summary.afr < 0.03
    assert summary.agu > 0.95
    assert summary.wcc_coverage < 1 or summary.max_n_sif <= 2


def test_day_92_is_bounded_for_every_scheduler(day92: Workload) -> None:
    limit = bound(day92.jobs, Setup("gfs", day92.nodes(0.90)))
    for scheduler in ("gfs", "fgd", "compass-abs", "compass-jit"):
        assert run(day92, scheduler).ajct >= limit.ajct


def test_history_of_a_day_is_what_was_submitted_before_it(day92: Workload) -> None:
    start = 91 * 86_400.0
    assert day92.history
    assert all(job.submitted < start for job in day92.history)
    assert all(start <= job.submitted < start + 86_400 for job in day92.jobs)
    assert len(day92.history) >= 10_000
