"""Users' own pods on a real API server with its real Job controller: who is taken in, bound, moved, left alone."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from compass_abs.controller.own_jobs import OwnJobs
from compass_abs.engines.kubernetes import Client, KubernetesEngine, PodSettings, names
from compass_abs.engines.kubernetes.client import Object, pod_path
from compass_abs.engines.protocol import EngineUnavailableError, NodeHealth
from tests.engines.kubernetes_cluster import KubernetesCluster, skip_without_kubernetes
from tests.engines.users_pods import UsersCluster, counting, job_of, pod, sleeping

pytestmark = pytest.mark.engine

SIGNAL = {names.CHECKPOINT: "signal"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    skip_without_kubernetes()
    with tempfile.TemporaryDirectory(prefix="ci-") as base:
        cluster = KubernetesCluster(Path(base) / "c", nodes=4)
        yield cluster
        cluster.down()


@pytest.fixture
def client(cluster: KubernetesCluster) -> Iterator[Client]:
    client = cluster.client()
    yield client
    client.close()


@pytest.fixture
def namespace(cluster: KubernetesCluster) -> Iterator[str]:
    with cluster.namespace() as name:
        yield name


def open_engine(cluster: KubernetesCluster, folder: Path, namespace: str) -> KubernetesEngine:
    return KubernetesEngine(
        folder / "engine", Client.connect(kubeconfig=cluster.kubeconfig), PodSettings(namespace, "test")
    )


@pytest.fixture
def users(cluster: KubernetesCluster, client: Client, namespace: str, tmp_path: Path) -> Iterator[UsersCluster]:
    engine = open_engine(cluster, tmp_path, namespace)
    users = UsersCluster(tmp_path, engine, client, namespace)
    yield users
    users.close()


def gang(size: int, name: str = "g", **marks: str) -> dict[str, str]:
    return {names.JOB: name, names.SIZE: str(size), **marks}


# ---- who is taken in


def test_plain_gang_starts_when_it_is_complete_and_not_before(users: UsersCluster, tmp_path: Path) -> None:
    for number in range(2):
        users.create(pod(f"a-{number}", counting(tmp_path, f"a{number}", 5), 8, gang(3)))
    users.for_a_while(1.5)
    assert users.placed() == {}
    assert ("a-0", "WaitingForGang", "The gang starts when it is complete: 2 of 3 pods are there") in users.said
    users.create(pod("a-2", counting(tmp_path, "a2", 5), 8, gang(3)))
    users.until(lambda: users.phases() == ["done"])
    found = users.pods()
    assert {each["status"]["phase"] for each in found.values()} == {"Succeeded"}
    assert len({each["spec"]["nodeName"] for each in found.values()}) == 3
    users.until(lambda: not list(users.engine.gangs))


def test_gang_that_does_not_fit_as_a_whole_is_not_begun(users: UsersCluster) -> None:
    for number in range(5):
        users.create(pod(f"a-{number}", sleeping(), 8, gang(5)))
    users.until(lambda: any(reason == "Waiting" for _, reason, _ in users.said))
    users.for_a_while(1.0)
    assert users.placed() == {}
    assert any("capacity" in message for _, reason, message in users.said if reason == "Waiting")


def test_pod_on_its_own_needs_no_marks(users: UsersCluster, tmp_path: Path) -> None:
    users.create(pod("single", counting(tmp_path, "s", 3)))
    users.until(lambda: users.phases() == ["done"])


def test_pod_without_gpus_is_left_alone_with_a_reason(users: UsersCluster) -> None:
    made = pod("none", sleeping())
    made["spec"]["containers"][0]["resources"] = {}
    users.create(made)
    users.until(lambda: any("asks for no nvidia.com/gpu" in message for *_, message in users.said))
    assert users.placed() == {}


def test_job_is_a_gang_of_its_parallelism(users: UsersCluster) -> None:
    path = f"/apis/batch/v1/namespaces/{users.namespace}/jobs"
    users.client.create(path, job_of("train", sleeping(1.0), 3, 8))
    users.until(lambda: users.phases() == ["done"])
    assert users.entries()[0].job.instances == 3
    users.until(lambda: users.client.get(f"{path}/train")["status"].get("succeeded") == 3)


def test_job_that_works_off_a_queue_is_a_job_for_each_pod(users: UsersCluster) -> None:
    path = f"/apis/batch/v1/namespaces/{users.namespace}/jobs"
    made = job_of("queue", sleeping(0.2), 1, 8)
    made["spec"] |= {"completions": 3, "parallelism": 2}
    users.client.create(path, made)
    users.until(lambda: users.client.get(f"{path}/queue")["status"].get("succeeded") == 3)
    assert [entry.job.instances for entry in users.entries()] == [1, 1, 1]


def jobset_pod(number: int) -> Object:
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "trainer",
        "jobset.sigs.k8s.io/jobset-uid": "5f1d",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/job-index": str(number // 2),
    }
    made = pod(
        f"trainer-node-{number // 2}-{number % 2}-xyz", sleeping(0.5), 8, env=[{"name": "PET_NNODES", "value": "4"}]
    )
    made["metadata"]["labels"] = labels
    made["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = str(number % 2)
    made["metadata"]["ownerReferences"] = [owner("batch/v1", "Job", f"trainer-node-{number // 2}")]
    return made


def pytorchjob_pod(number: int) -> Object:
    kind, index = ("master", 0) if number == 0 else ("worker", number - 1)
    labels = {
        "training.kubeflow.org/job-name": "ddp",
        "training.kubeflow.org/replica-type": kind,
        "training.kubeflow.org/replica-index": str(index),
    }
    made = pod(f"ddp-{kind}-{index}", sleeping(0.5), 8, env=[{"name": "WORLD_SIZE", "value": "4"}])
    made["metadata"]["labels"] = labels
    made["metadata"]["ownerReferences"] = [owner("kubeflow.org/v1", "PyTorchJob", "ddp")]
    return made


def owner(version: str, kind: str, name: str) -> Object:
    # Of a kind that isn't served here, or the garbage collector would miss the owner and remove the pod.
    version = version if kind != "Job" else "batch.example/v1"
    return {"apiVersion": version, "kind": kind, "name": name, "uid": "5f1d", "controller": True}


@pytest.mark.parametrize("make", [jobset_pod, pytorchjob_pod])
def test_pods_of_other_owners_are_one_gang_in_the_order_of_their_ranks(users: UsersCluster, make) -> None:  # type: ignore[no-untyped-def]
    for number in (3, 1, 0):
        users.create(make(number))
    users.for_a_while(1.0)
    assert users.placed() == {}
    users.create(make(2))
    users.until(lambda: all(each["spec"].get("nodeName") for each in users.pods().values()))
    (entry,) = users.entries()
    bound = {name: each["spec"]["nodeName"] for name, each in users.pods().items()}
    assert [bound[make(number)["metadata"]["name"]] for number in range(4)] == list(entry.nodes)


# ---- where they may run


def test_pods_confined_to_a_part_of_a_pool_wait_with_what_would_help(users: UsersCluster) -> None:
    users.create(pod("picky", sleeping(0.5), nodeSelector={"kubernetes.io/hostname": "n2"}))
    users.until(lambda: any("1 of the 4 nodes" in message for *_, message in users.said))
    assert any(names.POOL in message for *_, message in users.said)
    assert users.placed() == {}


def test_nodes_labelled_as_a_pool_take_the_pods_that_are_confined_to_them(
    users: UsersCluster, client: Client, cluster: KubernetesCluster, namespace: str, tmp_path: Path
) -> None:
    users.close()
    client.patch("/api/v1/nodes/n2", {"metadata": {"labels": {names.POOL: "mine", "tier": "gold"}}})
    client.patch("/api/v1/nodes/n3", {"spec": {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}})
    engine = open_engine(cluster, tmp_path / "again", namespace)
    again = UsersCluster(tmp_path, engine, client, namespace)
    try:
        again.create(pod("picky", sleeping(), nodeSelector={"tier": "gold"}))
        again.until(lambda: again.placed() == {"picky": "n2"})
        for number in range(3):
            again.create(pod(f"plain-{number}", sleeping(), 8))
        tolerant = [{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}]
        again.create(
            pod("tolerant", sleeping(), 8, {names.POOL: "NVIDIA-A100-SXM4-80GB-x8 team=a"}, tolerations=tolerant)
        )
        again.until(lambda: len(again.placed()) == 4)
        again.for_a_while(1.0)
        placed = again.placed()
        assert placed.pop("tolerant") == "n3"
        assert "n3" not in placed.values(), "a taint was passed over"
        assert {node for name, node in placed.items() if name.startswith("plain")} == {"n1", "n4"}
    finally:
        client.patch("/api/v1/nodes/n2", {"metadata": {"labels": {names.POOL: None, "tier": None}}})
        client.patch("/api/v1/nodes/n3", {"spec": {"taints": None}})
        again.close()


def test_pods_of_other_schedulers_close_a_node_as_long_as_they_hold_gpus(users: UsersCluster) -> None:
    foreign = pod("foreign", sleeping(), 3, nodeName="n1", schedulerName="default-scheduler")
    users.create(foreign)

    def health() -> NodeHealth:
        return next(node.health for node in users.engine.observe().nodes if node.name == "n1")

    users.until(lambda: health() is NodeHealth.CORDONED)
    users.create(pod("ours", sleeping()))
    users.until(lambda: "ours" in users.placed())
    assert users.placed()["ours"] != "n1"
    users.client.delete(pod_path(users.namespace, "foreign"), grace=1)
    users.until(lambda: health() is NodeHealth.READY)


def asking(name: str, cpus: int) -> Object:
    """A pod for half the GPUs of a node, and so many of its 128 processors."""
    made = pod(name, sleeping(), 4)
    made["spec"]["containers"][0]["resources"]["requests"] = {"cpu": str(cpus)}
    return made


def test_pods_go_where_there_are_processors_for_them_too(users: UsersCluster) -> None:
    users.create(asking("first", 100))
    users.until(lambda: "first" in users.placed())
    users.create(asking("second", 100))
    users.until(lambda: "second" in users.placed())
    placed = users.placed()
    assert placed["first"] != placed["second"], "the kubelet would have turned it away"
    users.create(asking("third", 20))
    users.until(lambda: "third" in users.placed())
    users.create(asking("never", 129))
    users.until(lambda: any("129 CPUs are asked for, 128 are left" in message for *_, message in users.said))
    assert "never" not in users.placed()


# ---- moves


def numbers(folder: Path, name: str) -> list[int]:
    path = folder / f"{name}.log"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_plain_gang_moves_as_new_pods_with_the_same_spec_and_goes_on(users: UsersCluster, tmp_path: Path) -> None:
    for number in range(2):
        users.create(pod(f"m-{number}", counting(tmp_path, f"m{number}"), 8, gang(2, **SIGNAL), {"app": "m"}))
    users.until(lambda: len(numbers(tmp_path, "m1")) > 20)
    old = users.placed()
    before = users.get("m-1")
    assert before is not None
    users.drain(old["m-1"])
    users.until(lambda: set(users.placed()) == {"m-0-g2", "m-1-g2"})
    assert users.placed()["m-1-g2"] not in old.values()
    after = users.get("m-1-g2")
    assert after is not None
    assert after["spec"]["containers"] == before["spec"]["containers"]
    assert after["metadata"]["labels"] == {"app": "m"}
    reached = len(numbers(tmp_path, "m1"))
    users.until(lambda: len(numbers(tmp_path, "m1")) > reached + 10)
    assert numbers(tmp_path, "m1") == list(range(len(numbers(tmp_path, "m1")))), "a step was lost or done twice"
    assert users.get("m-1") is None


def test_job_moves_as_the_pods_that_its_own_controller_makes_anew(users: UsersCluster, tmp_path: Path) -> None:
    path = f"/apis/batch/v1/namespaces/{users.namespace}/jobs"
    users.client.create(path, job_of("train", counting(tmp_path, "j", 200, 143), 1, 8, **SIGNAL))
    users.until(lambda: len(numbers(tmp_path, "j")) > 20)
    ((first, node),) = users.placed().items()
    users.drain(node)
    users.until(lambda: [each for each in users.placed().items() if each[0] != first and each[1] != node])
    second = next(name for name in users.placed() if name != first)
    users.until(lambda: users.client.get(f"{path}/train")["status"].get("succeeded") == 1, 60)
    assert numbers(tmp_path, "j") == list(range(200)), "a step was lost or done twice"
    assert len(users.entries()) == 1, "the pod that was made anew was taken for another job"
    assert second in users.pods()


def budget(namespace: str, **spec: object) -> Object:
    return {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": "kept"}}, **spec},
    }


def test_gang_under_a_budget_that_spares_none_is_never_moved(users: UsersCluster) -> None:
    path = users.client.path("policy", "poddisruptionbudgets", users.namespace)
    assert path is not None
    users.client.create(path, budget(users.namespace, minAvailable=1))
    users.create(pod("kept", sleeping(), 8, SIGNAL, {"app": "kept"}))
    users.until(lambda: "kept" in users.placed())
    assert any(reason == "Pinned" and "keep" in message for _, reason, message in users.said)
    assert not users.entries()[0].job.movable


def test_move_waits_for_a_budget_that_came_later_before_anything_is_stopped(users: UsersCluster) -> None:
    users.create(pod("kept", sleeping(), 8, SIGNAL, {"app": "kept"}))
    users.until(lambda: users.phases() == ["running"])
    path = users.client.path("policy", "poddisruptionbudgets", users.namespace)
    assert path is not None
    users.client.create(path, budget(users.namespace, minAvailable=1))
    users.until(lambda: (users.client.get(f"{path}/keep").get("status") or {}).get("currentHealthy") == 1)
    node = users.placed()["kept"]
    users.drain(node)
    users.until(lambda: users.entries()[0].past, 60)
    assert "PodDisruptionBudget" in users.entries()[0].past[0].why
    assert users.placed() == {"kept": node}
    users.client.delete(f"{path}/keep")
    users.until(lambda: users.placed() and node not in users.placed().values())


# ---- what people take back, and what dies


def test_gang_whose_pods_are_deleted_is_cancelled(users: UsersCluster) -> None:
    for number in range(2):
        users.create(pod(f"d-{number}", sleeping(), 8, gang(2)))
    users.until(lambda: users.phases() == ["running"])
    for number in range(2):
        users.client.delete(pod_path(users.namespace, f"d-{number}"), grace=1)
    users.until(lambda: users.phases() == ["cancelled"])
    users.for_a_while(1.0)
    assert users.placed() == {}


def test_gang_deleted_while_it_waits_is_cancelled(users: UsersCluster) -> None:
    users.create(pod("fills", sleeping(), 8, gang(4)))
    for number in range(5):
        users.create(pod(f"d-{number}", sleeping(), 8, gang(5, "big")))
    users.until(lambda: users.phases() == ["queued"])
    for number in range(5):
        users.client.delete(pod_path(users.namespace, f"d-{number}"), grace=1)
    users.until(lambda: users.phases() == ["cancelled"])


def test_job_deleted_by_its_user_is_cancelled(users: UsersCluster) -> None:
    path = f"/apis/batch/v1/namespaces/{users.namespace}/jobs"
    users.client.create(path, job_of("train", sleeping(), 2))
    users.until(lambda: users.phases() == ["running"])
    users.client._json("DELETE", f"{path}/train", {}, {"propagationPolicy": "Background"})
    users.until(lambda: users.phases() == ["cancelled"])


def test_half_bound_gang_is_completed_after_a_crash(
    users: UsersCluster, cluster: KubernetesCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind, calls = Client.bind, []

    def bind_one(self: Client, *arguments: object, **more: object) -> None:
        calls.append(arguments)
        if len(calls) > 1:
            raise EngineUnavailableError("the server died")
        bind(self, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Client, "bind", bind_one)
    for number in range(3):
        users.create(pod(f"h-{number}", sleeping(), 8, gang(3)))
    users.until(lambda: len(calls) > 1)
    assert len(users.placed()) == 1
    users.close()
    monkeypatch.setattr(Client, "bind", bind)
    engine = open_engine(cluster, tmp_path, users.namespace)
    again = UsersCluster(tmp_path, engine, users.client, users.namespace)
    try:
        again.until(lambda: again.phases() == ["running"])
        assert len(again.placed()) == 3
        assert len(set(again.placed().values())) == 3
        assert len(again.pods()) == 3
    finally:
        again.close()


def test_gang_whose_submission_had_no_answer_is_found_again_instead_of_submitted_twice(
    users: UsersCluster, cluster: KubernetesCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, tried = OwnJobs.submit, []

    def submit_and_lose_the_answer(self: OwnJobs, fields: dict[str, object]) -> str:
        tried.append(submit(self, fields))
        raise EngineUnavailableError("the connection was lost")

    monkeypatch.setattr(OwnJobs, "submit", submit_and_lose_the_answer)
    users.create(pod("once", sleeping(), 8))
    with pytest.raises(EngineUnavailableError):
        users.until(lambda: False)
    assert len(tried) == 1
    # By this intake, or by the next one.
    users.close()
    monkeypatch.setattr(OwnJobs, "submit", submit)
    again = UsersCluster(tmp_path, open_engine(cluster, tmp_path, users.namespace), users.client, users.namespace)
    try:
        again.until(lambda: again.phases() == ["running"])
        again.for_a_while(1.0)
        assert [entry.id for entry in again.entries()] == tried
    finally:
        again.close()


def test_half_bound_gang_of_which_a_pod_is_gone_is_rolled_back(
    users: UsersCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind, lost = Client.bind, []

    def bind_all_but_one(self: Client, namespace: str, name: str, *arguments: object, **more: object) -> None:
        if name == "h-2" and not lost:
            lost.append(self.delete(pod_path(namespace, name), grace=0))
        bind(self, namespace, name, *arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Client, "bind", bind_all_but_one)
    for number in range(3):
        users.create(pod(f"h-{number}", sleeping(), 8, gang(3)))
    users.until(lambda: lost)
    users.until(lambda: users.phases() in (["cancelled"], ["running"]))
    users.until(lambda: len(users.placed()) in (0, 3))


def test_engine_that_lost_its_files_finds_its_runs_in_the_cluster(
    users: UsersCluster, cluster: KubernetesCluster, tmp_path: Path
) -> None:
    users.create(pod("f", sleeping(), 4))
    users.until(lambda: users.phases() == ["running"])
    (report,) = users.engine.observe().runs
    users.close()
    owner_file = tmp_path / "engine" / "owner.json"
    fresh = tmp_path / "fresh" / "engine"
    fresh.mkdir(parents=True)
    (fresh / "owner.json").write_text(owner_file.read_text())
    engine = open_engine(cluster, tmp_path / "fresh", users.namespace)
    try:
        (again,) = engine.observe().runs
        assert (again.run, again.node, again.handle) == (report.run, report.node, report.handle)
    finally:
        engine.close()
