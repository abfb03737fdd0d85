"""The Kubernetes engine on a real API server: what every engine must do, and what only it can."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from compass_abs.engines.kubernetes import Client, KubernetesEngine, PodSettings
from compass_abs.engines.kubernetes.client import pod_path
from compass_abs.engines.protocol import Engine, NodeHealth
from tests.engines.conformance import EngineConformance, end_all
from tests.engines.gangs import GangConformance, undisturbed
from tests.engines.kubernetes_cluster import KubernetesCluster
from tests.engines.users_pods import pod, sleeping

__all__ = ["undisturbed"]

pytestmark = pytest.mark.engine


class OnKubernetes:
    """Fixtures and hooks."""

    @pytest.fixture
    def engine(self, kubernetes: KubernetesCluster, tmp_path: Path) -> Iterator[Engine]:
        self._root, self._cluster = tmp_path / "engine", kubernetes
        with kubernetes.namespace() as self._namespace:
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

    @contextmanager
    def occupy(self, engine: Engine, node: str, gpus: int) -> Iterator[None]:
        client = self._cluster.client()
        foreign = pod("foreign", sleeping(), gpus, nodeName=node, schedulerName="default-scheduler")
        client.create(pod_path(self._namespace), foreign)
        yield
        client.delete(pod_path(self._namespace, "foreign"), grace=1)
        client.close()


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
