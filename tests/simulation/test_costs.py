"""What moves cost: each model on cases small enough to work out by hand."""

import pytest

from compass_abs.model import ClusterState, CompassError, Job
from compass_abs.simulation import PaperCost, Simulation, StrictCost, make_cost
from compass_abs.simulation.costs import Cost
from compass_abs.simulation.job_record import JobRecord
from tests.simulation.doubles import Ledger, Scripted

US = 1_000_000
#: Two jobs that run, and one that wants the whole of node 0 once `a` has left it.
A, B = Job("a", 1, 4, 0, 100), Job("b", 1, 2, 0, 100)
C = Job("c", 1, 8, 10, 100)


def run(scheduler: Scripted, jobs: list[Job], cost: Cost, **options: float | None) -> Ledger:
    ledger = Ledger()
    Simulation(jobs, scheduler, cost=cost, observer=ledger, **options).run()  # type: ignore[arg-type]
    return ledger


def moved_for_c() -> Scripted:
    """Moves `a` and `b` from node 0 to node 1 when `c` arrives."""
    return Scripted(ClusterState(2), before={"c": (("a", 0, 1), ("b", 0, 1))})


def test_the_papers_cost_delays_those_that_move_and_nobody_else() -> None:
    ledger = run(moved_for_c(), [A, B, C], PaperCost(8))
    assert {name: record.delay for name, record in ledger.records.items()} == {"a": 8 * US, "b": 8 * US, "c": 0}
    assert ledger.finished_at == {"a": 108 * US, "b": 108 * US, "c": 110 * US}


def test_a_job_with_several_instances_moved_in_one_event_pays_once() -> None:
    gang = Job("g", 2, 2, 0, 100)
    scheduler = Scripted(ClusterState(2), before={"c": (("g", 0, 1), ("g", 1, 1))})
    record = run(scheduler, [gang, C], PaperCost(8)).records["g"]
    assert (record.delay, record.pauses, record.migrations) == (8 * US, 1, 2)


def test_a_job_moved_again_by_what_follows_from_the_same_event_pays_once() -> None:
    # `b` ends: `a` moves because of that, and back because `d`, which waited, starts then.
    jobs = [Job("a", 1, 2, 0, 100), Job("b", 1, 8, 0, 10), Job("d", 1, 8, 1, 5)]
    scheduler = Scripted(ClusterState(2), before={"d": (("a", 0, 0),)}, after={"-b": (("a", 0, 1),)})
    record = run(scheduler, jobs, PaperCost(8)).records["a"]
    assert (record.delay, record.pauses, record.migrations) == (8 * US, 1, 2)


def test_strictly_nobody_waits_for_gpus_that_a_job_only_passes_through() -> None:
    # As above: `a` is sent to node 1 and back at 10, and never worked there, where `d` starts.
    jobs = [Job("a", 1, 2, 0, 100), Job("b", 1, 8, 0, 10), Job("d", 1, 8, 1, 5)]
    scheduler = Scripted(ClusterState(2), before={"d": (("a", 0, 0),)}, after={"-b": (("a", 0, 1),)})
    ledger = run(scheduler, jobs, StrictCost(3, 5))
    assert {name: record.delay for name, record in ledger.records.items()} == {"a": 8 * US, "b": 0, "d": 0}


def test_a_job_moved_while_it_is_paused_pays_in_full_again() -> None:
    scheduler = Scripted(
        ClusterState(3), after={"c": (("a", 0, 1),), "d": (("a", 0, 0),)}, nodes={"c": (2,), "d": (1,)}
    )
    jobs = [A, Job("c", 1, 1, 10, 50), Job("d", 1, 1, 12, 50)]
    ledger = run(scheduler, jobs, PaperCost(8))
    assert ledger.records["a"].delay == 16 * US
    assert ledger.finished_at["a"] == 116 * US


def test_a_jobs_own_pause_replaces_the_default() -> None:
    own = Job("a", 1, 4, 0, 100, pause=2.5)
    ledger = run(moved_for_c(), [own, B, C], PaperCost(8))
    assert (ledger.records["a"].delay, ledger.records["b"].delay) == (2_500_000, 8 * US)


def test_strictly_a_job_waits_for_the_checkpoint_of_those_it_displaces() -> None:
    ledger = run(moved_for_c(), [A, B, C], StrictCost(checkpoint=3, restore=5))
    assert {name: record.delay for name, record in ledger.records.items()} == {"a": 8 * US, "b": 8 * US, "c": 3 * US}
    assert ledger.finished_at["c"] == 113 * US
    assert ledger.records["c"].queueing == 0


def test_strictly_a_job_that_needs_none_of_the_vacated_gpus_starts_at_once() -> None:
    small = Job("c", 1, 2, 10, 100)
    # Node 0 has 2 free GPUs beside `a` and `b`; those that `a` leaves aren't needed.
    scheduler = Scripted(ClusterState(2), before={"c": (("a", 0, 1),)}, nodes={"c": (0,)})
    assert run(scheduler, [A, B, small], StrictCost(3, 5)).records["c"].delay == 0


def test_strictly_a_job_that_needs_one_of_the_vacated_gpus_waits() -> None:
    scheduler = Scripted(ClusterState(2), before={"c": (("a", 0, 1),)}, nodes={"c": (0,)})
    assert run(scheduler, [A, B, Job("c", 1, 3, 10, 100)], StrictCost(3, 5)).records["c"].delay == 3 * US


def test_strictly_gpus_that_one_job_waits_for_are_not_waited_for_by_another() -> None:
    # c takes the 2 free GPUs and the 4 that a vacates until 13; d comes when e has left 2 that are clear.
    e, c, d = Job("e", 1, 2, 0, 11), Job("c", 1, 6, 10, 100), Job("d", 1, 1, 12, 100)
    scheduler = Scripted(ClusterState(2), before={"c": (("a", 0, 1),)}, nodes={"c": (0,), "d": (0,)})
    ledger = run(scheduler, [A, e, c, d], StrictCost(3, 5))
    assert (ledger.records["c"].delay, ledger.records["d"].delay) == (3 * US, 0)


def test_strictly_a_job_that_comes_while_a_checkpoint_is_taken_waits_for_the_rest_of_it() -> None:
    scheduler = Scripted(ClusterState(2), before={"c": (("a", 0, 1),)}, nodes={"c": (1,), "d": (0,)})
    jobs = [A, B, Job("c", 1, 1, 10, 100), Job("d", 1, 6, 12, 100)]
    assert run(scheduler, jobs, StrictCost(3, 5)).records["d"].delay == 1 * US


def test_strictly_a_moved_job_waits_for_gpus_that_a_slower_one_vacates() -> None:
    slow = Job("a", 1, 8, 0, 100, pause=16.0)
    quick = Job("b", 1, 8, 0, 100)
    # a goes to node 2, b takes its place on node 0, c takes b's.
    scheduler = Scripted(ClusterState(3), before={"c": (("a", 0, 2), ("b", 0, 0))})
    ledger = run(scheduler, [slow, quick, C], StrictCost(3, 5))
    assert ledger.records["a"].delay == 16 * US
    # a's checkpoint takes 3/8 of its 16 s; only then can b be restored.
    assert ledger.records["b"].delay == (6 + 5) * US
    assert ledger.records["c"].delay == 3 * US


def test_strictly_vacated_gpus_are_shared_out_among_those_who_come() -> None:
    # a leaves 4 GPUs of node 0, slowly; c takes 2 of them and b, which moves there, the others. Both wait for them.
    jobs = [Job("a", 1, 4, 0, 100, pause=16), Job("f", 1, 4, 0, 100), Job("b", 1, 2, 0, 100), Job("c", 1, 2, 10, 100)]
    scheduler = Scripted(ClusterState(3), before={"c": (("a", 0, 2), ("b", 0, 0))}, nodes={"c": (0,)})
    ledger = run(scheduler, jobs, StrictCost(3, 5))
    assert (ledger.records["c"].delay, ledger.records["b"].delay) == (6 * US, 11 * US)


def test_strictly_a_restart_takes_no_checkpoint_and_nobody_waits_for_one() -> None:
    scheduler = Scripted(ClusterState(2), before={"c": (("a", 0, 1), ("b", 0, 1))}, restarts="c")
    ledger = run(scheduler, [A, B, C], StrictCost(checkpoint=3, restore=5), checkpoint_period=0.0)
    assert {name: record.delay for name, record in ledger.records.items()} == {"a": 5 * US, "b": 5 * US, "c": 0}


def test_strictly_a_restart_waits_for_gpus_that_another_vacates_by_checkpoint() -> None:
    # d ends: a leaves node 0 by checkpoint, which takes until 13. c comes then, and b restarts where a was.
    jobs = [Job("a", 1, 8, 0, 100), Job("b", 1, 8, 0, 100), Job("d", 1, 8, 0, 10), Job("c", 1, 8, 11, 100)]
    scheduler = Scripted(ClusterState(3), before={"c": (("b", 0, 0),)}, after={"-d": (("a", 0, 2),)}, restarts="c")
    ledger = run(scheduler, jobs, StrictCost(3, 5), checkpoint_period=0.0)
    assert {name: ledger.records[name].delay for name in "abc"} == {"a": 8 * US, "b": (2 + 5) * US, "c": 0}


def test_a_restart_loses_the_work_since_the_last_periodic_checkpoint() -> None:
    jobs = [A, Job("c", 1, 1, 47, 10)]

    def restarted(period: float | None) -> JobRecord:
        scheduler = Scripted(ClusterState(2), after={"c": (("a", 0, 1),)}, restarts="c", nodes={"c": (1,)})
        return run(scheduler, jobs, PaperCost(8), checkpoint_period=period).records["a"]

    assert (restarted(20.0).redone, restarted(20.0).delay) == (7 * US, 8 * US)
    assert restarted(0).redone == 0
    assert restarted(None).redone == 47 * US


def test_periodic_checkpoints_count_work_and_not_the_clock() -> None:
    after = {"c": (("a", 0, 1),), "d": (("a", 0, 0),)}
    scheduler = Scripted(ClusterState(3), after=after, restarts="cd", nodes={"c": (2,), "d": (2,)})
    jobs = [A, Job("c", 1, 1, 10, 1), Job("d", 1, 1, 47, 1)]
    record = run(scheduler, jobs, PaperCost(8), checkpoint_period=20.0).records["a"]
    # At 10 s all of the first 10 s is lost; restarted at 18 s it has worked 29 s at 47 s, 9 of them since 20.
    assert record.redone == (10 + 9) * US


def test_a_migration_by_checkpoint_keeps_the_work_for_a_later_restart() -> None:
    after = {"c": (("a", 0, 1),), "d": (("a", 0, 0),)}
    scheduler = Scripted(ClusterState(3), after=after, restarts="d", nodes={"c": (2,), "d": (2,)})
    jobs = [A, Job("c", 1, 1, 30, 1), Job("d", 1, 1, 50, 1)]
    assert run(scheduler, jobs, PaperCost(0), checkpoint_period=None).records["a"].redone == 20 * US


@pytest.mark.parametrize(
    ("model", "seconds", "message"),
    [
        ("paper", -1, "cost is -1"),
        ("paper", float("nan"), "cost is nan"),
        ("strict", -8, "time is -3"),
        ("x", 8, "'x'"),
    ],
)
def test_a_cost_that_makes_no_sense_is_refused(model: str, seconds: float, message: str) -> None:
    with pytest.raises(CompassError, match=message):
        make_cost(model, seconds)


def test_a_negative_pause_of_a_job_is_refused() -> None:
    with pytest.raises(CompassError, match="job 'a': pause is -1"):
        run(moved_for_c(), [Job("a", 1, 4, 0, 100, pause=-1), B, C], PaperCost(8))
