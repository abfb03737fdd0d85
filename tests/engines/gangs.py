"""Whole stories that every engine must tell alike: a real controller, a real two-node DDP job, moves and crashes.

Subclass `GangConformance` beside `EngineConformance`. `serving` is a command that runs a controller on the same
engine in a process of its own (`tests.engines.serving`), so that it can be killed.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from compass_abs.controller.book import JobEntry, JobPhase
from compass_abs.controller.job_spec import JobSpec
from compass_abs.controller.journal import SqliteJournal
from compass_abs.controller.reconcile import Config
from compass_abs.controller.records import MigrationEnded, MigrationOutcome, StepBegun
from compass_abs.controller.service import Service
from compass_abs.engines.protocol import Engine, NodeHealth, RunPhase
from compass_abs.model import NodeStatus

STEPS = 60


def training(folder: Path, steps: int = STEPS, pace: float = 0.05) -> list[str]:
    """The command of a tiny DDP job that writes every loss down."""
    options = ["--steps", str(steps), "--pace", str(pace), "--log", str(folder / "losses")]
    return [sys.executable, "-m", "compass_abs.training.workloads", "vit", *options]


def losses(folder: Path, rank: int) -> dict[int, str]:
    """Every loss of a rank, by step; a step that was repeated has the loss of its last time."""
    path = folder / ("losses" if rank == 0 else f"losses.rank{rank}")
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return {int(step): loss for step, loss in lines}


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[int, str]]:
    """The losses of both ranks when nobody disturbs them."""
    folder = tmp_path_factory.mktemp("undisturbed")
    environment = dict(os.environ, WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT="31999", OMP_NUM_THREADS="1")
    environment["COMPASS_CHECKPOINT_DIR"] = str(folder / "checkpoints")
    ranks = [
        subprocess.Popen(training(folder, pace=0.0), env=dict(environment, RANK=str(rank), LOCAL_RANK="0"))
        for rank in range(2)
    ]
    assert [rank.wait(120) for rank in ranks] == [0, 0]
    found = [losses(folder, rank) for rank in range(2)]
    assert [len(rank) for rank in found] == [STEPS, STEPS]
    return found


class Story:
    """A controller on an engine, and one job."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.folder, self.engine = folder, engine
        (folder / "losses.d").mkdir(exist_ok=True)
        self.service = Service(SqliteJournal(folder / "journal.sqlite"), engine, Config(scheduler="best-fit"))
        self.service.start()
        self.service.wait_until_ready(30.0)

    def close(self) -> None:
        self.service.close()

    def entry(self, job_id: str) -> JobEntry:
        return self.service.ask(lambda c: c.entry(job_id))

    def until(self, job_id: str, what: Callable[[JobEntry], object], seconds: float = 90.0) -> JobEntry:
        deadline = time.monotonic() + seconds
        while not what(entry := self.entry(job_id)):
            assert time.monotonic() < deadline, f"{job_id} is {entry.phase} on {entry.nodes} after {seconds} s"
            assert not entry.over or what(entry), f"{job_id} is {entry.phase}: {self.logs(job_id)}"
            time.sleep(0.05)
        return entry

    def logs(self, job_id: str) -> str:
        runs = [report.run for report in self.engine.observe().runs if report.run.job_id == job_id]
        return "\n".join(f"{run}: {self.engine.read_log(run, -2000, 2000).decode()}" for run in runs)

    def submit_pair(self, gpus: int, folder: Path) -> str:
        """Two instances of whole nodes: each on its own."""
        spec = JobSpec(name="pair", instances=2, gpus_per_instance=gpus, command=training(folder))  # type: ignore[arg-type]
        return self.service.ask(lambda c: c.submit(spec))

    def steps_done(self, folder: Path) -> int:
        return len(losses(folder, 0))

    def migrations(self) -> list[MigrationEnded]:
        return [event.record for event in self.service.events if isinstance(event.record, MigrationEnded)]


class GangConformance:
    """See the module's docstring."""

    #: Seconds that a cold start of the two-node job may take here.
    slow_start: ClassVar[float] = 90.0

    def serving(self) -> Sequence[str]:
        """Arguments of `tests.engines.serving` that open the engine of this test."""
        pytest.skip("this engine can't be served by another process")

    def reopen(self, engine: Engine) -> Engine:
        raise NotImplementedError

    def _ready(self, engine: Engine) -> list[tuple[str, int]]:
        return [(node.name, node.gpus) for node in engine.observe().nodes if node.health is NodeHealth.READY]

    def test_ddp_gang_moved_by_a_drain_repeats_every_loss(
        self, engine: Engine, tmp_path: Path, undisturbed: list[dict[int, str]]
    ) -> None:
        story = Story(tmp_path, engine)
        try:
            job = story.submit_pair(self._ready(engine)[0][1], tmp_path)
            story.until(job, lambda entry: story.steps_done(tmp_path) >= 5)
            old = story.entry(job).nodes
            assert len(set(old)) == 2
            story.service.ask(lambda c: c.set_node(old[1], NodeStatus.DRAINING))
            story.until(job, lambda entry: story.migrations())
            assert [migration.outcome for migration in story.migrations()] == [MigrationOutcome.DONE]
            new = story.entry(job).nodes
            assert (new[0], new[1] != old[1]) == (old[0], True)
            story.until(job, lambda entry: entry.over)
            assert story.entry(job).phase is JobPhase.DONE, story.logs(job)
        finally:
            story.close()
        assert [losses(tmp_path, rank) for rank in range(2)] == undisturbed

    @pytest.mark.slow
    @pytest.mark.parametrize("phase", ["stop", "first_step"])
    def test_controller_killed_in_the_middle_of_a_move_loses_nothing(
        self, engine: Engine, tmp_path: Path, undisturbed: list[dict[int, str]], phase: str
    ) -> None:
        gpus = self._ready(engine)[0][1]
        arguments = list(self.serving())
        engine.close()
        program = [sys.executable, "-m", "tests.engines.serving", *arguments, str(tmp_path), str(gpus), phase]
        done = subprocess.run(program, capture_output=True, text=True, timeout=150, check=False)
        assert done.returncode == -signal.SIGKILL, done.stdout + done.stderr
        engine = self.reopen(engine)
        story = Story(tmp_path, engine)
        try:
            (job,) = story.service.ask(lambda c: list(c.book.jobs))
            story.until(job, lambda entry: entry.over, 150.0)
            assert story.entry(job).phase is JobPhase.DONE, story.logs(job)
        finally:
            story.close()
        assert [losses(tmp_path, rank) for rank in range(2)] == undisturbed
        generations = {report.run.generation for report in engine.observe().runs if report.phase is not RunPhase.ENDED}
        assert not generations, "something of the job still runs"

    def lose_node(self, engine: Engine, node: str) -> None:
        """A node fails: everything on it is gone, and the engine gets to know it in time."""
        pytest.skip("this engine's nodes can't be made to fail in a test")

    @pytest.mark.slow
    def test_gang_on_a_node_that_dies_goes_on_elsewhere(
        self, engine: Engine, tmp_path: Path, undisturbed: list[dict[int, str]]
    ) -> None:
        story = Story(tmp_path, engine)
        try:
            job = story.submit_pair(self._ready(engine)[0][1], tmp_path)
            story.until(job, lambda entry: story.steps_done(tmp_path) >= 5)
            old = story.entry(job).nodes
            self.lose_node(engine, old[1])
            story.until(job, lambda entry: entry.over, 150.0)
            entry = story.entry(job)
            assert entry.phase is JobPhase.DONE, story.logs(job)
            assert old[1] not in entry.nodes
        finally:
            story.close()
        assert [losses(tmp_path, rank) for rank in range(2)] == undisturbed


def phase_of(record: object) -> str:
    """The phase of a migration that a record begins; empty for other records."""
    return str(record.phase) if isinstance(record, StepBegun) else ""
