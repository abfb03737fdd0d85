"""The metrics of section 5.5, worked out by hand and by integrating the recorded time series."""

import math
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compass_abs.fragmentation import inherent, wcc_margin
from compass_abs.model import ClusterState, Decision, Job, NodeStatus, Verdict
from compass_abs.queues import BoundedBackfill
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.best_fit import BestFit
from compass_abs.simulation import NodeChange, Recorder, Simulation, quantiles, simulate
from compass_abs.simulation.quantiles import Quantiles
from tests.simulation.doubles import Restless, Scripted, scheduler_on, workloads


def test_metrics_of_a_fragmented_pair_of_nodes() -> None:
    # Two 4s on two nodes where one would do, while an 8 waits from 10 to 100.
    jobs = [Job("a", 1, 4, 0, 100), Job("b", 1, 4, 0, 200), Job("c", 1, 8, 10, 50)]
    summary = simulate(jobs, Scripted(ClusterState(2), nodes={"a": (0,), "b": (1,)}))
    assert summary.peak_seconds == 90
    assert summary.afr == pytest.approx(2 / 2)
    assert summary.agu == pytest.approx(0.5)
    assert (summary.blocked_fragmentation, summary.blocked_avoidable, summary.blocked_capacity) == (90, 90, 0)
    assert summary.max_n_sif == 2
    assert summary.ajct == pytest.approx((100 + 200 + 140) / 3)
    assert summary.queueing_mean == pytest.approx(30)
    assert (summary.jct_p50, summary.jct_p99, summary.makespan) == (140, 200, 200)
    assert summary.delivered_gpu_seconds == 4 * 100 + 4 * 200 + 8 * 50
    assert summary.utilisation == pytest.approx(summary.delivered_gpu_seconds / (200 * 16))


def test_waiting_that_no_packing_avoids_is_not_avoidable() -> None:
    # Two 5s leave 3 + 3 free: enough for a 6, on no node in any packing.
    jobs = [Job("a", 1, 5, 0, 100), Job("b", 1, 5, 0, 100), Job("c", 1, 6, 10, 50)]
    summary = simulate(jobs, scheduler_on(2))
    assert (summary.blocked_fragmentation, summary.blocked_avoidable, summary.max_n_sif) == (90, 0, 0)
    assert summary.wcc_coverage == pytest.approx(0)


def test_waiting_for_gpus_is_blocked_by_capacity() -> None:
    summary = simulate([Job("a", 1, 8, 0, 100), Job("b", 1, 1, 40, 10)], scheduler_on(1))
    assert (summary.blocked_capacity, summary.blocked_fragmentation, summary.agu) == (60, 0, 1)


def test_averages_over_waiting_do_not_exist_where_nobody_waits() -> None:
    summary = simulate([Job("a", 1, 8, 0, 100)], scheduler_on(1))
    assert (summary.peak_seconds, summary.afr, summary.agu) == (0, None, None)
    assert summary.as_dict()["agu"] is None
    assert not {"afr", "agu"} & summary.measured().keys()


def test_why_the_head_waits_is_what_the_head_was_told() -> None:
    # The head lacks GPUs; the one behind it, tried in the same pass, is held by a rule.
    class HoldsSmall(BestFit):
        def admit(self, job: Job, situation: Situation) -> Decision:
            return self.refuse(job, Verdict.POLICY) if job.id == "small" else super().admit(job, situation)

    class Lets(HoldsSmall):
        def admit(self, job: Job, situation: Situation) -> Decision:
            return BestFit.admit(self, job, situation) if situation.now >= 50 else super().admit(job, situation)

    jobs = [Job("a", 1, 4, 0, 50), Job("big", 1, 8, 10, 5), Job("small", 1, 1, 10, 5)]
    summary = simulate(jobs, Lets(ClusterState(1)), BoundedBackfill(16))
    assert (summary.blocked_capacity, summary.blocked_policy) == (45, 0)


def test_averages_count_the_nodes_there_are_at_the_time() -> None:
    # c waits from 10: two partial nodes, of 2 nodes until 30, of 3 nodes from then until it starts at 50.
    jobs = [Job("a", 1, 4, 0, 50), Job("b", 1, 4, 0, 100), Job("c", 2, 8, 10, 1)]
    scheduler = Scripted(ClusterState(2), nodes={"a": (0,), "b": (1,)})
    summary = simulate(jobs, scheduler, node_changes=[NodeChange(30, "extra", NodeStatus.UP)])
    assert summary.peak_seconds == 40
    assert summary.afr == pytest.approx((20 * 2 / 2 + 20 * 2 / 3) / 40)
    assert summary.agu == pytest.approx((20 * 8 / 16 + 20 * 8 / 24) / 40)
    assert summary.nodes == 3


def test_use_counts_the_nodes_that_are_cordoned_and_not_those_that_are_lost() -> None:
    # Two full nodes of three, one of them cordoned from 10 on; the empty third is lost at 50 and stays so.
    jobs = [Job("a", 1, 8, 0, 100), Job("b", 1, 8, 0, 100)]
    changes = [NodeChange(10, "n0", NodeStatus.CORDONED), NodeChange(50, "n2", NodeStatus.LOST)]
    summary = simulate(jobs, scheduler_on(3), node_changes=changes)
    assert summary.utilisation == pytest.approx(1600 / (24 * 50 + 16 * 50))


def test_fragmentation_costs_no_search_while_the_condition_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    def search(*_: object) -> int:
        raise AssertionError("Φ* was searched for")

    monkeypatch.setattr("compass_abs.simulation.meter.inherent", search)
    ones = [Job(f"one{i}", 1, 1, 0, 1e6) for i in range(40)]
    jobs = [*ones, *(Job(f"j{i}", 1, 1 + i % 8, 10.0 * i, 35.0) for i in range(400))]
    summary = simulate(jobs, Restless(ClusterState(60), 1))
    assert summary.wcc_coverage == 1
    assert summary.max_n_sif > 1
    with pytest.raises(AssertionError, match="searched for"):
        simulate([Job("a", 1, 3, 0, 9), Job("b", 1, 3, 0, 9)], Scripted(ClusterState(2), nodes={"b": (1,)}))


@settings(max_examples=60)
@given(jobs=workloads(), seed=st.integers(0, 999))
def test_metrics_equal_the_integrals_of_the_recorded_series(jobs: list[Job], seed: int) -> None:
    scheduler = Restless(ClusterState(4), seed)
    recorder = Recorder(scheduler.state)
    summary = Simulation(jobs, scheduler, observer=recorder).run()
    events = recorder.events().filter(recorder.events()["event"] != "refuse")
    placed: dict[str, list[int]] = {}
    sizes = {job.id: job.gpus for job in jobs}
    waiting: dict[str, None] = {}
    peak = fragmentation = used_area = horizon = covered = most = 0.0
    rows = list(events.iter_rows(named=True))
    for row, following in zip(rows, [*rows[1:], None], strict=True):
        match row["event"]:
            case "submit":
                waiting[row["job"]] = None
            case "start":
                del waiting[row["job"]]
                placed[row["job"]] = list(row["nodes"])
            case "move":
                placed[row["job"]][row["instance"]] = row["target"]
            case "finish":
                del placed[row["job"]]
        span = 0 if following is None else following["time_us"] - row["time_us"]
        if not span:
            continue
        loads, counts = [0] * 4, [0] * 9
        for job_id, nodes in placed.items():
            for node in nodes:
                loads[node] += sizes[job_id]
                counts[sizes[job_id]] += 1
        avoidable = sum(0 < load < 8 for load in loads) - inherent(counts)
        most = max(most, avoidable)
        horizon += span
        covered += span * (wcc_margin(counts) >= 0)
        if waiting:
            peak += span
            fragmentation += span * avoidable / 4
            used_area += span * sum(loads) / 32
    assert summary.peak_seconds == pytest.approx(peak / 1e6)
    assert summary.afr == (pytest.approx(fragmentation / peak) if peak else None)
    assert summary.agu == (pytest.approx(used_area / peak) if peak else None)
    assert summary.wcc_coverage == pytest.approx(covered / horizon if horizon else 1)
    assert summary.max_n_sif == most
    blocked = summary.blocked_capacity + summary.blocked_fragmentation + summary.blocked_policy
    assert blocked == pytest.approx(summary.peak_seconds)
    assert summary.blocked_avoidable <= summary.blocked_fragmentation


@given(st.lists(st.integers(0, 10**12), min_size=1, max_size=200), st.sampled_from((0.01, 0.5, 0.95, 0.99, 1.0)))
def test_a_percentile_is_exact_while_values_are_kept(values: list[int], share: float) -> None:
    found = Quantiles()
    for value in values:
        found.add(value)
    assert found.exact
    assert found.percentile(share) == sorted(values)[max(1, math.ceil(share * len(values))) - 1]
    assert found.mean() == sum(values) / len(values)


@given(st.lists(st.integers(0, 10**12), min_size=8, max_size=200), st.sampled_from((0.01, 0.5, 0.95, 0.99, 1.0)))
def test_a_percentile_of_many_values_is_right_to_one_part_in_a_thousand(values: list[int], share: float) -> None:
    kept = quantiles.EXACT
    quantiles.EXACT = 8
    try:
        found = Quantiles()
        for value in values:
            found.add(value)
        expected = sorted(values)[max(1, math.ceil(share * len(values))) - 1]
        assert not found.exact
        # Zeros and ones share a bucket: a microsecond.
        assert found.percentile(share) == pytest.approx(expected, rel=quantiles.ACCURACY * 1.001, abs=1)
        assert found.mean() == sum(values) / len(values)
    finally:
        quantiles.EXACT = kept


def test_quantiles_of_many_values_keep_a_bounded_number_of_buckets() -> None:
    kept = quantiles.EXACT
    quantiles.EXACT = 100
    try:
        found = Quantiles()
        for value in range(100_000):
            found.add(value * 997)
        assert len(found._exact) < 100
        assert len(found._buckets) < 10_000
    finally:
        quantiles.EXACT = kept


def test_memory_is_flat_in_the_length_of_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quantiles, "EXACT", 500)

    def peak(count: int) -> int:
        jobs = (Job(f"j{i}", 1, 1 + i % 8, 10.0 * i, 100.0 + i % 70) for i in range(count))
        tracemalloc.start()
        try:
            assert simulate(jobs, scheduler_on(10)).finished == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    # Less than a pointer for each of the others: the buckets of the percentiles, and nothing a job.
    assert peak(8_000) < peak(2_000) + 6_000 * 8
