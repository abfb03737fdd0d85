"""Whole gangs on the move, and everything that can go wrong on the way."""

import pytest

from compass_abs.controller.book import JobPhase, MigrationPast
from compass_abs.controller.migration import Patience
from compass_abs.controller.reconcile import Conduct, Config
from compass_abs.controller.records import MigrationOutcome
from compass_abs.controller.views import overview, plan_view
from compass_abs.engines.protocol import RunId
from compass_abs.model import NodeStatus
from tests.journeys.world import World

QUICK = Patience(checkpoint=5, stop=2, wait=20, start=5, first_step=10)


def world_with(job_fields: dict[str, object] | None = None, **engine: object) -> tuple[World, str]:
    """A gang of two on n0 and n1 that has to leave n0."""
    config = Config(scheduler="best-fit", patience=QUICK, settling=1.0)
    world = World(config, **{"steps": 60, **engine})
    job = world.submit(2, 6, **(job_fields or {}))
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING)
    world.run(3)
    assert world.nodes(job) == ("n0", "n1")
    return world, job


def past(world: World, job: str) -> list[MigrationPast]:
    return world.controller.book.jobs[job].past


def drain(world: World) -> None:
    world.command("set_node", "n0", NodeStatus.DRAINING)


@pytest.mark.parametrize("rejoin", [True, False])
def test_drained_gang_moves_with_its_progress(rejoin: bool) -> None:
    world, job = world_with(rejoin=rejoin)
    drain(world)
    world.run_until(lambda: bool(past(world, job)))
    done = past(world, job)[0]
    assert done.outcome is MigrationOutcome.DONE
    assert world.nodes(job) == ("n2", "n1")
    assert set(done.seconds) == {"checkpoint", "stop", "wait", "start", "first_step"}
    world.finish()
    assert world.phase(job) is JobPhase.DONE
    steps = world.engine.trained[job]
    assert steps == sorted(set(steps)), "no step was trained twice"


def test_drain_moves_whom_it_can_when_others_are_pinned() -> None:
    world = World(Config(scheduler="best-fit", patience=QUICK), steps=80)
    pinned, movable = world.submit(1, 2, movable=False), world.submit(1, 3)
    world.run_until(lambda: world.phase(movable) is JobPhase.RUNNING and world.phase(pinned) is JobPhase.RUNNING)
    assert world.nodes(pinned) == world.nodes(movable) == ("n0",)
    drain(world)
    world.run_until(lambda: bool(past(world, movable)))
    assert world.nodes(movable) != ("n0",)
    assert world.nodes(pinned) == ("n0",)
    assert past(world, pinned) == []
    world.finish()
    assert world.phase(pinned) is JobPhase.DONE


def test_instance_that_does_not_move_keeps_its_process_where_the_engine_can_rejoin() -> None:
    world, job = world_with()
    drain(world)
    world.run_until(lambda: bool(past(world, job)))
    assert "rejoin job-1/1@2" in world.engine.calls
    assert not [call for call in world.engine.calls if call == "stop job-1/1@1"]


def test_training_that_a_migration_makes_a_job_repeat_is_counted() -> None:
    world, job = world_with()
    world.engine.cannot_save = 7.5
    drain(world)
    world.run_until(lambda: bool(past(world, job)))
    assert past(world, job)[0].outcome is MigrationOutcome.DONE
    assert past(world, job)[0].lost_seconds == 7.5
    world.start_controller()
    assert world.controller.book.jobs[job].lost_seconds == 7.5, "a restarted controller remembers it"


def test_drain_for_which_gangs_must_change_places_is_made() -> None:
    world = World(Config(scheduler="first-fit", patience=QUICK), nodes=3, steps=300)
    jobs = [world.submit(1, gpus) for gpus in (4, 3, 2, 2, 2, 3)]
    world.run_until(lambda: all(world.phase(job) is JobPhase.RUNNING for job in jobs))
    world.run(5)
    assert [world.nodes(job) for job in jobs] == [("n0",), ("n0",), ("n1",), ("n1",), ("n1",), ("n2",)]
    # Only {4, 2, 2} and {3, 2, 3} fill the two others, and neither node has room for what it has to receive.
    world.command("set_node", "n2", NodeStatus.DRAINING)
    world.run(60)
    assert all(world.phase(job) is JobPhase.RUNNING for job in jobs)
    assert all(world.nodes(job) != ("n2",) for job in jobs)
    assert sorted(world.controller.occupancy.free(node) for node in ("n0", "n1", "n2")) == [0, 0, 8]


def test_gang_that_is_still_starting_is_asked_only_once_it_listens() -> None:
    world = World(Config(scheduler="best-fit", patience=QUICK), steps=200)
    world.engine.import_seconds = 9.0
    job = world.submit(2, 6)
    world.run(5)
    assert world.phase(job) is JobPhase.RUNNING, "it counts as running once it is up"
    world.command("set_node", "n0", NodeStatus.DRAINING)
    world.run(4)
    assert not [call for call in world.engine.calls if call.startswith("request")]
    world.run_until(lambda: bool(world.controller.book.jobs[job].past))
    past = world.controller.book.jobs[job].past[0]
    assert past.outcome is MigrationOutcome.DONE
    assert past.seconds["checkpoint"] < 3, "waiting for it to listen is no part of the migration"


def test_gang_that_never_says_anything_is_asked_in_the_end_and_left_where_it_is() -> None:
    world = World(Config(scheduler="best-fit", patience=QUICK, silence=30.0), steps=200)
    world.engine.import_seconds = 1e9
    job = world.submit(1, 6)
    world.run(6)
    world.command("set_node", "n0", NodeStatus.DRAINING)
    world.run(20)
    assert not world.controller.book.jobs[job].past
    world.run(40)
    assert world.phase(job) is JobPhase.RUNNING
    assert {past.outcome for past in world.controller.book.jobs[job].past} == {MigrationOutcome.KEPT}


def test_nothing_is_stopped_before_every_instance_has_acknowledged() -> None:
    world, job = world_with()
    world.engine.save_seconds = 3.0
    drain(world)
    while not any(call.startswith("stop") for call in world.engine.calls):
        assert world.clock.monotonic() < 1100
        world.tick()
    assert all(process.ack for process in world.engine.processes.values())
    world.finish()
    assert world.phase(job) is JobPhase.DONE


@pytest.mark.parametrize("mishap", ["disk_full", "silent_checkpoint"])
def test_failed_checkpoint_leaves_the_job_running_and_says_so(mishap: str) -> None:
    world, job = world_with()
    setattr(world.engine.script, mishap, 1)
    drain(world)
    world.run_until(lambda: bool(past(world, job)))
    kept = past(world, job)[0]
    assert kept.outcome is MigrationOutcome.KEPT
    assert "no space left" in kept.why if mishap == "disk_full" else "longer than" in kept.why
    assert world.controller.book.jobs[job].generation == 1
    step = max(process.step for process in world.engine.processes.values())
    world.run(5)
    assert max(process.step for process in world.engine.processes.values()) > step, "it trains on"
    world.finish()
    assert world.phase(job) is JobPhase.DONE


def test_gang_whose_checkpoints_keep_failing_is_left_where_it_is() -> None:
    world, job = world_with(steps=300)
    world.engine.script.disk_full = 100
    drain(world)
    world.finish()
    assert [item.outcome for item in past(world, job)] == [MigrationOutcome.KEPT] * 3
    assert world.phase(job) is JobPhase.DONE


@pytest.mark.parametrize("mishap", ["die_on_request", "die_after_ack"])
def test_instance_that_dies_around_its_acknowledgement_restarts_the_gang_from_the_last_checkpoint(mishap: str) -> None:
    world, job = world_with()
    setattr(world.engine.script, mishap, 1)
    drain(world)
    world.finish()
    assert world.phase(job) is JobPhase.DONE
    # Dead before: broken. Dead after: it had to go anyway, unless it was to stay.
    assert past(world, job)[0].outcome in (MigrationOutcome.REQUEUED, MigrationOutcome.DONE)
    if mishap == "die_on_request":
        assert past(world, job)[0].outcome is MigrationOutcome.REQUEUED


def test_successor_that_dies_before_its_first_step_is_started_again_from_the_same_checkpoint() -> None:
    world, job = world_with()
    world.engine.script.die_on_start = 1
    drain(world)
    world.finish()
    assert past(world, job)[0].outcome is MigrationOutcome.REQUEUED
    assert world.phase(job) is JobPhase.DONE
    assert world.controller.book.jobs[job].bad == []
    steps = world.engine.trained[job]
    assert steps == sorted(set(steps))


def test_corrupt_checkpoint_is_given_up_and_an_older_one_used() -> None:
    world, job = world_with()
    drain(world)
    world.run_until(lambda: bool(past(world, job)))
    world.run(3)
    entry = world.controller.book.jobs[job]
    first = entry.checkpoints[-1].path
    world.command("set_node", "n1", NodeStatus.DRAINING)
    world.run_until(lambda: len(entry.checkpoints) > 1)
    world.engine.script.corrupt.add(entry.checkpoints[-1].path)
    world.finish()
    entry = world.controller.book.jobs[job]
    assert entry.phase is JobPhase.DONE
    assert entry.bad == sorted(world.engine.script.corrupt)
    assert entry.resume_from == first
    assert entry.lost_steps > 0, "what the damage cost is counted"


def test_target_lost_before_anything_was_stopped_calls_the_migration_off() -> None:
    world, job = world_with()
    world.engine.save_seconds = 3.0
    drain(world)
    world.run(1)
    world.engine.lose("n2")
    world.run_until(lambda: bool(past(world, job)))
    assert past(world, job)[0].outcome is MigrationOutcome.KEPT
    world.run_until(lambda: len(past(world, job)) > 1)
    assert past(world, job)[1].outcome is MigrationOutcome.DONE
    assert "n3" in world.nodes(job)
    world.finish()


@pytest.mark.parametrize("seconds", [1.0, 1.5, 2.0, 2.5, 3.0])
@pytest.mark.parametrize("node", ["n0", "n1", "n2"])
def test_node_that_vanishes_mid_migration_costs_no_job(seconds: float, node: str) -> None:
    world, job = world_with()
    world.engine.start_seconds = world.engine.stop_seconds = 1.0
    drain(world)
    world.run(seconds)
    world.engine.lose(node)
    world.run(20)
    world.engine.bring_back(node)
    world.finish()
    assert world.phase(job) is JobPhase.DONE


def test_mover_that_will_not_stop_is_killed_and_the_migration_goes_on() -> None:
    world, job = world_with({"checkpoint": {"grace": 1}}, rejoin=False)
    world.engine.script.stubborn = 2
    drain(world)
    world.finish()
    assert past(world, job)[0].outcome is MigrationOutcome.DONE
    assert world.phase(job) is JobPhase.DONE


@pytest.mark.parametrize("mode", ["signal", "periodic"])
def test_job_that_cannot_be_asked_is_stopped_and_started_elsewhere(mode: str) -> None:
    world, job = world_with({"checkpoint": {"mode": mode}})
    drain(world)
    world.run_until(lambda: bool(past(world, job)))
    assert past(world, job)[0].outcome is MigrationOutcome.DONE
    world.finish()
    assert world.phase(job) is JobPhase.DONE


def test_cancel_during_every_phase_of_a_migration_ends_the_job() -> None:
    for seconds in (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0):
        world, job = world_with()
        drain(world)
        world.run(seconds)
        world.command("cancel", job)
        world.run_until(lambda: world.phase(job) is JobPhase.CANCELLED)  # noqa: B023
        world.run(5)
        assert not world.runs(job)
        assert all(world.controller.occupancy.free(f"n{i}") == 8 for i in range(4))


def test_paused_migrations_are_called_off_and_made_later() -> None:
    world, job = world_with()
    world.engine.save_seconds = 3.0
    drain(world)
    world.run(1)
    world.command("pause_migrations")
    world.run_until(lambda: bool(past(world, job)))
    assert past(world, job)[0].outcome is MigrationOutcome.KEPT
    world.run(10)
    assert world.nodes(job) == ("n0", "n1")
    world.command("resume_migrations")
    world.run_until(lambda: len(past(world, job)) > 1)
    assert past(world, job)[1].outcome is MigrationOutcome.DONE
    world.finish()


def test_recommend_shows_every_move_and_makes_none() -> None:
    config = Config(scheduler="best-fit", conduct=Conduct.RECOMMEND, patience=QUICK)
    world = World(config)
    job = world.submit(2, 6)
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING)
    drain(world)
    world.run(5)
    proposals = world.controller.pools[""].proposals
    assert [proposal.trigger for proposal in proposals] == ["drain n0"]
    assert {move.instance.job_id for move in proposals[0].moves} == {job}
    assert past(world, job) == []
    world.finish()
    assert world.nodes(job) == ()


def test_recommendation_is_shown_only_as_long_as_it_makes_sense() -> None:
    """Of a drain that is taken back, and of a gang that is gone."""
    world = World(Config(scheduler="best-fit", conduct=Conduct.RECOMMEND, patience=QUICK))
    job = world.submit(2, 6)
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING)
    drain(world)
    world.run(2)
    for picture in (plan_view(world.controller), overview(world.controller)):
        assert [proposal["why"] for proposal in picture["proposals"]] == ["drain n0"]
    world.command("set_node", "n0", NodeStatus.UP)
    world.run(1)
    assert plan_view(world.controller)["proposals"] == []
    drain(world)
    world.run(2)
    assert len(plan_view(world.controller)["proposals"]) == 1
    world.command("cancel", job)
    world.run(5)
    assert plan_view(world.controller)["proposals"] == overview(world.controller)["proposals"] == []


def test_recommendation_to_tidy_up_after_a_start_is_shown_although_the_job_runs() -> None:
    world = World(Config(scheduler="compass-abs", conduct=Conduct.RECOMMEND), steps=1000)
    for gpus in (1, 2, 4, 1, 2, 4, 8, 1, 3):
        job = world.submit(1, gpus)
        world.run(2)
        shown = [each for each in plan_view(world.controller)["proposals"] if each["why"] == f"beginning of {job}"]
        if shown:
            assert world.phase(job) is JobPhase.RUNNING
            assert all(world.nodes(move["job"])[move["instance"]] == move["from"] for move in shown[0]["moves"])
            return
    raise AssertionError("nothing was proposed")


def test_failed_gang_after_migration_ends_like_any_other() -> None:
    world, job = world_with()
    drain(world)
    world.run_until(lambda: bool(past(world, job)))
    world.engine.crash(RunId(job, 0, 2))
    world.run(3)
    assert world.phase(job) is JobPhase.FAILED


@pytest.mark.parametrize("scheduler", ["compass-abs", "compass-jit", "compass-abs-residual"])
def test_schedulers_that_migrate_finish_a_day_with_real_moves(scheduler: str) -> None:
    world = World(Config(scheduler=scheduler, patience=QUICK), steps=15)
    sizes = [(1, 4), (1, 4), (1, 1), (1, 1), (1, 2), (1, 5), (1, 8), (2, 3), (1, 4), (1, 1), (2, 8), (1, 7), (1, 4)]
    jobs = []
    for number, (instances, gpus) in enumerate(sizes * 2):
        world.engine.steps = 10 + 7 * (number % 5)
        jobs.append(world.submit(instances, gpus))
        world.run(2)
    world.finish()
    assert all(world.phase(job) is JobPhase.DONE for job in jobs)
    assert any(item.outcome is MigrationOutcome.DONE for job in jobs for item in past(world, job))
