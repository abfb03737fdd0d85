"""A live run in the simulator's form: nothing that the journal says may be lost or counted twice on the way."""

import json
from pathlib import Path

import pytest

from compass_abs.controller.book import JobPhase
from compass_abs.controller.physical import PhysicalRun, check_plan, save, tables, told
from compass_abs.controller.reconcile import Config
from compass_abs.controller.recorded_run import RecordedRun
from compass_abs.controller.records import MigrationOutcome
from compass_abs.engines.protocol import RunId
from compass_abs.model import CompassError
from compass_abs.reporting.run_directories import comparison_of
from compass_abs.simulation import Existing, Result
from compass_abs.simulation.clock import SECOND
from tests.journeys.world import World

SIZES = [(1, 4), (1, 4), (1, 1), (1, 1), (1, 2), (1, 5), (1, 8), (2, 3), (1, 4), (1, 1), (2, 8), (1, 7), (1, 4)]


def day(scheduler: str = "compass-abs") -> tuple[World, float]:
    """A day with waiting and moves, and when it began."""
    world = World(Config(scheduler=scheduler), steps=15)
    began = world.clock.wall()
    for number, (instances, gpus) in enumerate(SIZES * 2):
        world.engine.steps = 10 + 7 * (number % 5)
        world.submit(instances, gpus)
        world.run(2)
    world.finish()
    return world, began


def play(world: World, began: float) -> RecordedRun:
    run = RecordedRun(list(world.engine.capacity), 8, began, {})
    run.play(world.journal.replay())
    return run


@pytest.mark.parametrize("scheduler", ["compass-abs", "compass-jit", "gfs"])
def test_recorded_run_has_the_metrics_of_what_happened(scheduler: str) -> None:
    world, began = day(scheduler)
    run, entries = play(world, began), list(world.controller.book.jobs.values())
    summary = run.summary
    assert summary is not None
    assert summary.jobs == summary.finished == len(entries)
    took = [(entry.ended or 0.0) - entry.submitted for entry in entries]
    assert summary.ajct == pytest.approx(sum(took) / len(took))
    made = [past for entry in entries for past in entry.past if past.outcome is MigrationOutcome.DONE]
    assert bool(made) == (scheduler != "gfs")
    changed = sum(a != b for past in made for a, b in zip(past.sources, past.targets, strict=True))
    assert (summary.pauses, summary.migrations) == (len(made), changed)
    paused = sum(sum(past.seconds.values()) for past in made)
    assert summary.delay_mean * len(entries) == pytest.approx(paused, abs=1e-4)
    assert summary.peak_seconds > 0
    assert 0 < (summary.agu or 0) <= 1


def test_accounts_of_every_job_add_up() -> None:
    world, began = day()
    run = physical(world, began)
    jobs = run.live.result.jobs
    whole = jobs["queueing_us"] + jobs["service_us"] + jobs["delay_us"] + jobs["redone_us"]
    assert whole.to_list() == jobs["jct_us"].to_list()


def physical(world: World, began: float) -> PhysicalRun:
    return told(list(world.journal.replay()), "compass-abs", began, {})


def test_saved_run_reads_like_a_simulation_and_is_near_its_replay(tmp_path: Path) -> None:
    world, began = day()
    run = physical(world, began)
    save([run], tmp_path)
    assert Result.load(tmp_path / "live" / "compass-abs").summary == run.live.summary
    assert comparison_of([tmp_path / "live"]).jobs == run.live.jobs
    for page in ("live.html", "replayed.html"):
        assert "COMPASS-ABS" in (tmp_path / page).read_text()
    kept = json.loads((tmp_path / "physical.json").read_text())[0]
    assert kept["live"]["ajct"] == run.live.summary.ajct
    assert "Seconds of a migration" in (tmp_path / "physical.md").read_text()
    assert (
        f"{len(run.latencies)} migrations, {run.mean_latency:.2f} s on average" in (tmp_path / "live.html").read_text()
    )
    assert f"AJCT is {run.apart:+.1%} apart" in (tmp_path / "live.html").read_text()
    # The simulator knows no start-up and no waiting for GPUs that are being vacated; the rest is the same.
    assert abs(run.apart) < 0.2
    assert run.replayed.summary.finished == run.live.summary.finished


def test_later_experiment_replaces_an_earlier_one_only_when_it_is_told_to_and_leaves_nothing_of_it(
    tmp_path: Path,
) -> None:
    out = tmp_path / "physical"
    check_plan(["gfs"], out, Existing.REFUSE)
    world, began = day("gfs")
    run, other = physical(*day()), told(list(world.journal.replay()), "gfs", began, {})
    save([run, other], out)
    with pytest.raises(CompassError, match=r"holds something already.*--force"):
        check_plan(["gfs"], out, Existing.REFUSE)
    check_plan(["gfs"], out, Existing.REPLACE)
    save([run], out)
    assert [path.name for way in ("live", "replayed") for path in (out / way).iterdir()] == ["compass-abs"] * 2


@pytest.mark.parametrize(
    ("schedulers", "message"),
    [
        (["compass-abs", "nosuch"], "there is no scheduler 'nosuch'"),
        (["compass-abs", "fft:bogus=1"], "has no parameter 'bogus'"),
        (["gfs", "gfs"], "'gfs' is named twice"),
    ],
)
def test_experiment_that_could_not_be_finished_is_refused_before_it_begins(
    tmp_path: Path, schedulers: list[str], message: str
) -> None:
    with pytest.raises(CompassError, match=message):
        check_plan(schedulers, tmp_path, Existing.REFUSE)


def test_run_without_a_migration_tells_no_seconds_of_one() -> None:
    world, began = day("gfs")
    run = told(list(world.journal.replay()), "gfs", began, {})
    assert tables([run]).splitlines()[-1] == "| gfs | 0 |" + " – |" * 7


def test_lateness_of_a_submission_counts_as_waiting() -> None:
    world = World(Config(scheduler="best-fit"), steps=5)
    began = world.clock.wall()
    world.run(10)
    job = world.submit(1, 8)
    world.finish()
    run = RecordedRun(list(world.engine.capacity), 8, began, {job: 4.0})
    summary = run.play(world.journal.replay())
    entry = world.controller.book.jobs[job]
    assert summary.ajct == pytest.approx((entry.ended or 0.0) - began - 4.0)
    assert summary.queueing_mean >= 6.0


def test_gang_that_lost_its_process_goes_back_to_the_queue_and_counts_once() -> None:
    world = World(Config(scheduler="best-fit"), steps=40)
    began = world.clock.wall()
    job = world.submit(2, 8, retries=1)
    world.run_until(lambda: world.phase(job) is JobPhase.RUNNING)
    world.engine.crash(RunId(job, 0, 1))
    world.finish()
    assert world.phase(job) is JobPhase.DONE
    run = play(world, began)
    assert run.summary is not None
    assert (run.summary.requeues, run.summary.finished) == (1, 1)
    assert run.summary.ajct == pytest.approx(run.done[0].duration + run.summary.queueing_mean)


def test_cancelled_job_leaves_no_trace_in_the_metrics_of_the_others() -> None:
    world = World(Config(scheduler="best-fit"), steps=20)
    began = world.clock.wall()
    kept, ended = world.submit(1, 4), world.submit(1, 4)
    world.run(3)
    world.command("cancel", ended)
    world.finish()
    run = play(world, began)
    assert run.summary is not None
    assert (run.summary.jobs, run.summary.finished) == (2, 1)
    assert [job.id for job in run.done] == [kept]
    assert run.summary.delivered_gpu_seconds == pytest.approx(4 * run.done[0].duration, abs=1 / SECOND)
