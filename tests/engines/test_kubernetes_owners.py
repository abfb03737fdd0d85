"""Gangs whose size only their owners say, as the operators that people use write them; read from a real API server."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from compass_abs.engines.kubernetes import Client, KubernetesEngine, PodSettings, names
from compass_abs.engines.kubernetes.client import Object
from tests.engines.kubernetes_cluster import KubernetesCluster
from tests.engines.users_pods import UsersCluster, pod, sleeping

pytestmark = pytest.mark.engine

#: Group, version, kind and plural of the operators' resources.
RESOURCES = (
    ("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    ("kubeflow.org", "v1", "PyTorchJob", "pytorchjobs"),
    ("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"),
)
_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def definition(group: str, version: str, kind: str, plural: str) -> Object:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [served],
        },
    }


@pytest.fixture(scope="module")
def operators(kubernetes: KubernetesCluster) -> Iterator[None]:
    """The resources are served; their operators are these tests."""
    with closing(kubernetes.client()) as client:
        for resource in RESOURCES:
            client.create(_DEFINITIONS, definition(*resource))
        deadline = time.monotonic() + 30
        while any(client.path(group, plural) is None for group, _, _, plural in RESOURCES):
            assert time.monotonic() < deadline
            client.forget_discovery()
            time.sleep(0.1)
        yield
        for group, _, _, plural in RESOURCES:
            client.delete(f"{_DEFINITIONS}/{plural}.{group}")


@pytest.fixture
def users(kubernetes: KubernetesCluster, operators: None, tmp_path: Path) -> Iterator[UsersCluster]:
    with kubernetes.namespace() as namespace, closing(kubernetes.client()) as client:
        settings = PodSettings(namespace, "test")
        engine = KubernetesEngine(tmp_path / "engine", Client.connect(kubeconfig=kubernetes.kubeconfig), settings)
        users = UsersCluster(tmp_path, engine, client, namespace)
        yield users
        users.close()


def make(users: UsersCluster, kind: str, name: str, spec: Object) -> Object:
    """An object of an operator's."""
    group, version, kind, plural = next(each for each in RESOURCES if each[2] == kind)
    body = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}
    return users.client.create(f"/apis/{group}/{version}/namespaces/{users.namespace}/{plural}", body)


def template(gpus: int) -> Object:
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {"spec": {"containers": [{"name": "main", "image": "any", "resources": {"limits": limits}}]}}


def owned(made: Object, name: str, labels: dict[str, str], gpus: int = 8, index: str = "") -> Object:
    """A pod as the operator makes it."""
    found = pod(name, sleeping(), gpus, {"batch.kubernetes.io/job-completion-index": index} if index else {}, labels)
    reference = {"apiVersion": made["apiVersion"], "kind": made["kind"], "name": made["metadata"]["name"]}
    found["metadata"]["ownerReferences"] = [{**reference, "uid": made["metadata"]["uid"], "controller": True}]
    return found


def starts_with_the_last(users: UsersCluster, gang: list[Object]) -> None:
    """Nothing of a gang starts before all of it is there; then it is one job, in the order of its ranks."""
    for member in gang[:-1]:
        users.create(member)
    users.until(lambda: any(f"{len(gang) - 1} of {len(gang)} pods" in message for *_, message in users.said))
    assert users.placed() == {}
    users.create(gang[-1])
    users.until(lambda: users.phases() == ["running"])
    (entry,) = users.entries()
    placed = users.placed()
    assert [placed[member["metadata"]["name"]] for member in gang] == list(entry.nodes)


def test_pytorchjob_says_how_many_pods_its_gang_has(users: UsersCluster) -> None:
    replicas = {
        "Master": {"replicas": 1, "template": template(8)},
        "Worker": {"replicas": 3, "template": template(8)},
    }
    made = make(users, "PyTorchJob", "ddp", {"pytorchReplicaSpecs": replicas})
    gang = []
    for number in range(4):
        kind, index = ("master", 0) if not number else ("worker", number - 1)
        labels = {
            "training.kubeflow.org/job-name": "ddp",
            "training.kubeflow.org/replica-type": kind,
            "training.kubeflow.org/replica-index": str(index),
        }
        gang.append(owned(made, f"ddp-{kind}-{index}", labels))
    starts_with_the_last(users, gang)


def jobset_labels(made: Object, replicated: str, job: int) -> dict[str, str]:
    return {
        "jobset.sigs.k8s.io/jobset-name": made["metadata"]["name"],
        "jobset.sigs.k8s.io/jobset-uid": made["metadata"]["uid"],
        "jobset.sigs.k8s.io/replicatedjob-name": replicated,
        "jobset.sigs.k8s.io/job-index": str(job),
    }


def replicated_job(name: str, replicas: int, pods: int, gpus: int) -> Object:
    return {
        "name": name,
        "replicas": replicas,
        "template": {"spec": {"parallelism": pods, "completions": pods, "template": template(gpus)}},
    }


def test_jobset_counts_its_jobs_and_their_pods_but_not_those_without_gpus(users: UsersCluster) -> None:
    jobs = [replicated_job("driver", 1, 1, 0), replicated_job("node", 2, 2, 8)]
    made = make(users, "JobSet", "trainer", {"replicatedJobs": jobs})
    gang = [
        owned(made, f"trainer-node-{job}-{index}", jobset_labels(made, "node", job), index=str(index))
        for job in range(2)
        for index in range(2)
    ]
    starts_with_the_last(users, gang)


def test_trainjob_is_the_gang_of_its_jobset(users: UsersCluster) -> None:
    train = make(users, "TrainJob", "llm", {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}})
    jobs = [replicated_job("dataset-initializer", 1, 1, 0), replicated_job("node", 1, 2, 8)]
    made = make(users, "JobSet", "llm", {"replicatedJobs": jobs})
    assert train["metadata"]["uid"] != made["metadata"]["uid"]
    labels = jobset_labels(made, "node", 0) | {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
    starts_with_the_last(users, [owned(made, f"llm-node-0-{index}-x", labels, index=str(index)) for index in range(2)])


def test_gang_of_an_owner_that_is_deleted_is_cancelled(users: UsersCluster) -> None:
    made = make(users, "PyTorchJob", "gone", {"pytorchReplicaSpecs": {"Worker": {"template": template(8)}}})
    users.create(owned(made, "gone-worker-0", {"training.kubeflow.org/job-name": "gone"}))
    users.until(lambda: users.phases() == ["running"])
    path = users.client.path("kubeflow.org", "pytorchjobs", users.namespace)
    assert users.client.delete(f"{path}/gone")
    # Its pods go with it: the garbage collector's doing.
    users.until(lambda: users.phases() == ["cancelled"])


def test_owner_or_marks_that_make_no_sense_trouble_nobody_else(users: UsersCluster) -> None:
    odd = make(users, "PyTorchJob", "odd", {"pytorchReplicaSpecs": {"Worker": {"replicas": None, "template": "none"}}})
    users.create(owned(odd, "odd-worker-0", {"training.kubeflow.org/job-name": "odd"}))
    long, forged = pod("long", sleeping(), 8), pod("forged", sleeping(), 8)
    long["metadata"]["annotations"] = {names.JOB: "long\ntwo", names.SIZE: "9" * 5000, names.RETRIES: "²"}
    forged["metadata"]["annotations"] = {names.OWNER: users.engine.owner, names.RUN: "x/0@" + "9" * 5000}
    users.create(long)
    users.create(forged)
    users.create(pod("plain", sleeping(), 8))
    users.until(lambda: "plain" in users.placed())
    assert set(users.placed()) == {"plain"}
    assert {name for name, reason, _ in users.said if reason == "CanNotRun"} == {"long", "odd-worker-0"}
