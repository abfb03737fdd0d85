"""A controller that has lost its state folder, or has an old one, on a real API server: the cluster says what runs."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from compass_abs.controller.journal import SqliteJournal
from compass_abs.controller.kubernetes_takeover import TakenOver, take_over
from compass_abs.engines.kubernetes import Client, KubernetesEngine, PodSettings, names
from compass_abs.engines.kubernetes.client import Object, pod_path
from compass_abs.engines.kubernetes.lease import Leadership, Terms
from tests.engines.kubernetes_cluster import KubernetesCluster, skip_without_kubernetes
from tests.engines.users_pods import UsersCluster, counting, job_of, pod, sleeping

pytestmark = pytest.mark.engine

SIGNAL = {names.CHECKPOINT: "signal"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    skip_without_kubernetes()
    with tempfile.TemporaryDirectory(prefix="ct-") as base:
        cluster = KubernetesCluster(Path(base) / "c", nodes=4)
        yield cluster
        cluster.down()


@pytest.fixture
def client(cluster: KubernetesCluster) -> Iterator[Client]:
    with closing(cluster.client()) as client:
        yield client


@pytest.fixture
def namespace(cluster: KubernetesCluster) -> Iterator[str]:
    with cluster.namespace() as name:
        yield name


class Controllers:
    """One after the other, each with a state folder."""

    def __init__(self, cluster: KubernetesCluster, client: Client, namespace: str) -> None:
        self._cluster, self._client, self._namespace = cluster, client, namespace
        self._number = 0

    @contextmanager
    def leading(self, state: Path) -> Iterator[tuple[UsersCluster, TakenOver | None]]:
        """A controller on this folder, and what it took over."""
        self._number += 1
        electing, acting = self._cluster.client(), Client.connect(kubeconfig=self._cluster.kubeconfig)
        name = f"controller-{self._number}"
        leadership = Leadership(electing, self._namespace, "compass-abs-scheduler", name, Terms.lasting(6))
        assert leadership.attempt()
        leadership._thread.start()
        settings = PodSettings(self._namespace, "test")
        try:
            taken = take_over(acting, leadership, state, settings)
            engine = KubernetesEngine(state / "kubernetes", acting, settings)
            users = UsersCluster(state, engine, self._client, self._namespace)
            try:
                yield users, taken
            finally:
                users.close()
        finally:
            leadership.release()
            electing.close()


@pytest.fixture
def controllers(cluster: KubernetesCluster, client: Client, namespace: str) -> Controllers:
    return Controllers(cluster, client, namespace)


def gang(size: int, name: str, **marks: str) -> dict[str, str]:
    return {names.JOB: name, names.SIZE: str(size), **marks}


def numbers(folder: Path, name: str) -> list[int]:
    path = folder / f"{name}.log"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def fill(users: UsersCluster, folder: Path) -> None:
    """A plain gang and one of a Job's that run, and a gang that waits for room."""
    for number in range(2):
        users.create(pod(f"plain-{number}", counting(folder, f"plain{number}"), 8, gang(2, "plain", **SIGNAL)))
    users.until(lambda: users.phases() == ["running"])
    path = f"/apis/batch/v1/namespaces/{users.namespace}/jobs"
    users.client.create(path, job_of("owned", sleeping(), 2, 4, **SIGNAL))
    users.until(lambda: users.phases() == ["running", "running"])
    for number in range(2):
        users.create(pod(f"wide-{number}", sleeping(), 8, gang(2, "wide")))
    users.until(lambda: users.phases() == ["running", "running", "queued"])


def picture(users: UsersCluster) -> dict[str, tuple[str, tuple[str, ...], int]]:
    """What is known of the jobs that run."""
    return {
        entry.id: (entry.spec.name, entry.nodes, entry.generation)
        for entry in users.entries()
        if entry.phase.value == "running"
    }


def uids(users: UsersCluster) -> dict[str, str]:
    return {name: each["metadata"]["uid"] for name, each in users.pods().items()}


def test_controller_without_its_folder_finds_what_runs_and_goes_on(controllers: Controllers, tmp_path: Path) -> None:
    with controllers.leading(tmp_path / "first") as (users, taken):
        assert taken is None
        fill(users, tmp_path)
        before, pods_before = picture(users), uids(users)
    shutil.rmtree(tmp_path / "first")
    with controllers.leading(tmp_path / "second") as (users, taken):
        assert taken is not None
        assert (sorted(taken.jobs), taken.aside, taken.left) == (sorted(before), None, [])
        users.until(lambda: users.phases() == ["running", "running", "queued"])
        assert picture(users) == before
        assert uids(users) == pods_before, "a pod was made anew"
        waiting = users.entries()[-1]
        assert waiting.id not in before
        assert "wide" in waiting.spec.name
        # One node is free. It is known which, and what runs can still be moved there.
        (free,) = {f"n{number}" for number in range(1, 5)} - set(users.placed().values())
        left = users.placed()["plain-1"]
        users.drain(left)
        users.until(lambda: set(users.placed()) >= {"plain-0-g2", "plain-1-g2"}, 60)
        assert users.placed()["plain-1-g2"] == free
        reached = len(numbers(tmp_path, "plain1"))
        users.until(lambda: len(numbers(tmp_path, "plain1")) > reached + 10)
        for name in ("plain0", "plain1"):
            assert numbers(tmp_path, name) == list(range(len(numbers(tmp_path, name)))), "a step was lost or done twice"
    # The same folder again: nothing is taken over any more.
    with controllers.leading(tmp_path / "second") as (users, taken):
        assert taken is None
        users.until(lambda: sorted(users.phases()) == ["queued", "running", "running"])


def test_folder_that_is_not_the_latest_is_put_aside(controllers: Controllers, tmp_path: Path) -> None:
    with controllers.leading(tmp_path / "old") as (users, _):
        users.create(pod("early", sleeping(0.5), 8))
        users.until(lambda: users.phases() == ["done"])
        users.create(pod("long", sleeping(), 8))
        users.until(lambda: users.phases() == ["done", "running"])
    with controllers.leading(tmp_path / "new") as (users, taken):
        assert taken is not None
        assert len(taken.jobs) == 1
        users.client.delete(pod_path(users.namespace, "long"), grace=1)
        users.until(lambda: users.phases() == ["cancelled"])
        users.create(pod("late", sleeping(), 8))
        users.until(lambda: users.phases() == ["cancelled", "running"])
        before = picture(users)
    with controllers.leading(tmp_path / "old") as (users, taken):
        assert taken is not None
        assert taken.aside is not None
        assert (taken.aside / "journal.sqlite").exists()
        users.until(lambda: users.phases() == ["running"])
        assert picture(users) == before, "what it knew of old would have had it start 'long' once more"
        users.create(pod("next", sleeping(), 8))
        users.until(lambda: users.phases() == ["running", "running"])
        used = [entry.id.rpartition("-")[2] for entry in users.entries()]
        assert len(set(used)) == 2


def test_take_over_that_dies_half_way_is_begun_again(
    controllers: Controllers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with controllers.leading(tmp_path / "first") as (users, _):
        fill(users, tmp_path)
        before, pods_before = picture(users), uids(users)

    def die(*arguments: object) -> None:
        raise KeyboardInterrupt

    for victim, name in ((SqliteJournal, "append"), (Leadership, "write_note"), (KubernetesEngine, "__init__")):
        with monkeypatch.context() as patched:
            patched.setattr(victim, name, die)
            with pytest.raises(KeyboardInterrupt), controllers.leading(tmp_path / "second"):
                pass
    with controllers.leading(tmp_path / "second") as (users, _):
        users.until(lambda: users.phases() == ["running", "running", "queued"])
        assert picture(users) == before
        assert uids(users) == pods_before


def test_rest_of_an_owned_gang_is_evicted_and_begins_anew(controllers: Controllers, tmp_path: Path) -> None:
    with controllers.leading(tmp_path / "first") as (users, _):
        path = f"/apis/batch/v1/namespaces/{users.namespace}/jobs"
        users.client.create(path, job_of("owned", sleeping(), 2, 8, **SIGNAL))
        users.until(lambda: users.phases() == ["running"])
    # Nobody leads while one of its pods goes; the Job makes another, which nobody binds.
    gone, kept = sorted(users.placed())
    users.client.delete(pod_path(users.namespace, gone), grace=1)
    shutil.rmtree(tmp_path / "first")
    with controllers.leading(tmp_path / "second") as (users, taken):
        assert taken is not None
        assert not taken.jobs
        assert "begin anew" in taken.left[0]
        users.until(lambda: len(users.placed()) == 2 and users.phases() == ["running"], 60)
        assert not {gone, kept} & set(users.placed())


COMPASS = [sys.executable, "-m", "compass_abs"]


def test_serve_kubernetes_that_lost_its_folder_shows_what_runs(
    cluster: KubernetesCluster, client: Client, namespace: str, tmp_path: Path
) -> None:
    port = random.SystemRandom().randrange(27_700, 28_700)
    environment = dict(os.environ, KUBECONFIG=str(cluster.kubeconfig), COMPASS_URL=f"http://127.0.0.1:{port}")

    def compass(*arguments: str) -> Any:
        done = subprocess.run([*COMPASS, *arguments], env=environment, capture_output=True, text=True, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {"jobs": []}

    @contextmanager
    def serving(state: Path) -> Iterator[subprocess.Popen[bytes]]:
        options = ["--namespace", namespace, "--state", str(state), "--port", str(port)]
        with (tmp_path / f"{state.name}.log").open("wb") as log:
            process = subprocess.Popen([*COMPASS, "serve-kubernetes", *options], env=environment, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()

    def until(what: Callable[[], object], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline
            time.sleep(0.2)

    def running() -> list[Object]:
        return [job for job in compass("ps", "--json")["jobs"] if job["phase"] == "running"]

    with serving(tmp_path / "one") as process:
        for number in range(2):
            client.create(pod_path(namespace), pod(f"pair-{number}", sleeping(), 8, gang(2, "pair")))
        until(running)
        (before,) = running()
        process.send_signal(signal.SIGKILL)
    shutil.rmtree(tmp_path / "one")
    with serving(tmp_path / "two"):
        until(running)
        (after,) = running()
        assert (after["id"], after["nodes"]) == (before["id"], before["nodes"])
        assert "took 1 running jobs over from the cluster" in (tmp_path / "two.log").read_text()
