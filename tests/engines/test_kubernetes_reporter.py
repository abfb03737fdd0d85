"""What a controller on a real cluster tells people: on the pods that wait, and as objects."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from compass_abs.controller.journal import SqliteJournal
from compass_abs.controller.kubernetes_reporter import Reporter
from compass_abs.controller.own_jobs import OwnJobs
from compass_abs.controller.reconcile import Conduct, Config
from compass_abs.controller.service import Service
from compass_abs.engines.kubernetes import Client, KubernetesEngine, PodSettings, names
from compass_abs.engines.kubernetes.client import Object, pod_path
from compass_abs.engines.kubernetes.events import EventWriter, Subject
from compass_abs.engines.kubernetes.intake import Intake
from compass_abs.engines.kubernetes.recommendations import Board
from tests.engines.kubernetes_accounts import apply
from tests.engines.kubernetes_cluster import KubernetesCluster, skip_without_kubernetes
from tests.engines.users_pods import pod, sleeping

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    """Two nodes."""
    skip_without_kubernetes()
    with tempfile.TemporaryDirectory(prefix="cr-") as base:
        cluster = KubernetesCluster(Path(base) / "c", nodes=2)
        apply(cluster, "base")
        yield cluster
        cluster.down()


class World:
    """A controller that only recommends, its intake, and its reporter, each a step at a time."""

    def __init__(self, cluster: KubernetesCluster, folder: Path, space: str) -> None:
        self.client, self.space = cluster.client(), space
        self.engine = KubernetesEngine(
            folder / "engine", Client.connect(kubeconfig=cluster.kubeconfig), PodSettings(space)
        )
        # Of two nodes with a half each, this one starts the second half beside the first: see `halves`.
        config = Config(scheduler="compass-jit", conduct=Conduct.RECOMMEND)
        self.service = Service(SqliteJournal(folder / "journal.sqlite"), self.engine, config)
        self.service.start()
        self.service.wait_until_ready()
        self.intake = Intake(self.engine)
        self.jobs = OwnJobs(self.service)
        self.board = Board(self.client, "compass-abs", "me")
        self.reporter = Reporter(self.service, self.waiting, EventWriter(self.client, "me"), self.board)

    def waiting(self) -> dict[str, list[Subject]]:
        return {
            job: [Subject(self.space, each["metadata"]["name"], each["metadata"]["uid"]) for each in members]
            for job, members in self.intake.waiting_pods().items()
        }

    def create(self, name: str, gpus: int, movable: bool = True) -> None:
        marks = {names.CHECKPOINT: "signal"} if movable else {}
        self.client.create(pod_path(self.space), pod(name, sleeping(), gpus, marks))

    def until(self, what: Callable[[], object]) -> None:
        deadline = time.monotonic() + 40
        while not what():
            assert time.monotonic() < deadline, self.events()
            self.intake.look(self.jobs)
            self.reporter.round()
            time.sleep(0.2)

    def node_of(self, name: str) -> str:
        return str(self.client.get(pod_path(self.space, name))["spec"].get("nodeName", ""))

    def runs(self, name: str) -> bool:
        """Its controller knows that it does."""
        found = self.client.find(pod_path(self.space, name)) or {"status": {}}
        return found["status"].get("phase") == "Running"

    def events(self) -> dict[tuple[str, str], Object]:
        found = self.client.list(f"/api/v1/namespaces/{self.space}/events").items
        return {(each["involvedObject"]["name"], each["reason"]): each for each in found}

    def recommendations(self) -> list[Object]:
        path = self.client.path("scheduling.compass-abs", "recommendations", "compass-abs")
        assert path is not None
        return [each["spec"] for each in self.client.list(path).items]

    def halves(self, movable: bool = True) -> None:
        """Half of each node is taken by a gang of its own: each came while the other node had less room."""
        for name, gpus in (("one", 4), ("filler", 4), ("two", 4)):
            self.create(name, gpus, movable)
            self.until(lambda name=name: self.runs(name))  # type: ignore[misc]
        self.client.delete(pod_path(self.space, "filler"), grace=1)
        self.until(lambda: self.client.find(pod_path(self.space, "filler")) is None)
        assert {self.node_of("one"), self.node_of("two")} == {"n1", "n2"}

    def close(self) -> None:
        self.board.publish([])
        self.service.close()
        self.engine.close()
        self.client.close()


@pytest.fixture
def world(cluster: KubernetesCluster, tmp_path: Path) -> Iterator[World]:
    with cluster.namespace() as space:
        found = World(cluster, tmp_path, space)
        yield found
        found.close()


def test_pod_that_waits_for_fragmentation_is_told_the_moves_and_they_are_recommended(world: World) -> None:
    world.halves()
    world.create("whole", 8)
    world.until(lambda: ("whole", "WaitingForFragmentation") in world.events() and world.recommendations())
    world.until(lambda: "→" in world.events()["whole", "WaitingForFragmentation"]["message"])
    event = world.events()["whole", "WaitingForFragmentation"]
    assert event["type"] == "Warning"
    assert "8 GPUs wanted, 8 free" in event["message"]
    (found,) = world.recommendations()
    assert [job.startswith(f"{world.space}-whole") for job in found["admits"]] == [True]
    assert (found["cost"], len(found["moves"])) == ({"moves": 1, "jobs": 1, "gpuSeconds": 32}, 1)
    # It is recommended, not made.
    assert world.node_of("whole") == ""
    # What is no longer true is taken back: the half goes, the whole starts.
    world.client.delete(pod_path(world.space, "one"), grace=1)
    world.until(lambda: world.node_of("whole") and not world.recommendations())


def test_pods_that_wait_for_capacity_policy_or_their_turn_are_told_so(world: World) -> None:
    world.halves(movable=False)
    world.create("pinned-out", 8)
    world.create("behind", 8)
    world.until(lambda: {("pinned-out", "WaitingForPolicy"), ("behind", "WaitingForTurn")} <= set(world.events()))
    assert "could move" in world.events()["pinned-out", "WaitingForPolicy"]["message"]
    assert "behind" in world.events()["behind", "WaitingForTurn"]["message"]
    world.client.delete(pod_path(world.space, "pinned-out"), grace=1)
    world.create("fills", 4)
    world.client.delete(pod_path(world.space, "behind"), grace=1)
    world.until(lambda: world.runs("fills"))
    world.create("too-much", 8)
    world.until(lambda: ("too-much", "WaitingForCapacity") in world.events())
    assert "8 GPUs wanted, 4 free, 4 short" in world.events()["too-much", "WaitingForCapacity"]["message"]
