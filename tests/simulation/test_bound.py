"""The bound: nobody starts a job earlier under the same FIFO queue, and moves are free there."""

from hypothesis import given, settings
from hypothesis import strategies as st

from compass_abs.model import ClusterState, Job, NodeStatus
from compass_abs.schedulers.best_fit import BestFit
from compass_abs.schedulers.sif_opt import FluidOracle
from compass_abs.simulation import Checks, NodeChange, Setup, Simulation, bound, has_bound, ratios, replay
from compass_abs.topology import find_topology
from tests.simulation.doubles import Ledger, Restless, workloads
from tests.simulation.test_conservation import outages


@settings(max_examples=100)
@given(jobs=workloads(most=30, nodes=3), seed=st.integers(0, 99))
def test_no_scheduler_starts_any_job_before_the_bound_does(jobs: list[Job], seed: int) -> None:
    jobs = [job for job in jobs if -(-job.instances // (8 // job.gpus)) <= 3]
    limit = Ledger()
    Simulation(jobs, FluidOracle(ClusterState(3)), observer=limit, checks=Checks.EVERY_EVENT).run()
    for scheduler in (BestFit(ClusterState(3)), Restless(ClusterState(3), seed)):
        ledger = Ledger()
        Simulation(jobs, scheduler, observer=ledger).run()
        for job_id, record in ledger.records.items():
            assert limit.records[job_id].first_start <= record.first_start


@settings(max_examples=100)
@given(jobs=workloads(most=30, nodes=3), changes=outages(nodes=3), seed=st.integers(0, 99))
def test_no_scheduler_is_sooner_than_the_bound_where_nodes_fail(
    jobs: list[Job], changes: list[NodeChange], seed: int
) -> None:
    jobs = [job for job in jobs if -(-job.instances // (8 // job.gpus)) <= 3]
    changes = [*changes, NodeChange(30, "n3", NodeStatus.UP)]
    limit = Ledger()
    oracle = FluidOracle(ClusterState(3))
    Simulation(jobs, oracle, node_changes=changes, observer=limit, checks=Checks.EVERY_EVENT).run()
    for scheduler in (BestFit(ClusterState(3)), Restless(ClusterState(3), seed)):
        ledger = Ledger()
        Simulation(jobs, scheduler, node_changes=changes, observer=ledger).run()
        for job_id, record in ledger.records.items():
            assert limit.records[job_id].first_start <= record.first_start
            assert limit.finished_at[job_id] <= ledger.finished_at[job_id]


def test_there_is_a_bound_with_node_events_under_fifo_alone() -> None:
    changes = (NodeChange(5, "n0", NodeStatus.LOST),)
    assert has_bound(Setup("gfs", 2, queue="sjf"))
    assert has_bound(Setup("gfs", 2, node_changes=changes))
    assert not has_bound(Setup("gfs", 2, queue="sjf", node_changes=changes))
    assert not has_bound(Setup("mcg", 2, node_changes=changes))
    assert not has_bound(Setup("hierarchical", 18, 4, topology=find_topology("nvl72"), node_changes=changes))


def test_the_bound_starts_a_job_as_soon_as_a_packing_exists() -> None:
    # Best fit puts 5 on one node and, 6 having no room beside it, on the other; when 5 ends 2 + 6 fit one node.
    jobs = [Job("a", 1, 5, 0, 10), Job("b", 1, 6, 0, 100), Job("c", 1, 2, 1, 100), Job("d", 1, 8, 2, 5)]
    setup = Setup("gfs", 2)
    assert bound(jobs, setup).ajct < replay(jobs, setup).ajct + 1e-9
    ledger = Ledger()
    Simulation(jobs, FluidOracle(ClusterState(2)), observer=ledger).run()
    assert ledger.records["d"].first_start == 10_000_000


def test_the_bound_has_no_fragmentation_and_no_moves() -> None:
    jobs = [Job(f"j{i}", 1, 1 + i % 8, i, 20 + i % 7) for i in range(200)]
    limit = bound(jobs, Setup("compass-abs", 6))
    assert (limit.afr, limit.max_n_sif, limit.migrations, limit.delay_mean, limit.blocked_avoidable) == (0, 0, 0, 0, 0)
    assert limit.peak_seconds > 0


def test_ratios_are_one_for_the_bound_itself_and_leave_out_zeros() -> None:
    jobs = [Job(f"j{i}", 1, 8, 0, 10) for i in range(3)]
    limit = bound(jobs, Setup("gfs", 1))
    assert set(ratios(limit, limit).values()) == {1.0}
    idle = bound(jobs[:1], Setup("gfs", 1))
    assert "queueing_mean" not in ratios(idle, idle)
