"""The Kubernetes test cluster itself: what its pretended nodes do must be what kubelets do."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compass_abs.engines.kubernetes.client import ApiError, Client, Object, pod_path
from tests.engines.kubernetes_cluster import KubernetesCluster, healthy

pytestmark = pytest.mark.engine

PATIENCE = 60.0
UNTIL_KILLED = "echo up; while :; do sleep 0.05; done"


@pytest.fixture
def server(kubernetes: KubernetesCluster) -> Iterator[Client]:
    client = kubernetes.client()
    yield client
    client.close()


@pytest.fixture
def space(kubernetes: KubernetesCluster) -> Iterator[str]:
    with kubernetes.namespace() as name:
        yield name


def until(condition: Callable[[], object]) -> object:
    """What the condition is when it holds."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.03)
    return found


def pod(name: str, command: str = UNTIL_KILLED, gpus: int = 1, grace: int = 20, **spec: object) -> Object:
    """A pod of one container that waits to be bound."""
    container = {
        "name": "main",
        "image": "host",
        "command": ["sh", "-c", command],
        "env": [
            {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
            {"name": "JOB", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['job']"}}},
            {"name": "WHO", "value": "$(JOB) on $(NODE), $(NOBODY)"},
        ],
        "resources": {"limits": {"nvidia.com/gpu": gpus}},
    }
    own = {"schedulerName": "somebody", "restartPolicy": "Never", "terminationGracePeriodSeconds": grace}
    return {
        "metadata": {"name": name, "labels": {"job": "gang"}},
        "spec": {**own, "containers": [container], **spec},
    }


def phase(server: Client, space: str, name: str) -> str:
    return str(server.get(pod_path(space, name))["status"].get("phase"))


def exit_code(server: Client, space: str, name: str) -> int | None:
    status = server.get(pod_path(space, name))["status"]
    ended = (status.get("containerStatuses") or [{}])[0].get("state", {}).get("terminated")
    return ended["exitCode"] if ended else None


def running(server: Client, space: str, node: str, manifest: Object) -> Object:
    """Made, bound by hand, and running."""
    name = manifest["metadata"]["name"]
    server.create(pod_path(space), manifest)
    server.bind(space, name, node)
    until(lambda: phase(server, space, name) == "Running")
    return server.get(pod_path(space, name))


def log(server: Client, space: str, name: str) -> str:
    return server.text(pod_path(space, name) + "/log").decode()


def process(found: Object) -> Path:
    """The process of a pod of one container."""
    return Path("/proc") / found["status"]["containerStatuses"][0]["containerID"].removeprefix("process://")


def test_pod_without_binding_waits(server: Client, space: str) -> None:
    server.create(pod_path(space), pod("alone"))
    time.sleep(0.5)
    assert phase(server, space, "alone") == "Pending"


def test_gang_bound_by_hand_runs_with_its_own_gpus_and_names(server: Client, space: str) -> None:
    placed = {"g0": "n1", "g1": "n1", "g2": "n2"}
    for name, node in placed.items():
        command = 'echo "$HOSTNAME: $WHO: $CUDA_VISIBLE_DEVICES"; sleep 1; exit 3'
        running(server, space, node, pod(name, command, gpus=3))
    for name, node in placed.items():
        until(lambda name=name: phase(server, space, name) == "Failed")
        assert exit_code(server, space, name) == 3
        assert log(server, space, name).startswith(f"{name}: gang on {node}, $(NOBODY): ")
    seen = [set(log(server, space, name).split()[-1].split(",")) for name in placed]
    assert [len(gpus) for gpus in seen] == [3, 3, 3]
    assert not seen[0] & seen[1], "two pods on a node never get the same GPU"


def test_deleted_pod_gets_term_and_may_finish_before_its_object_goes(
    server: Client, space: str, tmp_path: Path
) -> None:
    saved = tmp_path / "saved"
    program = f"trap 'echo saved > {saved}; exit 0' TERM; {UNTIL_KILLED}"
    found = running(server, space, "n1", pod("polite", program))
    until(lambda: "up" in log(server, space, "polite"))
    began = time.monotonic()
    server.delete(pod_path(space, "polite"))
    until(lambda: server.find(pod_path(space, "polite")) is None)
    assert time.monotonic() - began < 10, "nobody waits for the end of the grace"
    assert saved.read_text() == "saved\n"
    assert not process(found).exists()


def test_deleted_pod_that_ignores_term_is_killed_with_its_children_after_its_grace(server: Client, space: str) -> None:
    program = f"trap '' TERM; sleep 1000 & echo child $!; {UNTIL_KILLED}"
    found = running(server, space, "n1", pod("stubborn", program, grace=1))
    child = int(str(until(lambda: log(server, space, "stubborn"))).split()[1])
    began = time.monotonic()
    server.delete(pod_path(space, "stubborn"))
    until(lambda: server.find(pod_path(space, "stubborn")) is None)
    assert time.monotonic() - began >= 1
    assert not process(found).exists()
    until(lambda: not Path(f"/proc/{child}").exists())


def test_deletion_with_grace_0_kills(server: Client, space: str) -> None:
    found = running(server, space, "n1", pod("doomed"))
    server.delete(pod_path(space, "doomed"), grace=0)
    until(lambda: not process(found).exists())


def test_gpus_beyond_the_node_are_refused_by_the_node(server: Client, space: str) -> None:
    running(server, space, "n1", pod("most", gpus=6))
    server.create(pod_path(space), pod("much", gpus=3))
    server.bind(space, "much", "n1")  # the API server doesn't mind
    until(lambda: phase(server, space, "much") == "Failed")
    status = server.get(pod_path(space, "much"))["status"]
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "Requested: 3, Available: 2" in status["message"]
    server.delete(pod_path(space, "most"), grace=0)
    running(server, space, "n1", pod("after", gpus=8))


def test_container_killed_from_outside_ends_with_137(server: Client, space: str) -> None:
    found = running(server, space, "n1", pod("shot"))
    os.kill(int(process(found).name), signal.SIGKILL)
    until(lambda: exit_code(server, space, "shot") == 137)


def test_command_that_does_not_exist_ends_with_128(server: Client, space: str) -> None:
    manifest = pod("typo")
    manifest["spec"]["containers"][0]["command"] = ["/no/such/program"]
    server.create(pod_path(space), manifest)
    server.bind(space, "typo", "n1")
    until(lambda: exit_code(server, space, "typo") == 128)
    assert "/no/such/program" in log(server, space, "typo")


def test_failing_pod_with_restarts_is_started_again(server: Client, space: str, tmp_path: Path) -> None:
    tried = tmp_path / "tried"
    program = f"[ -e {tried} ] && exit 0; touch {tried}; exit 1"
    server.create(pod_path(space), pod("again", program, restartPolicy="OnFailure"))
    server.bind(space, "again", "n1")
    until(lambda: phase(server, space, "again") == "Succeeded")
    status = server.get(pod_path(space, "again"))["status"]["containerStatuses"][0]
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 1


def test_environment_and_files_come_from_config_maps_and_secrets(server: Client, space: str) -> None:
    server.create(f"/api/v1/namespaces/{space}/configmaps", {"metadata": {"name": "c"}, "data": {"size": "large"}})
    server.create(f"/api/v1/namespaces/{space}/secrets", {"metadata": {"name": "s"}, "data": {"word": "YQ=="}})
    manifest = pod("configured", "echo $size $WORD $(cat /mnt/compass-test/size)")
    container = manifest["spec"]["containers"][0]
    container["envFrom"] = [{"configMapRef": {"name": "c"}}]
    container["env"] = [{"name": "WORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "word"}}}]
    mounts = os.geteuid() == 0
    if mounts:
        manifest["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "c"}}]
        container["volumeMounts"] = [{"name": "v", "mountPath": "/mnt/compass-test"}]
    server.create(pod_path(space), manifest)
    server.bind(space, "configured", "n1")
    until(lambda: phase(server, space, "configured") == "Succeeded")
    assert log(server, space, "configured").split("\n")[0] == ("large a large" if mounts else "large a ")
    assert not Path("/mnt/compass-test/size").exists(), "mounted for the pod alone"


def test_job_controller_is_there_and_its_pods_are_owned(server: Client, space: str) -> None:
    template = {"spec": pod("x", "true")["spec"]}
    job = {"metadata": {"name": "j"}, "spec": {"completions": 2, "parallelism": 2, "template": template}}
    server.create(f"/apis/batch/v1/namespaces/{space}/jobs", job)
    pods = until(lambda: len(found := server.list(pod_path(space)).items) == 2 and found)
    for each in pods:  # type: ignore[attr-defined]
        assert each["metadata"]["ownerReferences"][0]["name"] == "j"
        server.bind(space, each["metadata"]["name"], "n2")
    until(lambda: server.get(f"/apis/batch/v1/namespaces/{space}/jobs/j")["status"].get("succeeded") == 2)


def test_dead_node_becomes_unknown_and_its_pods_are_lost(
    kubernetes: KubernetesCluster, server: Client, space: str
) -> None:
    found = running(server, space, "n3", pod("victim"))
    kubernetes.kill_node("n3")
    until(lambda: not process(found).exists())
    until(lambda: ready(server, "n3") == "Unknown")
    until(lambda: not healthy(server.get("/api/v1/nodes/n3")))
    assert phase(server, space, "victim") == "Running", "nobody was left to say otherwise"
    assert ready(server, "n4") == "True"
    kubernetes.revive_node("n3")
    until(lambda: phase(server, space, "victim") == "Failed")
    running(server, space, "n3", pod("next", gpus=8))


def test_node_that_is_cut_off_runs_on_until_it_hears_again(
    kubernetes: KubernetesCluster, server: Client, space: str
) -> None:
    found = running(server, space, "n4", pod("twin"))
    kubernetes.cut_node("n4")
    until(lambda: ready(server, "n4") == "Unknown")
    server.delete(pod_path(space, "twin"), grace=0)
    assert server.find(pod_path(space, "twin")) is None
    assert process(found).exists(), "the object is gone, the process is not: the reason for fences"
    kubernetes.revive_node("n4")
    until(lambda: not process(found).exists())


def ready(server: Client, node: str) -> str:
    conditions = server.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return str(next(each["status"] for each in conditions if each["type"] == "Ready"))


def test_api_server_that_comes_back_finds_the_nodes_and_pods_as_they_were(
    kubernetes: KubernetesCluster, server: Client, space: str
) -> None:
    found = running(server, space, "n1", pod("survivor", "sleep 3; exit 0"))
    kubernetes.kill_daemon("kube-apiserver")
    kubernetes.start_daemon("kube-apiserver")
    until(lambda: reachable(kubernetes))
    assert process(found).exists() or exit_code(server, space, "survivor") == 0
    until(lambda: phase(server, space, "survivor") == "Succeeded")


def reachable(kubernetes: KubernetesCluster) -> bool:
    return kubernetes.kubectl("get", "--raw", "/readyz", check=False) == "ok"


def test_taking_a_cluster_down_leaves_no_process_and_no_file(tmp_path: Path) -> None:
    base = tmp_path / "c"
    cluster = KubernetesCluster(base, nodes=2)
    client = cluster.client()
    found = running(client, "default", "n1", pod("left", f"trap '' TERM; setsid sleep 1000 & {UNTIL_KILLED}"))
    with pytest.raises(ApiError, match="not found"):
        client.get("/api/v1/nodes/n3")
    client.close()
    assert process(found).exists()
    assert "is gone" in cluster.down()
    assert not base.exists()
    assert marked(base) == []


def marked(base: Path) -> list[str]:
    """Processes that carry the cluster's mark."""
    mark = f"COMPASS_TEST_CLUSTER={base}".encode()
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in environment.read_bytes().split(b"\0"):
                found.append((environment.parent / "cmdline").read_text())
        except OSError:
            continue
    return found


def test_kubectl_of_the_cluster_reads_it(kubernetes: KubernetesCluster) -> None:
    nodes = json.loads(kubernetes.kubectl("get", "nodes", "-o", "json"))["items"]
    assert {each["status"]["allocatable"]["nvidia.com/gpu"] for each in nodes} == {"8"}
