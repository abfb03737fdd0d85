"""Nodes that fail, come back, join, and are cordoned."""

from pathlib import Path

import pytest

from compass_abs.model import ClusterState, CompassError, Job, NodeStatus
from compass_abs.schedulers.sif_opt import FluidOracle
from compass_abs.simulation import Checks, NodeChange, PaperCost, Simulation, StuckError, read_node_changes
from tests.simulation.doubles import Ledger, Scripted, scheduler_on

US = 1_000_000
UP, LOST, CORDONED = NodeStatus.UP, NodeStatus.LOST, NodeStatus.CORDONED


def run(jobs: list[Job], changes: list[NodeChange], nodes: int = 1, period: float | None = 20.0) -> Ledger:
    ledger = Ledger()
    Simulation(jobs, scheduler_on(nodes), node_changes=changes, checkpoint_period=period, observer=ledger).run()
    return ledger


def test_a_lost_gang_goes_back_to_the_queue_and_repeats_what_no_checkpoint_kept() -> None:
    job = Job("a", 1, 8, 0, 100)
    record = run([job], [NodeChange(50, "n0", LOST), NodeChange(70, "n0", UP)]).records["a"]
    # Lost at 50 with a checkpoint at 40; waits until 70; 60 s are left.
    assert (record.queueing, record.redone, record.delay, record.requeues) == (20 * US, 10 * US, 0, 1)
    assert record.end == 130 * US


@pytest.mark.parametrize(("period", "redone"), [(0, 0), (None, 50), (45.0, 5), (50.0, 0), (51.0, 50)])
def test_how_much_is_repeated_depends_on_the_checkpoint_period(period: float | None, redone: int) -> None:
    changes = [NodeChange(50, "n0", LOST), NodeChange(70, "n0", UP)]
    assert run([Job("a", 1, 8, 0, 100)], changes, period=period).records["a"].redone == redone * US


def test_progress_kept_before_a_first_loss_is_kept_at_a_second() -> None:
    changes = [
        NodeChange(50, "n0", LOST),
        NodeChange(50, "n0", UP),
        NodeChange(55, "n0", LOST),
        NodeChange(60, "n0", UP),
    ]
    record = run([Job("a", 1, 8, 0, 100)], changes).records["a"]
    # 40 kept of 50; at 55 it has done 45 and keeps 40 again.
    assert record.redone == (10 + 5) * US
    assert record.end == 120 * US


def test_a_lost_gang_is_ahead_of_jobs_that_were_submitted_after_it() -> None:
    jobs = [Job("a", 1, 8, 0, 100), Job("b", 1, 8, 10, 5)]
    ledger = run(jobs, [NodeChange(50, "n0", LOST), NodeChange(70, "n0", UP)])
    assert [name for _, name in ledger.starts] == ["a", "a", "b"]


def test_a_gang_that_loses_one_instance_restarts_whole() -> None:
    ledger = run([Job("a", 2, 8, 0, 100)], [NodeChange(50, "n1", LOST)], nodes=3)
    record = ledger.records["a"]
    assert (record.queueing, record.redone) == (0, 10 * US)
    assert [time for time, _ in ledger.starts] == [0, 50 * US]


def test_a_gang_that_restarts_at_once_and_lost_nothing_ends_when_it_would_have() -> None:
    record = run([Job("a", 1, 8, 0, 100)], [NodeChange(50, "n0", LOST)], nodes=2, period=0).records["a"]
    assert (record.requeues, record.redone, record.end) == (1, 0, 100 * US)


def test_a_loss_during_a_pause_charges_only_the_pause_that_was_had() -> None:
    scheduler = Scripted(ClusterState(2), after={"c": (("a", 0, 1),)}, nodes={"c": (0,)})
    ledger = Ledger()
    jobs = [Job("a", 1, 4, 0, 100), Job("c", 1, 1, 30, 5)]
    Simulation(jobs, scheduler, cost=PaperCost(8), observer=ledger, node_changes=[NodeChange(33, "n1", LOST)]).run()
    record = ledger.records["a"]
    # The migration's checkpoint at 30 kept everything.
    assert (record.delay, record.redone) == (3 * US, 0)
    assert record.end == 103 * US


def test_a_cordoned_node_keeps_what_it_runs_and_gets_nothing_new() -> None:
    jobs = [Job("a", 1, 4, 0, 100), Job("b", 1, 4, 10, 10)]
    ledger = run(jobs, [NodeChange(5, "n0", CORDONED), NodeChange(60, "n0", UP)])
    assert ledger.finished_at == {"a": 100 * US, "b": 70 * US}


def test_an_added_node_lets_a_waiting_job_start() -> None:
    ledger = run([Job("a", 2, 8, 0, 10)], [NodeChange(25, "new", UP)])
    assert ledger.records["a"].queueing == 25 * US


def test_a_job_that_ends_as_its_node_fails_has_ended() -> None:
    record = run([Job("a", 1, 8, 0, 50)], [NodeChange(50, "n0", LOST)]).records["a"]
    assert (record.requeues, record.end) == (0, 50 * US)


def test_jobs_left_when_all_nodes_are_gone_are_an_error() -> None:
    with pytest.raises(StuckError, match=r"job 'a'.*nothing runs on 0 nodes"):
        run([Job("a", 1, 8, 0, 50)], [NodeChange(20, "n0", LOST)])


def test_an_unknown_node_is_named() -> None:
    with pytest.raises(CompassError, match=r"node event at 20 s: there is no node 'x' to be lost.*'up' adds one"):
        run([Job("a", 1, 8, 0, 50)], [NodeChange(20, "x", LOST)])


def test_the_oracle_loses_the_gpus_of_a_node_and_no_gang() -> None:
    # c fits beside a and b when n1 is back; a and b go on all the while.
    jobs = [Job("a", 1, 8, 0, 100), Job("b", 1, 4, 0, 100), Job("c", 1, 4, 30, 10)]
    ledger = Ledger()
    changes = [NodeChange(20, "n1", LOST), NodeChange(25, "n0", CORDONED), NodeChange(60, "n1", UP)]
    simulation = Simulation(
        jobs, FluidOracle(ClusterState(2)), node_changes=changes, observer=ledger, checks=Checks.EVERY_EVENT
    )
    summary = simulation.run()
    assert ledger.finished_at == {"a": 100 * US, "b": 100 * US, "c": 70 * US}
    # c waited while one node was all there was, and somebody held more than it.
    assert (summary.agu, summary.peak_seconds) == (1, 30)
    assert summary.utilisation == pytest.approx(1240 / (16 * 20 + 8 * 40 + 16 * 40))
    assert summary.requeues == 0


def test_node_changes_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "nodes.csv"
    path.write_text("time,node,status\n5,n0,lost\n7.5,n0,up\n")
    assert read_node_changes(path) == [NodeChange(5, "n0", LOST), NodeChange(7.5, "n0", UP)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time,node\n5,n0\n", "column 'status' is missing"),
        ("", "column 'node' is missing"),
        ("time,node,status\n5,n0,lost\nx,n0,up\n", r"row 2 \(line 3\): time is 'x'"),
        ("time,node,status\nnan,n0,up\n", r"row 1 \(line 2\): time is 'nan'"),
        ("time,node,status\n5,n0,broken\n", "row 1 .*: status is 'broken'.*lost"),
        ("time,node,status\n5,,lost\n", "row 1 .*: node is ''"),
        ("time,node,status\n5,n\udcff,lost\n", "row 1 .*: node is .*UTF-8"),
        ("time,node,status\n5\n", "row 1 .*: status is None"),
        ("\udcff\udcfe\0", "column 'node' is missing"),
        ("time,node,status\n5,n0," + "x" * 200_000, "line .*unreadable"),
    ],
)
def test_a_bad_row_of_node_changes_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "nodes.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CompassError, match=message):
        read_node_changes(path)
