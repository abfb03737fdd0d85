"""The Ray engine on a real cluster: what every engine must do, and what only it can."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from compass_abs.engines.protocol import (
    Engine,
    EngineRefusalError,
    EngineUnavailableError,
    NodeHealth,
    RunPhase,
)
from compass_abs.engines.ray import RayEngine
from compass_abs.engines.ray.engine import RayRun
from compass_abs.engines.ray.nodes import RayNode
from tests.engines.conformance import EngineConformance, end_all
from tests.engines.gangs import GangConformance, undisturbed
from tests.engines.ray_cluster import RayCluster, ray_cluster

__all__ = ["undisturbed"]

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster(nodes=3, gpus=8) as found:
        yield found


class OnRay:
    """Fixtures and hooks."""

    @pytest.fixture
    def engine(self, cluster: RayCluster, tmp_path: Path) -> Iterator[Engine]:
        self._root, self._cluster = tmp_path / "engine", cluster
        self._engines = [RayEngine(self._root, cluster.address)]
        yield self._engines[0]
        end_all(self._engines[-1])
        for node in list(cluster.dead):
            cluster.revive_node(node)

    def reopen(self, engine: Engine) -> Engine:
        engine.close()
        self._engines.append(RayEngine(self._root, self._cluster.address))
        return self._engines[-1]

    @contextmanager
    def occupy(self, engine: Engine, node: str, gpus: int) -> Iterator[None]:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ids = {each["Labels"].get("name"): each["NodeID"] for each in ray.nodes() if each["Alive"]}

        @ray.remote(num_gpus=gpus, num_cpus=0)
        class Stranger:
            def ready(self) -> bool:
                return True

        stranger: Any = Stranger.options(scheduling_strategy=NodeAffinitySchedulingStrategy(ids[node], soft=False))
        actor = stranger.remote()
        ray.get(actor.ready.remote(), timeout=30)
        yield
        ray.kill(actor)


class TestRayEngine(OnRay, EngineConformance):
    def test_actor_whose_answer_was_lost_is_found_again_instead_of_made_twice(
        self, engine: RayEngine, job: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (order,) = self.orders(engine, job, self.nodes(engine)[:1], self.python("print('once')"))
        make = RayEngine._make_actor

        def make_and_lose_the_answer(self: RayEngine, run: RayRun, node: RayNode) -> None:
            make(self, run, node)
            run.actor_name = ""
            raise EngineUnavailableError("the connection was lost")

        monkeypatch.setattr(RayEngine, "_make_actor", make_and_lose_the_answer)
        with pytest.raises(EngineUnavailableError):
            engine.start(order)
        monkeypatch.setattr(RayEngine, "_make_actor", make)
        found = self.reopen(engine)
        found.start(order)
        self.ended(found, order.run)
        assert self.log(found, order.run).count("once") == 1

    def test_node_that_dies_is_noticed_and_its_runs_end_as_lost(self, engine: Engine, job: str) -> None:
        first, second = self.nodes(engine)[:2]
        orders = self.orders(engine, job, [first, second], self.python("import time; time.sleep(60)"))
        for order in orders:
            engine.start(order)
        for order in orders:
            self.until(engine, order.run, lambda report: report.phase is RunPhase.RUNNING)
        self._cluster.kill_node(first)
        end = self.ended(engine, orders[0].run).end
        assert end is not None
        assert not end.clean
        self.until_node(engine, first, lambda report: report.health is NodeHealth.LOST)
        survivor = self.seen(engine, orders[1].run)
        assert survivor is not None
        assert survivor.phase is RunPhase.RUNNING
        (other,) = self.orders(engine, job, [first], self.python("pass"), generation=2)
        with pytest.raises(EngineRefusalError, match="lost"):
            engine.start(other)

    def test_program_sees_the_gpus_that_ray_gave_it(self, engine: Engine, job: str) -> None:
        program = "import os, time; print('SEES', os.environ['CUDA_VISIBLE_DEVICES'], flush=True); time.sleep(3)"
        orders = self.orders(engine, job, [self.nodes(engine)[0]] * 2, self.python(program), 3)
        for order in orders:
            engine.start(order)
        for order in orders:
            self.until(engine, order.run, lambda report, run=order.run: "SEES" in self.log(engine, run))  # type: ignore[misc]
            report = self.seen(engine, order.run)
            assert report is not None
            assert f"SEES {','.join(map(str, report.gpus))}" in self.log(engine, order.run)
            assert len(report.gpus) == 3


def test_controller_serves_a_ray_cluster(cluster: RayCluster, tmp_path: Path) -> None:
    """`compass serve --engine ray`, as users start it."""
    compass = [sys.executable, "-m", "compass_abs"]
    environment = dict(os.environ, COMPASS_URL="http://127.0.0.1:17079")
    command = [*compass, "serve", "--engine", "ray", "--ray-address", cluster.address, "--port", "17079"]
    (tmp_path / "job.yaml").write_text(
        "name: hello\ninstances: 2\ngpus_per_instance: 4\ncommand: [sh, -c, 'echo rank $RANK on $COMPASS_NODE']\n"
    )
    with subprocess.Popen([*command, "--state", str(tmp_path / "state")], env=environment, cwd=tmp_path) as server:
        try:

            def say(*words: str) -> str:
                done = subprocess.run([*compass, *words], env=environment, cwd=tmp_path, capture_output=True, text=True)
                return done.stdout

            deadline = time.monotonic() + 60
            while "hello-1" not in say("submit", "job.yaml"):
                assert time.monotonic() < deadline
                time.sleep(0.5)
            while "done" not in say("ps", "--all"):
                assert time.monotonic() < deadline
                time.sleep(0.5)
            assert "rank 1 on n" in say("logs", "hello-1", "-i", "1")
        finally:
            server.terminate()
            server.wait(30)


class TestRayGangs(OnRay, GangConformance):
    def serving(self) -> Sequence[str]:
        return ["ray", str(self._root), self._cluster.address]

    def lose_node(self, engine: Engine, node: str) -> None:
        self._cluster.kill_node(node)
