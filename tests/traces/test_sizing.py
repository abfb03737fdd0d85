"""N(η) against its definition, carried out literally."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_abs.model import Job
from compass_abs.traces import TraceError, cluster_size, concurrent_demand, demand_percentile, nodes_for

ETAS = st.sampled_from([0.05, 0.5, 0.85, 0.9, 0.95, 0.99, 1.0])


@st.composite
def workloads(draw: st.DrawFn, times: st.SearchStrategy[float] | None = None) -> list[Job]:
    at = st.integers(0, 60).map(float) if times is None else times
    number = draw(st.integers(1, 12))
    return [
        Job(
            f"j{i}",
            draw(st.integers(1, 5)),
            draw(st.integers(1, 8)),
            draw(at),
            draw(st.integers(1, 40).map(float) if times is None else times.filter(lambda x: x > 0)),
        )
        for i in range(number)
    ]


def literal_percentile(jobs: list[Job], eta: Fraction) -> int:
    """The smallest level ℓ ≥ 0 that D does not exceed for at least η of the time in which D > 0."""
    edges = sorted(
        {Fraction(job.submitted) for job in jobs} | {Fraction(job.submitted + (job.duration or 0)) for job in jobs}
    )
    pieces = []
    for start, end in pairwise(edges):
        demand = sum(
            job.instances * job.gpus
            for job in jobs
            if Fraction(job.submitted) <= start < Fraction(job.submitted + (job.duration or 0))
        )
        if demand > 0:
            pieces.append((end - start, demand))
    support = sum(length for length, _ in pieces)
    level = 0
    while sum(length for length, demand in pieces if demand <= level) < eta * support:
        level += 1
    return level


def literal_minimum(job: Job, capacity: int) -> int:
    """Nodes used when the gang is packed one instance after the other."""
    nodes: list[int] = []
    for _ in range(job.instances):
        for i, free in enumerate(nodes):
            if free >= job.gpus:
                nodes[i] -= job.gpus
                break
        else:
            nodes.append(capacity - job.gpus)
    return len(nodes)


@given(workloads(), ETAS)
def test_percentile_of_whole_seconds_is_the_definition(jobs: list[Job], eta: float) -> None:
    assert demand_percentile(jobs, eta) == literal_percentile(jobs, Fraction(str(eta)))


@given(workloads(st.floats(0.001, 100.0)), ETAS)
def test_percentile_of_fractional_seconds_is_the_definition(jobs: list[Job], eta: float) -> None:
    assert demand_percentile(jobs, eta) == literal_percentile(jobs, Fraction(str(eta)))


@given(workloads(), ETAS)
def test_size_is_the_larger_of_percentile_and_largest_job(jobs: list[Job], eta: float) -> None:
    by_demand = -(-literal_percentile(jobs, Fraction(str(eta))) // 8)
    assert cluster_size(jobs, eta) == max(by_demand, *(literal_minimum(job, 8) for job in jobs), 1)


@given(workloads())
def test_size_grows_with_eta_and_at_one_covers_the_peak(jobs: list[Job]) -> None:
    sizes = [cluster_size(jobs, eta) for eta in (0.1, 0.5, 0.9, 1.0)]
    assert sizes == sorted(sizes)
    peak = max(gpus for _, _, gpus in concurrent_demand(jobs))
    assert sizes[-1] * 8 >= peak


@given(st.integers(1, 40), st.integers(1, 16), st.sampled_from([8, 16]))
def test_minimum_of_a_gang_is_what_packing_it_takes(instances: int, gpus: int, capacity: int) -> None:
    if gpus <= capacity:
        assert nodes_for(Job("j", instances, gpus), capacity) == literal_minimum(Job("j", instances, gpus), capacity)


def test_percentile_held_for_exactly_the_share_counts() -> None:
    # 90 s at 8 GPUs, then 10 s at 80: D stays at 8 for exactly nine tenths of its support.
    jobs = [Job("a", 1, 8, 0.0, 100.0), Job("b", 9, 8, 90.0, 10.0)]
    assert demand_percentile(jobs, 0.90) == 8
    assert demand_percentile(jobs, 0.91) == 80


def test_percentile_ignores_time_without_demand() -> None:
    jobs = [Job("a", 1, 1, 0.0, 10.0), Job("b", 1, 4, 1_000_000.0, 90.0)]
    assert demand_percentile(jobs, 0.10) == 1
    assert demand_percentile(jobs, 0.11) == 4


def test_demand_is_the_sum_of_running_jobs_and_touching_jobs_do_not_add_up() -> None:
    jobs = [Job("a", 2, 3, 0.0, 10.0), Job("b", 1, 4, 10.0, 5.0), Job("c", 1, 1, 2.0, 3.0)]
    assert list(concurrent_demand(jobs)) == [(0.0, 2.0, 6), (2.0, 5.0, 7), (5.0, 10.0, 6), (10.0, 15.0, 4)]


def test_size_of_jobs_too_large_for_a_node_or_without_duration_is_refused() -> None:
    with pytest.raises(TraceError, match="gpus is 16, but a node has 8"):
        cluster_size([Job("a", 1, 16, 0.0, 1.0)], 0.9)
    with pytest.raises(TraceError, match="no duration"):
        cluster_size([Job("a", 1, 1)], 0.9)
    with pytest.raises(TraceError, match="no jobs"):
        cluster_size([], 0.9)


@pytest.mark.parametrize("eta", [0.0, -0.1, 1.01, 90.0, float("nan")])
def test_eta_that_is_no_share_is_refused(eta: float) -> None:
    with pytest.raises(TraceError, match="expected a share"):
        cluster_size([Job("a", 1, 1, 0.0, 1.0)], eta)
