"""Operating on a real API server: who leads, what it may do, and what it says to people."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compass_abs.engines.kubernetes import names
from compass_abs.engines.kubernetes.client import ApiError, Client, pod_path
from compass_abs.engines.kubernetes.events import EventWriter, Subject, Weight
from compass_abs.engines.kubernetes.lease import Leadership, LeadershipLostError, Terms
from compass_abs.engines.kubernetes.recommendations import Board, Recommendation, RecommendedMove
from tests.engines.kubernetes_accounts import apply, kubeconfig_of, pod
from tests.engines.kubernetes_cluster import KubernetesCluster
from tests.engines.users_pods import counting
from tests.engines.users_pods import pod as users_pod

pytestmark = pytest.mark.engine

COMPASS = [sys.executable, "-m", "compass_abs"]
TERMS = Terms(3.0, 2.0, 0.3)


@pytest.fixture
def admin(kubernetes: KubernetesCluster) -> Iterator[Client]:
    client = kubernetes.client()
    yield client
    client.close()


@pytest.fixture
def space(kubernetes: KubernetesCluster) -> Iterator[str]:
    with kubernetes.namespace() as name:
        yield name


@pytest.fixture(scope="module")
def account(kubernetes: KubernetesCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The overlay that only recommends is applied; a kubeconfig of its account."""
    apply(kubernetes, "recommend")
    path = tmp_path_factory.mktemp("account") / "kubeconfig"
    yield kubeconfig_of(kubernetes, "compass-abs", path)
    kubernetes.kubectl("delete", "namespace", "compass-abs", "--wait=false")


def until(condition: Callable[[], object], seconds: float = 20.0) -> object:
    """What the condition is when it holds."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)
    return found


# ---- leadership


def test_second_controller_waits_and_takes_over_when_the_first_has_died(admin: Client, space: str) -> None:
    first, second = (Leadership(admin, space, "compass-abs", who, TERMS) for who in ("first", "second"))
    assert first.attempt()
    assert not second.attempt()
    began = time.monotonic()  # and the first says no more
    until(second.attempt)
    assert time.monotonic() - began >= TERMS.duration - 0.1
    assert not first.leads
    with pytest.raises(LeadershipLostError):
        first.check()
    assert not first.attempt()
    lease = admin.get(f"/apis/coordination.k8s.io/v1/namespaces/{space}/leases/compass-abs")
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("second", 1)


def test_controller_without_its_lease_changes_nothing(admin: Client, kubernetes: KubernetesCluster, space: str) -> None:
    acting = kubernetes.client()
    leadership = Leadership(admin, space, "compass-abs", "me", TERMS)
    acting.guard = leadership.check
    with pytest.raises(LeadershipLostError):
        acting.create(pod_path(space), pod("early", 1))
    assert leadership.attempt()
    acting.create(pod_path(space), pod("mine", 1))
    time.sleep(TERMS.deadline)
    for change in (
        lambda: acting.create(pod_path(space), pod("late", 1)),
        lambda: acting.bind(space, "mine", "n1"),
        lambda: acting.delete(pod_path(space, "mine")),
        lambda: acting.evict(space, "mine"),
    ):
        with pytest.raises(LeadershipLostError):
            change()
    assert [each["metadata"]["name"] for each in acting.list(pod_path(space)).items] == ["mine"]
    acting.close()


class Process:
    """A `compass advise` of its own."""

    def __init__(self, name: str, kubeconfig: Path, folder: Path) -> None:
        self.log = folder / f"{name}.log"
        command = [*COMPASS, "advise", "--every", "1", "--lease-seconds", "3"]
        environment = dict(os.environ, KUBECONFIG=str(kubeconfig), COMPASS_ID=name)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def said(self, words: str) -> bool:
        return words in self.log.read_text()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def test_one_of_two_processes_acts_and_one_that_slept_through_its_lease_ends(account: Path, tmp_path: Path) -> None:
    first = Process("first", account, tmp_path)
    until(lambda: first.said("recommendations"))
    second = Process("second", account, tmp_path)
    try:
        until(lambda: second.said("waits: first leads"))
        assert not second.said("recommendations")
        os.kill(first.process.pid, signal.SIGSTOP)
        until(lambda: second.said("recommendations"))
        os.kill(first.process.pid, signal.SIGCONT)
        assert first.process.wait(20) == 1
        assert first.said("has lost its lease")
        second.process.terminate()
        assert second.process.wait(20) == 0
    finally:
        first.end()
        second.end()


# ---- rights


def test_account_of_recommend_may_look_and_keep_its_own_things_and_no_more(
    account: Path, admin: Client, kubernetes: KubernetesCluster, space: str
) -> None:
    own = "/apis/scheduling.compass-abs/v1alpha1/namespaces"
    leases = "/apis/coordination.k8s.io/v1/namespaces"
    admin.create(pod_path(space), pod("theirs", 1))
    client = Client.connect(kubeconfig=account)
    assert client.list("/api/v1/nodes").items
    assert client.list("/api/v1/pods").items
    forbidden: list[Callable[[], object]] = [
        lambda: client.create(pod_path(space), pod("mine", 1)),
        lambda: client.create(pod_path("compass-abs"), pod("mine", 1)),
        lambda: client.patch(pod_path(space, "theirs"), {"metadata": {"labels": {"a": "b"}}}),
        lambda: client.delete(pod_path(space, "theirs")),
        lambda: client.bind(space, "theirs", "n1"),
        lambda: client.evict(space, "theirs"),
        lambda: client.text(f"{pod_path(space, 'theirs')}/log"),
        lambda: client.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}}),
        lambda: client.list("/api/v1/secrets"),
        lambda: client.list("/api/v1/namespaces/compass-abs/secrets"),
        lambda: client.list("/api/v1/namespaces/compass-abs/configmaps"),
        lambda: client.create(f"/api/v1/namespaces/{space}/events", {"metadata": {"name": "x"}}),
        lambda: client.create(f"{leases}/{space}/leases", {"metadata": {"name": "compass-abs"}}),
        lambda: client.find(f"{leases}/kube-system/leases/kube-controller-manager"),
        lambda: client.create(f"{own}/{space}/recommendations", {"metadata": {"name": "x"}}),
        lambda: client.delete("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/recommendations.x"),
    ]
    for number, attempt in enumerate(forbidden):
        with pytest.raises(ApiError) as refusal:
            attempt()
        assert refusal.value.code == 403, number
    client.close()
    listed = kubernetes.kubectl(
        "auth", "can-i", "--list", "-n", space, "--as", "system:serviceaccount:compass-abs:compass-abs", "--no-headers"
    )
    resources = {line.split()[0]: line.rsplit("[", 1)[1].rstrip("] ").split() for line in listed.splitlines()}
    changes = {name: verbs for name, verbs in resources.items() if set(verbs) - {"get", "list", "watch"}}
    # What everybody may: ask what they may.
    assert set(changes) == {
        "selfsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectrulesreviews.authorization.k8s.io",
    }


# ---- recommendations


def wanted(name: str, *moves: tuple[str, str]) -> Recommendation:
    listed = tuple(RecommendedMove("job", number, 4, *move) for number, move in enumerate(moves))
    return Recommendation(name, "A100", "job waits", ("job",), listed, 32.4)


def test_recommendations_follow_what_is_true_and_kubectl_shows_them(
    account: Path, kubernetes: KubernetesCluster, tmp_path: Path
) -> None:
    client = Client.connect(kubeconfig=account)
    board = Board(client, "compass-abs", "me")
    path = client.path("scheduling.compass-abs", "recommendations", "compass-abs")
    assert path is not None
    assert board.publish([wanted("one", ("n1", "n2")), wanted("two", ("n3", "n4"))])
    shown = kubernetes.kubectl("get", "crec", "-n", "compass-abs", "--cache-dir", str(tmp_path)).splitlines()
    assert shown[0].split() == ["NAME", "POOL", "ADMITS", "MOVES", "JOBS", "GPU-SECONDS", "CONFIRMED", "AGE"]
    assert [line.split()[:6] for line in shown[1:]] == [[n, "A100", "job", "1", "1", "32"] for n in ("one", "two")]
    versions = {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in client.list(path).items}
    board.publish([wanted("one", ("n1", "n2")), wanted("two", ("n3", "n4"))])
    assert versions == {e["metadata"]["name"]: e["metadata"]["resourceVersion"] for e in client.list(path).items}
    board.publish([wanted("two", ("n3", "n5"), ("n4", "n5"))])
    (left,) = client.list(path).items
    assert left["metadata"]["name"] == "two"
    assert [move["to"] for move in left["spec"]["moves"]] == ["n5", "n5"]
    assert left["status"]["state"] == "Current"
    # The next controller finds what is there, and clears it away.
    assert Board(client, "compass-abs", "next").publish([])
    assert not client.list(path).items
    client.close()


def test_adviser_recommends_what_the_cluster_needs_and_withdraws_it(
    account: Path, admin: Client, space: str, tmp_path: Path
) -> None:
    for node in range(1, 9):
        half = node <= 2
        labels = {"compass-abs__movable": "true"} if half else {}
        admin.create(pod_path(space), pod(f"on-{node}", 4 if half else 8, f"n{node}", **labels))
    admin.create(pod_path(space), pod("whole", 8))
    path = admin.path("scheduling.compass-abs", "recommendations", "compass-abs")
    assert path is not None
    adviser = Process("adviser", account, tmp_path)
    try:
        (found,) = until(lambda: admin.list(path).items)  # type: ignore[misc]
        assert found["spec"]["admits"] == [f"{space}/whole"]
        assert [move["from"] for move in found["spec"]["moves"]] in (["n1"], ["n2"])
        assert found["spec"]["cost"] == {"moves": 1, "jobs": 1, "gpuSeconds": 32}
        admin.delete(pod_path(space, "whole"), grace=0)
        for name in ("on-1", "on-2"):
            admin.delete(pod_path(space, name), grace=0)
        until(lambda: not admin.list(path).items)
    finally:
        adviser.end()


# ---- events


def test_events_say_why_a_pod_waits_once_and_count(admin: Client, kubernetes: KubernetesCluster, space: str) -> None:
    made = admin.create(pod_path(space), pod("waits", 8))
    subject, now = Subject(space, "waits", made["metadata"]["uid"]), 0.0
    writer = EventWriter(admin, "me", clock=lambda: now)
    assert writer.say(subject, "WaitingForFragmentation", "12 free, scattered", Weight.WARNING)
    assert not writer.say(subject, "WaitingForFragmentation", "12 free, scattered", Weight.WARNING)
    assert not writer.say(subject, "WaitingForFragmentation", "13 free, scattered", Weight.WARNING)
    now = 31.0
    assert writer.say(subject, "WaitingForFragmentation", "13 free, scattered", Weight.WARNING)
    assert writer.say(subject, "WaitingForCapacity", "2 free, 6 short", Weight.WARNING)
    # A controller that restarts goes on counting.
    assert EventWriter(admin, "next").say(subject, "WaitingForCapacity", "1 free, 7 short", Weight.WARNING)
    found = {each["reason"]: each for each in admin.list(f"/api/v1/namespaces/{space}/events").items}
    assert {reason: each["count"] for reason, each in found.items()} == {
        "WaitingForFragmentation": 2,
        "WaitingForCapacity": 2,
    }
    described = kubernetes.kubectl("describe", "pod", "waits", "-n", space).split("Events:", 1)[1]
    assert "13 free, scattered" in described
    assert "1 free, 7 short" in described


def test_events_of_many_pods_are_held_back(admin: Client, space: str) -> None:
    now = 0.0
    writer = EventWriter(admin, "me", clock=lambda: now)
    subjects = [Subject(space, f"pod-{number}", f"uid-{number}") for number in range(80)]
    assert sum(writer.say(subject, "WaitingForTurn", "behind others") for subject in subjects) == 50
    now = 3.0
    assert sum(writer.say(subject, "WaitingForTurn", "behind others") for subject in subjects) == 30
    assert (writer.written, writer.dropped) == (80, 30)


# ---- the rights to schedule and move


@pytest.fixture
def scheduling(kubernetes: KubernetesCluster, tmp_path: Path) -> Iterator[Path]:
    """The overlay that schedules and moves is applied; a kubeconfig of its account."""
    apply(kubernetes, "execute")
    # Its own pods find no image and no volume here; it is run as a process, with the same token.
    kubernetes.kubectl("delete", "deployment", "compass-abs-scheduler", "-n", "compass-abs")
    yield kubeconfig_of(kubernetes, "compass-abs", tmp_path / "kubeconfig")
    kubernetes.kubectl("delete", "clusterrole,clusterrolebinding", "compass-abs-schedule")
    kubernetes.kubectl("delete", "pvc", "compass-abs-state", "-n", "compass-abs", "--wait=false")


def test_controller_with_the_rights_of_its_account_runs_moves_and_reads_a_gang(
    scheduling: Path, admin: Client, space: str, tmp_path: Path
) -> None:
    port = random.SystemRandom().randrange(28_700, 29_700)
    environment = dict(os.environ, KUBECONFIG=str(scheduling), COMPASS_URL=f"http://127.0.0.1:{port}")

    def compass(*arguments: str) -> Any:
        done = subprocess.run(
            [*COMPASS, *arguments], env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    log = tmp_path / "serve.log"
    serving = [
        "serve-kubernetes",
        "--namespace",
        "compass-abs",
        "--state",
        str(tmp_path / "state"),
        "--port",
        str(port),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen([*COMPASS, *serving], env=environment, stdout=output, stderr=output)
    try:
        until(lambda: "listening" in log.read_text(), 40)
        marks = {names.JOB: "pair", names.SIZE: "2", names.CHECKPOINT: "signal"}
        for number in range(2):
            admin.create(pod_path(space), users_pod(f"pair-{number}", counting(tmp_path, f"p{number}"), 8, marks))

        def placed() -> dict[str, str]:
            return {
                each["metadata"]["name"]: each["spec"]["nodeName"]
                for each in admin.list(pod_path(space)).items
                if each["status"].get("phase") == "Running" and not each["metadata"].get("deletionTimestamp")
            }

        until(lambda: len(placed()) == 2, 40)
        (job,) = json.loads(compass("ps", "--json"))["jobs"]
        until(lambda: json.loads(compass("ps", "--json"))["jobs"][0]["phase"] == "running", 40)
        left = placed()["pair-1"]
        compass("drain", left)
        # A successor of another name, elsewhere; and nothing that the account would have needed and hasn't got.
        until(lambda: len(placed()) == 2 and left not in placed().values() and "pair-1" not in placed(), 60)
        assert compass("logs", job["id"]) is not None
        reasons = {each["reason"] for each in admin.list(f"/api/v1/namespaces/{space}/events").items}
        assert "TakenIn" in reasons
        assert "forbidden" not in log.read_text().lower(), log.read_text()
    finally:
        process.terminate()
        assert process.wait(30) == 0


def test_account_that_schedules_may_not_touch_nodes_or_secrets_or_other_objects(
    scheduling: Path, admin: Client, space: str
) -> None:
    client = Client.connect(kubeconfig=scheduling)
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}}
    forbidden: list[Callable[[], object]] = [
        lambda: client.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}}),
        lambda: client.delete("/api/v1/nodes/n1"),
        lambda: client.list("/api/v1/secrets"),
        lambda: client.list(f"/api/v1/namespaces/{space}/configmaps"),
        lambda: client.list("/api/v1/namespaces"),
        lambda: client.create(f"/apis/batch/v1/namespaces/{space}/jobs", job),
        lambda: client.delete(f"/apis/batch/v1/namespaces/{space}/jobs/x"),
        lambda: client.list(f"/apis/batch/v1/namespaces/{space}/jobs"),
        lambda: client.patch(f"{pod_path(space, 'x')}/status", {"status": {"phase": "Succeeded"}}),
        lambda: client.create(f"{pod_path(space, 'x')}/exec", {}),
        lambda: client.delete(f"/api/v1/namespaces/{space}/events/x"),
        lambda: client.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", {"metadata": {"name": "x"}}),
        lambda: client.find("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x"),
    ]
    for number, attempt in enumerate(forbidden):
        with pytest.raises(ApiError) as refusal:
            attempt()
        assert refusal.value.code == 403, number
    client.close()
