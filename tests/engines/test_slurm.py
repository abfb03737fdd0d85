"""The Slurm engine on a real cluster: what every engine must do, and what only it can."""

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from compass_abs.engines.protocol import (
    EndCause,
    Engine,
    EngineUnavailableError,
    NodeHealth,
    RunPhase,
)
from compass_abs.engines.slurm import SlurmEngine
from compass_abs.engines.slurm.commands import SlurmCommands
from compass_abs.engines.slurm.reading import SlurmJob, number, read_jobs
from tests.engines.conformance import EngineConformance, end_all
from tests.engines.gangs import GangConformance, undisturbed
from tests.engines.slurm_cluster import SlurmCluster, skip_without_slurm

__all__ = ["undisturbed"]

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    skip_without_slurm()
    # Sockets have short names: pytest's folders may be too deep.
    with tempfile.TemporaryDirectory(prefix="cs-") as base:
        cluster = SlurmCluster(Path(base) / "c", nodes=8, gpus=8)
        yield cluster
        cluster.down()


class OnSlurm:
    """Fixtures and hooks."""

    @pytest.fixture
    def engine(self, cluster: SlurmCluster, tmp_path: Path) -> Iterator[Engine]:
        self._root, self._cluster = tmp_path / "engine", cluster
        self._engines = [SlurmEngine(self._root, configuration=cluster.conf)]
        yield self._engines[0]
        end_all(self._engines[-1])
        for node in cluster.dead:
            cluster.revive_node(node)

    def reopen(self, engine: Engine) -> Engine:
        engine.close()
        self._engines.append(SlurmEngine(self._root, configuration=self._cluster.conf))
        return self._engines[-1]

    @contextmanager
    def occupy(self, engine: Engine, node: str, gpus: int) -> Iterator[None]:
        wanted = ["-w", node, f"--gres=gpu:{gpus}", "-o", "/dev/null", "--wrap", "sleep 100"]
        foreign = self._cluster.run("sbatch", "--parsable", *wanted).strip()
        yield
        self._cluster.run("scancel", foreign)


class TestSlurmEngine(OnSlurm, EngineConformance):
    def test_gang_is_released_in_one_command(self, engine: Engine, job: str) -> None:
        nodes = self.nodes(engine)[:4]
        orders = self.orders(engine, job, nodes * 2, self.python("import time; time.sleep(60)"))
        for order in orders:
            engine.start(order)
        for order in orders:
            self.until(engine, order.run, lambda report: report.phase is RunPhase.RUNNING)
        began = {number(found.raw["start_time"]) for found in self._jobs(job)}
        assert len(began) == 1, "all of a gang start in the same round of Slurm"

    def _jobs(self, job: str) -> list[SlurmJob]:
        found = read_jobs(json.loads(self._cluster.run("squeue", "--states=all", "--json")))
        return [one for one in found if f":{job}/" in one.comment]

    def test_job_cancelled_by_an_operator_is_not_done_even_if_it_leaves_with_0(self, engine: Engine, job: str) -> None:
        program = (
            "import signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda n, f: sys.exit(0))\n"
            "print('up', flush=True)\n"
            "time.sleep(60)"
        )
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python(program))
        engine.start(order)
        self.until(engine, order.run, lambda report: "up" in self.log(engine, order.run))
        self._cluster.run("scancel", str(self._jobs(job)[0].id))
        end = self.ended(engine, order.run).end
        assert end is not None
        assert end.cause is EndCause.EVICTED
        assert not end.clean

    def test_slurm_that_does_not_answer_is_unavailable_and_jobs_survive_its_restart(
        self, engine: Engine, job: str
    ) -> None:
        nodes = self.nodes(engine)
        (order,) = self.orders(engine, job, nodes[:1], self.cooperative(10_000))
        engine.start(order)
        self.running(engine, order.run, 50)  # a start younger than 2 s is lost with slurmctld
        time.sleep(2)
        self._cluster.kill_daemon("slurmctld")
        with pytest.raises(EngineUnavailableError):
            engine.observe()
        self._cluster.start_daemon("slurmctld")
        deadline = time.monotonic() + 30
        while True:
            try:
                report = self.seen(engine, order.run)
                break
            except EngineUnavailableError:
                assert time.monotonic() < deadline
        assert report is not None
        assert report.phase is RunPhase.RUNNING
        for node in nodes:  # 26.05 takes them for unknown until they report again
            self.until_node(engine, node, lambda report: report.health is NodeHealth.READY)
        engine.kill(order.run)
        self.ended(engine, order.run)

    def test_submission_whose_answer_was_lost_is_found_again_instead_of_repeated(
        self, engine: Engine, job: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python("print('once')"))
        submit = SlurmCommands.submit

        def submit_and_lose_the_answer(self: SlurmCommands, options: list[str], script: str) -> int:
            submit(self, options, script)
            raise EngineUnavailableError("the connection was lost")

        monkeypatch.setattr(SlurmCommands, "submit", submit_and_lose_the_answer)
        with pytest.raises(EngineUnavailableError):
            engine.start(order)
        monkeypatch.setattr(SlurmCommands, "submit", submit)
        engine = self.reopen(engine)
        engine.start(order)
        self.ended(engine, order.run)
        assert self.log(engine, order.run).count("once") == 1
        assert len(self._jobs(job)) == 1

    def test_runs_of_another_controller_are_foreign(
        self, engine: Engine, cluster: SlurmCluster, job: str, tmp_path: Path
    ) -> None:
        other = SlurmEngine(tmp_path / "other", configuration=cluster.conf)
        try:
            node = self.nodes(engine)[0]
            (order,) = self.orders(other, job, [node], self.python("import time; time.sleep(60)"), 2)
            other.start(order)
            self.until(other, order.run, lambda report: report.phase is RunPhase.RUNNING)
            assert self.seen(engine, order.run) is None
            assert node not in self.nodes(engine)
        finally:
            end_all(other)

    def test_program_sees_the_gpus_that_slurm_gave_it(self, engine: Engine, job: str) -> None:
        node = self.nodes(engine)[0]
        program = "import os, time; print('SEES', os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(3)"
        orders = self.orders(engine, job, [node, node], self.python(program), 3)
        for order in orders:
            engine.start(order)
        for order in orders:
            self.until(engine, order.run, lambda report, run=order.run: "SEES" in self.log(engine, run))  # type: ignore[misc]
            report = self.seen(engine, order.run)
            assert report is not None
            assert f"SEES {','.join(map(str, report.gpus))}" in self.log(engine, order.run)
            assert len(report.gpus) == 3


class TestSlurmGangs(OnSlurm, GangConformance):
    def serving(self) -> Sequence[str]:
        return ["slurm", str(self._root), str(self._cluster.conf)]

    def lose_node(self, engine: Engine, node: str) -> None:
        self._cluster.kill_node(node)
        # What a health check or an operator does; without it SlurmdTimeout has to pass.
        self._cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power")
