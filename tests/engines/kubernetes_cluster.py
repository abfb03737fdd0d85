"""A real Kubernetes cluster on this machine for tests, from the scripts that users get; see docs/test-clusters.md."""

import os
import random
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compass_abs.engines.kubernetes.client import Client, Object

SCRIPTS = Path(__file__).parents[2] / "deploy" / "test-clusters"
NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")


def binaries() -> Path:
    """Where k8s-build.sh puts what it builds."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "compass-abs"
    return Path(os.environ.get("COMPASS_CACHE") or cache) / "kubernetes" / "1.20.2" / "bin"


def skip_without_kubernetes(needed: tuple[str, ...] = NEEDED) -> None:
    """Skips where the servers aren't built; tests build nothing."""
    missing = [name for name in needed if not (binaries() / name).exists()]
    if missing:
        pytest.skip(
            f"no {', '.join(missing)} in {binaries()}; deploy/test-clusters/k8s-build.sh builds them in 3 minutes"
        )


class KubernetesCluster:
    """etcd, kube-apiserver, kube-controller-manager and nodes n1 to nN, whose pods are processes, under one folder."""

    def __init__(self, base: Path, nodes: int, gpus: int = 8, heartbeat: int = 1) -> None:
        self.base = base
        self.dead: list[str] = []
        self.kubeconfig = base / "kubeconfig"
        self._commands: dict[str, list[str]] = {}
        port = random.SystemRandom().randrange(20_000, 28_000, 10)
        environment = dict(os.environ, GPUS=str(gpus), HEARTBEAT=str(heartbeat), PORT=str(port))
        up = [str(SCRIPTS / "k8s-up.sh"), str(base), str(nodes)]
        done = subprocess.run(up, env=environment, capture_output=True, text=True, timeout=180, check=False)
        assert done.returncode == 0, done.stderr

    def client(self) -> Client:
        """The API server, as its administrator. To be closed."""
        return Client.connect(kubeconfig=self.kubeconfig)

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        """What kubectl prints, as the cluster's administrator."""
        done = subprocess.run(
            [str(binaries() / "kubectl"), *arguments],
            env=dict(os.environ, KUBECONFIG=str(self.kubeconfig)),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            cwd=self.base,
            check=False,
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    @contextmanager
    def namespace(self) -> Iterator[str]:
        """A namespace of its own for a test, in which pods can be made; afterwards nothing of it is left."""
        name, client = f"t-{uuid.uuid4().hex[:8]}", self.client()
        path = f"/api/v1/namespaces/{name}"
        client.create("/api/v1/namespaces", {"metadata": {"name": name}})
        self._until(
            lambda: (client.find(f"{path}/serviceaccounts/default") or {}).get("secrets"), f"{name} is not made"
        )
        yield name
        for node in list(self.dead):
            self.revive_node(node)
        for pod in client.list(f"{path}/pods").items:
            client.delete(f"{path}/pods/{pod['metadata']['name']}", grace=0)
        client.delete(path)
        client.close()

    @staticmethod
    def _until(condition: Callable[[], object], otherwise: str) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, otherwise
            time.sleep(0.05)

    # ---- nodes

    def kill_node(self, node: str) -> None:
        """A power failure: its processes are gone, and nobody says so. After 6 heartbeats its Ready is Unknown."""
        self.dead.append(node)
        self._tell(node, "dead")

    def cut_node(self, node: str) -> None:
        """A broken network: its processes run on, and it hears and says nothing."""
        self.dead.append(node)
        self._tell(node, "cut")

    def revive_node(self, node: str) -> None:
        """The node is back; returns when it is ready, without taints of the node controller."""
        (self.base / "control" / node).unlink(missing_ok=True)
        if node in self.dead:
            self.dead.remove(node)
        client = self.client()
        self._until(lambda: healthy(client.get(f"/api/v1/nodes/{node}")), f"{node} isn't back after 30 s")
        client.close()

    def _tell(self, node: str, life: str) -> None:
        folder = self.base / "control"
        (folder.parent / f"{node}.new").write_text(life)
        (folder.parent / f"{node}.new").rename(folder / node)  # never seen half written

    # ---- the control plane

    def pid(self, daemon: str) -> int:
        """The process of `etcd`, `kube-apiserver`, `kube-controller-manager` or `fake-kubelet`."""
        return int((self.base / "log" / f"{daemon}.pid").read_text())

    def kill_daemon(self, daemon: str) -> None:
        """As a crash does."""
        pid = self.pid(daemon)
        self._commands[daemon] = [word.decode() for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
        os.kill(pid, signal.SIGKILL)

    def start_daemon(self, daemon: str) -> None:
        """Starts one again that was killed."""
        environment = dict(os.environ, COMPASS_TEST_CLUSTER=str(self.base))
        with (self.base / "log" / f"{daemon}.log").open("ab") as log:
            process = subprocess.Popen(
                self._commands[daemon], env=environment, stdout=log, stderr=log, start_new_session=True, cwd=SCRIPTS
            )
        process.returncode = 0  # not waited for: k8s-down.sh ends it
        (self.base / "log" / f"{daemon}.pid").write_text(f"{process.pid}\n")

    def down(self) -> str:
        """Takes it down."""
        down = [str(SCRIPTS / "k8s-down.sh"), str(self.base)]
        return subprocess.run(down, capture_output=True, text=True, timeout=60, check=False).stdout


def healthy(node: Object) -> bool:
    """True for a node that is ready and that nobody keeps pods away from."""
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions") or ()}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")
