"""Shares, the WCC and the summary, against their definitions."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_abs.model import Job
from compass_abs.traces import Trace, cluster_size
from compass_abs.traces.composition import SizeClass, class_of, instance_shares, summarize, vacancy, wcc_coverage

JOBS = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 8), st.integers(0, 40), st.integers(1, 20)), min_size=1, max_size=15
).map(lambda rows: [Job(f"j{i}", w, g, float(a), float(d)) for i, (w, g, a, d) in enumerate(rows)])


def test_classes_are_those_of_table_1() -> None:
    kinds = [class_of(g) for g in range(1, 9)]
    one, ff, fuf, whole = SizeClass
    assert kinds == [one, ff, fuf, ff, fuf, fuf, fuf, whole]


def test_shares_count_instances_not_jobs() -> None:
    jobs = [Job("a", 3, 8), Job("b", 1, 1), Job("c", 2, 4), Job("d", 2, 6)]
    assert list(instance_shares(jobs).values()) == [1 / 8, 2 / 8, 2 / 8, 3 / 8]


def test_vacancies_are_those_of_the_condition() -> None:
    assert [vacancy(g) for g in range(1, 9)] == [0, 0, 1, 0, 3, 2, 1, 0]


@given(JOBS)
def test_wcc_coverage_is_the_share_of_busy_seconds_on_which_it_holds(jobs: list[Job]) -> None:
    busy = held = 0
    for second in range(70):
        n = [0] * 9
        for job in jobs:
            if job.submitted <= second < job.submitted + (job.duration or 0):
                n[job.gpus] += job.instances
        if any(n):
            busy += 1
            held += n[1] >= n[3] + 3 * n[5] + 2 * n[6] + n[7]
    assert wcc_coverage(jobs) == pytest.approx(held / busy)


def test_wcc_coverage_says_nothing_of_racks() -> None:
    jobs = (Job("a", 1, 72, 0, 10), Job("b", 1, 3, 0, 10))
    assert wcc_coverage(jobs, 72) is None
    assert wcc_coverage(jobs[1:], 8) == 0.0
    summary = summarize(Trace(jobs, capacity=72))
    assert (summary.wcc_coverage, summary.days_wcc_throughout) == (None, 0)


def test_wcc_coverage_is_exactly_one_when_it_always_holds() -> None:
    jobs = [Job(f"j{i}", 1, 1 + i % 2, i / 3, 0.1 + i / 7) for i in range(1_000)]
    assert wcc_coverage(jobs) == 1.0


def test_summary_says_what_the_jobs_are() -> None:
    jobs = (
        Job("a", 2, 8, 3_600.0, 100.0),
        Job("b", 1, 1, 3_700.0, 3_600.0),
        Job("c", 1, 3, 2 * 86_400.0 + 5, 50.0),
    )
    trace = Trace(jobs, name="t", origin=datetime(2020, 3, 18), dropped={"never ran": 1}, notes=("n",), synthetic=True)
    summary = summarize(trace)
    assert (summary.jobs, summary.instances, summary.gpus) == (3, 4, 20)
    assert (summary.days_with_jobs, summary.first_day, summary.last_day) == (2, 1, 3)
    assert summary.gpu_hours == pytest.approx((1_600 + 3_600 + 150) / 3_600)
    assert summary.arrivals_by_hour[:2] == (1 / 3, 2 / 3)
    assert summary.jobs_per_day == {"min": 1, "median": 1, "mean": 1.5, "max": 2}
    assert summary.duration_quantiles["p50"] == 100.0
    assert summary.demand_peak_gpus == 16
    assert summary.nodes["0.90"] == cluster_size(jobs, 0.90)
    assert summary.gang_share_of_jobs == pytest.approx(1 / 3)
    assert summary.days_wcc_throughout == 1
    assert summary.wcc_coverage == pytest.approx(3_700 / 3_750)
    assert (summary.dropped, summary.notes, summary.synthetic) == ({"never ran": 1}, ("n",), True)
