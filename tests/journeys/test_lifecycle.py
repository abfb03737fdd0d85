"""Jobs from submission to end, without and with mishaps."""

import pytest

from compass_abs.controller.book import JobPhase
from compass_abs.controller.reconcile import Config
from compass_abs.controller.views import why_waiting
from compass_abs.engines.protocol import RunId
from compass_abs.model import NodeStatus
from tests.journeys.world import World


def test_job_submitted_runs_to_its_end() -> None:
    world = World()
    job = world.submit(2, 4)
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING)
    assert len(world.runs(job)) == 2
    world.finish()
    assert world.phase(job) is JobPhase.DONE
    world.run(2)
    assert not world.engine.processes, "ended runs are forgotten"


def test_jobs_beyond_capacity_wait_with_a_reason_and_run_later() -> None:
    world = World(nodes=1)
    first, second = world.submit(1, 8), world.submit(1, 4)
    world.run(3)
    assert (world.phase(first), world.phase(second)) == (JobPhase.RUNNING, JobPhase.QUEUED)
    assert world.controller.pools[""].reasons[second].verdict == "capacity"
    world.finish()
    assert world.phase(second) is JobPhase.DONE


@pytest.mark.parametrize("queue", ["fifo", "sjf", "backfill"])
def test_job_that_all_nodes_together_could_not_hold_keeps_nobody_waiting(queue: str) -> None:
    world = World(Config(scheduler="best-fit", queue=queue), nodes=2, steps=20)
    huge, other = world.submit(3, 8), world.submit(1, 8)
    world.run_until(lambda: world.phase(other) is JobPhase.RUNNING)
    why = why_waiting(world.controller, world.controller.book.jobs[huge])
    assert why.startswith("capacity: 24 GPUs wanted; the 2 nodes could hold 2 of its 3 instances")
    # As after a crash, and while a node that would come back is away.
    world.start_controller()
    world.engine.lose("n1")
    world.run(2)
    third = world.submit(1, 8)
    world.engine.bring_back("n1")
    world.run_until(lambda: world.phase(third) is JobPhase.RUNNING)
    assert world.phase(huge) is JobPhase.QUEUED
    behind = world.submit(1, 8)
    world.engine.capacity["n2"] = 8
    world.engine.report()
    world.run(1)
    assert (world.phase(huge), world.phase(behind)) == (JobPhase.QUEUED, JobPhase.QUEUED) or queue != "fifo"
    world.finish()
    assert world.phase(huge) is world.phase(behind) is JobPhase.DONE


def test_job_that_is_too_large_for_all_nodes_can_be_cancelled() -> None:
    world = World(nodes=1)
    huge = world.submit(2, 8)
    world.run(1)
    world.command("cancel", huge)
    world.run(1)
    assert world.phase(huge) is JobPhase.CANCELLED
    assert not world.controller.pools[""].oversize


def test_refused_start_is_undone_and_decided_again() -> None:
    world = World()
    world.engine.script.refuse_start = 2
    job = world.submit(2, 8)
    world.run(1)
    assert any(kind == "unplaced" for kind, _, _ in world.journal.rows)
    world.finish()
    assert world.phase(job) is JobPhase.DONE


@pytest.mark.parametrize("seconds", [-7200.0, -1.0, 86400.0])
def test_clock_that_jumps_keeps_no_refused_job_waiting(seconds: float) -> None:
    world = World()
    world.engine.script.refuse_start = 1
    job = world.submit(1, 8)
    (pool,) = world.controller.pools.values()
    world.run_until(lambda: pool.hold_ends is not None)
    world.clock.jump(seconds)
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING, 30)


def test_refusal_of_the_second_instance_takes_the_first_one_down() -> None:
    world = World()
    world.engine.lost.add("n1")  # the engine knows, the controller doesn't yet
    job = world.submit(2, 8)
    assert len(world.runs(job)) == 1
    world.finish()
    assert world.phase(job) is JobPhase.DONE


def test_unavailable_engine_is_asked_again_and_starts_nothing_twice() -> None:
    world = World()
    world.engine.script.unavailable = 3
    world.engine.script.answer_lost = 2
    job = world.submit(3, 2)
    world.finish()
    assert world.phase(job) is JobPhase.DONE
    assert world.controller.book.jobs[job].generation == 1


def test_failing_job_is_retried_as_often_as_it_asked_and_fails_then() -> None:
    world = World()
    job = world.submit(2, 1, retries=2)
    for generation in (1, 2, 3):
        world.run_until(lambda: len(world.runs(job)) == 2 and world.phase(job) is JobPhase.RUNNING)
        assert world.controller.book.jobs[job].generation == generation
        world.engine.crash(RunId(job, 1, generation), 3)
        world.run(3)
    assert world.phase(job) is JobPhase.FAILED
    assert "exited 3" in world.controller.book.jobs[job].why
    assert not world.runs(job), "the rest of the gang is ended"


def test_lost_node_requeues_its_gangs_without_using_up_retries() -> None:
    world = World(nodes=2)
    job, bystander = world.submit(1, 8), world.submit(1, 8)
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING and world.phase(bystander) is JobPhase.RUNNING)
    world.engine.lose(world.nodes(job)[0])
    world.run(5)
    assert world.phase(job) is JobPhase.QUEUED
    assert world.controller.book.jobs[job].retries == 0
    world.engine.bring_back("n0")
    world.finish()
    assert {world.phase(job), world.phase(bystander)} == {JobPhase.DONE}


def test_gang_that_fails_before_its_lost_node_is_known_starts_again_without_using_up_retries() -> None:
    world = World()
    job = world.submit(2, 8)
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING)
    # The other instance's node has died, which nobody knows yet; this one has lost its peer.
    world.engine.script.stubborn = 1
    world.engine.crash(RunId(job, 0, 1), 1)
    world.run(1)
    assert world.phase(job) is JobPhase.CLEARING
    world.engine.lose(world.nodes(job)[1])
    world.finish()
    assert world.phase(job) is JobPhase.DONE
    assert world.controller.book.jobs[job].retries == 0
    assert world.controller.book.jobs[job].restarts == 1


def test_node_that_was_only_cut_off_has_its_old_runs_ended_when_it_is_back() -> None:
    world = World(nodes=2)
    job = world.submit(1, 4)
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING)
    old = world.nodes(job)[0]
    world.engine.lose(old)
    world.tick()
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING)
    assert world.nodes(job)[0] != old
    # Only the controller's knowledge counts from here: the engine shows both copies for a moment.
    stray = RunId(job, 0, 1)
    world.engine.processes[stray].cut_off = False
    world.engine.lost.discard(old)
    world.engine.report()
    world._tell()
    world._tell()
    assert not world.engine.processes[stray].alive
    world.finish()
    assert world.phase(job) is JobPhase.DONE


def test_cancel_in_every_phase_ends_the_job_and_frees_its_gpus() -> None:
    for seconds in (0.0, 0.25, 0.5, 1.0, 3.0, 6.0):
        world = World(nodes=1)
        job, waiting = world.submit(1, 8), world.submit(1, 8)
        world.run(seconds)
        world.command("cancel", waiting)
        world.command("cancel", job)
        world.run_until(lambda: world.phase(job) is JobPhase.CANCELLED, 60)  # noqa: B023
        assert world.phase(waiting) is JobPhase.CANCELLED
        world.run(20)
        assert not world.runs(job)
        assert world.controller.occupancy.free("n0") == 8


def test_stubborn_process_is_killed_after_its_grace() -> None:
    world = World()
    job = world.submit(1, 1, checkpoint={"grace": 4})
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING)
    world.engine.script.stubborn = 1
    world.command("cancel", job)
    world.run(2)
    assert world.phase(job) is JobPhase.CLEARING
    world.run(5)
    assert world.phase(job) is JobPhase.CANCELLED


def test_max_duration_ends_a_job_by_the_steady_clock() -> None:
    world = World(steps=1000)
    job = world.submit(1, 1, max_duration=30)
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING)
    world.clock.jump(-3600)
    world.run(10)
    world.clock.jump(+7200)
    world.run(10)
    assert world.phase(job) is JobPhase.RUNNING
    world.run(20)
    assert world.phase(job) is JobPhase.FAILED
    assert "max_duration" in world.controller.book.jobs[job].why


def test_program_that_reports_nothing_counts_as_running_once_it_is_up() -> None:
    world = World()
    job = world.submit(1, 1, checkpoint={"mode": "periodic"})
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING, 10)
    world.finish()
    assert world.phase(job) is JobPhase.DONE


def test_cordoned_node_gets_nothing_new_and_keeps_what_it_runs() -> None:
    world = World(nodes=2)
    job = world.submit(1, 2)
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING)
    world.command("set_node", "n0", NodeStatus.CORDONED)
    other = world.submit(1, 2)
    world.run_until(lambda: world.phase(other) is JobPhase.RUNNING)
    assert (world.nodes(job), world.nodes(other)) == (("n0",), ("n1",))
    world.finish()


def test_restarted_controller_adopts_what_runs() -> None:
    world = World()
    jobs = [world.submit(2, 4) for _ in range(6)]
    world.run(5)
    before = {job: (world.phase(job), world.nodes(job)) for job in jobs}
    world.start_controller()
    world.tick()
    world.tick()
    assert {job: (world.phase(job), world.nodes(job)) for job in jobs} == before
    world.finish()
    assert all(world.phase(job) is JobPhase.DONE for job in jobs)
    assert all(world.controller.book.jobs[job].generation == 1 for job in jobs)
