"""The Kubernetes engine on a real API server: what every engine must do, and what only it can."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from compass_abs.engines.kubernetes import Client, KubernetesEngine, PodSettings
from compass_abs.engines.protocol import Engine, NodeHealth
from tests.engines.conformance import EngineConformance
from tests.engines.gangs import GangConformance, undisturbed
from tests.engines.kubernetes_cluster import KubernetesCluster, skip_without_kubernetes

__all__ = ["undisturbed"]

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    skip_without_kubernetes()
    with tempfile.TemporaryDirectory(prefix="ck-") as base:
        cluster = KubernetesCluster(Path(base) / "c", nodes=8)
        yield cluster
        cluster.down()


def end_all(engine: Engine) -> None:
    """Leaves nothing for the next test."""
    for report in engine.observe().runs:
        engine.kill(report.run)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        runs = engine.observe().runs
        for report in runs:
            engine.forget(report.run)
        if not runs:
            break
        time.sleep(0.05)
    engine.close()


class OnKubernetes:
    """Fixtures and hooks."""

    @pytest.fixture
    def engine(self, cluster: KubernetesCluster, tmp_path: Path) -> Iterator[Engine]:
        self._root, self._cluster = tmp_path / "engine", cluster
        with cluster.namespace() as self._namespace:
            self._engines = [self._open()]
            yield self._engines[0]
            end_all(self._engines[-1])

    def _open(self) -> KubernetesEngine:
        settings = PodSettings(namespace=self._namespace, image="test")
        return KubernetesEngine(self._root, Client.connect(kubeconfig=self._cluster.kubeconfig), settings)

    def reopen(self, engine: Engine) -> Engine:
        engine.close()
        self._engines.append(self._open())
        return self._engines[-1]


class TestKubernetesEngine(OnKubernetes, EngineConformance):
    pass


class TestKubernetesGangs(OnKubernetes, GangConformance):
    def serving(self) -> Sequence[str]:
        return ["kubernetes", str(self._root), str(self._cluster.kubeconfig), self._namespace]

    def lose_node(self, engine: Engine, node: str) -> None:
        self._cluster.kill_node(node)
        deadline = time.monotonic() + 60
        while self._health(engine, node) is not NodeHealth.LOST:
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def _health(self, engine: Engine, name: str) -> NodeHealth:
        return next(node.health for node in engine.observe().nodes if node.name == name)
