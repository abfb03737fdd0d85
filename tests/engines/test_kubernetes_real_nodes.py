"""The Kubernetes engine on kubelets, containerd and containers: four nodes, each in namespaces of its own."""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from compass_abs.engines.kubernetes import Client, KubernetesEngine, PodSettings
from compass_abs.engines.kubernetes.client import Object, pod_path
from compass_abs.engines.protocol import Engine, NodeHealth
from tests.engines.conformance import EngineConformance
from tests.engines.gangs import GangConformance, undisturbed
from tests.engines.kubernetes_cluster import RealNodes, healthy, skip_without_real_nodes
from tests.engines.real_pods import pod_spec

__all__ = ["undisturbed"]

pytestmark = [pytest.mark.engine, pytest.mark.nightly]


def traces() -> dict[str, object]:
    """Whatever a cluster of real nodes could leave behind."""
    return {
        "namespaces": sorted(map(str, Path("/run").glob("netns*/**"))),
        "mounts": sorted(line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()),
        "cgroups": sorted(str(path) for path in Path("/sys/fs/cgroup").glob("*/k8s.io*")),
        "folders": [
            Path(path).exists() for path in ("/var/lib/kubelet", "/var/lib/cni", "/var/log/pods", "/run/containerd")
        ],
    }


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealNodes]:
    skip_without_real_nodes()
    before = traces()
    with tempfile.TemporaryDirectory(prefix="cr-") as base:
        cluster = RealNodes(Path(base) / "c", nodes=4)
        yield cluster
        assert "is gone" in cluster.down()
        assert traces() == before, "taken down without a trace"
        assert not any(str(base) in command for command in commands()), "and no process of it runs"


def commands() -> Iterator[str]:
    """Command lines of all processes."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue


class OnRealNodes:
    """Fixtures and hooks."""

    patience: ClassVar[float] = 60.0
    notices_within: ClassVar[float] = 5.0

    @pytest.fixture
    def engine(self, cluster: RealNodes, tmp_path: Path) -> Iterator[Engine]:
        self._root, self._cluster = tmp_path / "engine", cluster
        with cluster.namespace() as self._namespace:
            self._engines = [self._open()]
            yield self._engines[0]
            end_all(self._engines[-1])

    def _open(self) -> KubernetesEngine:
        settings = PodSettings(namespace=self._namespace, template={"spec": pod_spec()})
        return KubernetesEngine(self._root, Client.connect(kubeconfig=self._cluster.kubeconfig), settings)

    def reopen(self, engine: Engine) -> Engine:
        engine.close()
        self._engines.append(self._open())
        return self._engines[-1]


def end_all(engine: Engine) -> None:
    """Leaves nothing for the next test."""
    for report in engine.observe().runs:
        engine.kill(report.run)
    deadline = time.monotonic() + 30
    while (runs := engine.observe().runs) and time.monotonic() < deadline:
        for report in runs:
            engine.forget(report.run)
        time.sleep(0.1)
    engine.close()


class TestEngineOnRealNodes(OnRealNodes, EngineConformance):
    pass


class TestGangsOnRealNodes(OnRealNodes, GangConformance):
    def lose_node(self, engine: Engine, node: str) -> None:
        self._cluster.kill_node(node)
        deadline = time.monotonic() + 60
        while next(each.health for each in engine.observe().nodes if each.name == node) is not NodeHealth.LOST:
            assert time.monotonic() < deadline
            time.sleep(0.2)


# ---- what the pretended nodes pretend


def gang_pod(name: str, gpus: int, command: str) -> Object:
    """A pod of one container that waits to be bound."""
    spec = pod_spec()
    spec["containers"][0] |= {"command": ["/bin/sh", "-c", command], "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    own = {"schedulerName": "somebody", "restartPolicy": "Never", "terminationGracePeriodSeconds": 20}
    return {"metadata": {"name": name}, "spec": {**spec, **own}}


def until(condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)


def test_gang_of_containers_has_its_own_gpus_and_reaches_one_another(cluster: RealNodes) -> None:
    client = cluster.client()
    listen = f"{sys.executable} -m http.server 8000"
    command = f'echo "gpus=$CUDA_VISIBLE_DEVICES"; trap "exit 0" TERM; {listen} & wait'
    placed = {"g0": "n1", "g1": "n1", "g2": "n2", "g3": "n3"}
    with cluster.namespace() as space:
        for name, node in placed.items():
            client.create(pod_path(space), gang_pod(name, 3, command))
            client.bind(space, name, node)
        found = {}
        for name in placed:
            until(lambda name=name: b"gpus=" in log(client, space, name))
            found[name] = client.get(pod_path(space, name))["status"]["podIP"]
        gpus = {name: set(log(client, space, name).decode().split("gpus=")[1].split()[0].split(",")) for name in placed}
        assert [len(each) for each in gpus.values()] == [3, 3, 3, 3]
        assert not gpus["g0"] & gpus["g1"]
        fetch = f"import urllib.request as r; print(r.urlopen('http://{found['g3']}:8000/').status)"
        said = cluster.kubectl("exec", "-n", space, "g0", "--", sys.executable, "-c", fetch)
        assert said.strip() == "200", "pods on different nodes reach one another"
        client.create(pod_path(space), gang_pod("much", 3, "true"))
        client.bind(space, "much", "n1")
        until(lambda: client.get(pod_path(space, "much"))["status"].get("phase") == "Failed")
        assert client.get(pod_path(space, "much"))["status"]["reason"] == "UnexpectedAdmissionError"
        client.delete(pod_path(space, "g0"))
        until(lambda: client.find(pod_path(space, "g0")) is None)
    client.close()


def log(client: Client, space: str, name: str) -> bytes:
    try:
        return client.text(pod_path(space, name) + "/log")
    except Exception:
        return b""  # its container isn't there yet


def test_dead_kubelet_is_noticed_and_the_node_comes_back(cluster: RealNodes) -> None:
    client = cluster.client()
    cluster.kill_node("n4")
    until(lambda: not healthy(client.get("/api/v1/nodes/n4")))
    cluster.revive_node("n4")
    assert healthy(client.get("/api/v1/nodes/n4"))
    client.close()
