"""A real Kubernetes cluster on this machine for tests, from the scripts that users get."""

import os
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import ClassVar

import pytest

from compass_abs.engines.kubernetes.client import Client, Object
from tests.engines.crashing import kill_all
from tests.engines.free_ports import free_ports

SCRIPTS = Path(__file__).parents[2] / "deploy" / "test-clusters"
NEEDED = ("etcd", "kube-apiserver", "kube-controller-manager", "kubectl")
NEEDED_BY_NODES = ("kubelet", "containerd", "runc", "fake-gpu", "pause")


def binaries() -> Path:
    """Where k8s-build.sh puts what it builds."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "compass-abs"
    return Path(os.environ.get("COMPASS_CACHE") or cache) / "kubernetes" / "1.20.2" / "bin"


def skip_without_kubernetes() -> None:
    """Skips where the servers aren't built; tests build nothing."""
    _skip_without(NEEDED, "k8s-build.sh")


def skip_without_real_nodes() -> None:
    """The same for real nodes, which only root can have."""
    if os.geteuid() != 0:
        pytest.skip("real nodes need root, for their namespaces")
    _skip_without((*NEEDED, *NEEDED_BY_NODES), "k8s-build.sh --real")


def _skip_without(needed: tuple[str, ...], command: str) -> None:
    missing = [name for name in needed if not (binaries() / name).exists()]
    if missing:
        pytest.skip(f"no {', '.join(missing)} in {binaries()}; deploy/test-clusters/{command} builds them in 3 minutes")


class KubernetesCluster:
    """etcd, kube-apiserver, kube-controller-manager and nodes n1 to nN, whose pods are processes, under one folder."""

    #: Further arguments of k8s-up.sh.
    options: ClassVar[tuple[str, ...]] = ()

    def __init__(self, base: Path, nodes: int, gpus: int = 8, heartbeat: int = 1) -> None:
        self.base = base
        self.dead: list[str] = []
        self.kubeconfig = base / "kubeconfig"
        port = free_ports(range(20_000, 28_000, 10), range(5))
        environment = dict(os.environ, GPUS=str(gpus), HEARTBEAT=str(heartbeat), PORT=str(port))
        up = [str(SCRIPTS / "k8s-up.sh"), str(base), str(nodes), *self.options]
        done = subprocess.run(up, env=environment, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode:
            # Whoever asked for it gets nothing that could be taken down.
            self.down()
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
        deadline = time.monotonic() + 60
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
        self._until(lambda: healthy(client.get(f"/api/v1/nodes/{node}")), f"{node} isn't back after 60 s")
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
        kill_all([self.pid(daemon)])

    def start_daemon(self, daemon: str) -> None:
        """Starts one again that was killed."""
        environment = dict(os.environ, COMPASS_TEST_CLUSTER=str(self.base))
        words = (self.base / "log" / f"{daemon}.command").read_bytes().split(b"\0")[:-1]
        with (self.base / "log" / f"{daemon}.log").open("ab") as log:
            process = subprocess.Popen(
                [word.decode() for word in words],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=SCRIPTS,
            )
        process.returncode = 0  # not waited for: k8s-down.sh ends it
        (self.base / "log" / f"{daemon}.pid").write_text(f"{process.pid}\n")

    def down(self) -> str:
        """Takes it down."""
        down = [str(SCRIPTS / "k8s-down.sh"), str(self.base)]
        return subprocess.run(down, capture_output=True, text=True, timeout=60, check=False).stdout


class RealNodes(KubernetesCluster):
    """The same with kubelets, containerd and containers, each node in namespaces of its own. Root only."""

    options: ClassVar[tuple[str, ...]] = ("--real",)

    def kill_node(self, node: str) -> None:
        """Everything of it is gone at once."""
        self.dead.append(node)
        here = self.base / node
        containers = (path.read_text() for path in here.glob("state/io.containerd.runtime.v2.task/k8s.io/*/init.pid"))
        daemons = (path.read_text() for path in here.glob("log/*.pid"))
        kill_all([*map(int, daemons), *self._shims(node), *map(int, containers)])

    def _shims(self, node: str) -> list[int]:
        socket = str(self.base / node / "containerd.sock").encode()
        found = []
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = command.read_bytes().split(b"\0")
                if words[0].endswith(b"containerd-shim-runc-v2") and socket in words:
                    found.append(int(command.parent.name))
        return found

    def revive_node(self, node: str) -> None:
        """The node is back, and so are its GPUs: its plugin registers after the kubelet has said that it is ready."""
        self.start_daemon(f"node-{node}")
        super().revive_node(node)
        client = self.client()
        self._until(lambda: has_gpus(client.get(f"/api/v1/nodes/{node}")), f"{node} has no GPUs after 30 s")
        client.close()


def has_gpus(node: Object) -> bool:
    """True for a node that can give away all GPUs that it has."""
    have, give = (node["status"][kind].get("nvidia.com/gpu", "0") for kind in ("capacity", "allocatable"))
    return have == give != "0"


def healthy(node: Object) -> bool:
    """True for a node that is ready and that nobody keeps pods away from."""
    conditions = {each["type"]: each["status"] for each in node["status"].get("conditions") or ()}
    return conditions.get("Ready") == "True" and not node["spec"].get("taints")
