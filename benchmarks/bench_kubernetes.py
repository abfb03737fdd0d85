"""COMPASS on a real kube-apiserver: admissions a second at 500 and 2,000 nodes, from order to process, whole moves.

    make bench ONLY=kubernetes
    python -m benchmarks.bench_kubernetes --real       # the last two on kubelets and containers (root), not processes

The API server, etcd and the controllers are real, nodes are pretended (deploy/test-clusters/fake_kubelet); they,
COMPASS and this program share one machine. Pods without a command are pretended to run: what is measured is the way
there. Built first by deploy/test-clusters/k8s-build.sh; without it nothing is measured.
"""

import argparse
import contextlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.engines.kubernetes_cluster import (
    NEEDED,
    NEEDED_BY_NODES,
    KubernetesCluster,
    RealNodes,
    binaries,
)
from tests.engines.real_pods import pod_spec

from benchmarks.bench_controller import SIZES
from benchmarks.engine_latency import (
    order_to_process,
    percentile,
    print_latencies,
    print_moves,
    whole_move,
)
from compass_abs.controller.server import configure_logging
from compass_abs.engines.kubernetes import Client, KubernetesEngine, PodSettings
from compass_abs.engines.kubernetes.client import Object, WatchEvent, pod_path
from compass_abs.engines.protocol import EngineUnavailableError

#: Nodes, and jobs that fit on them together with room to spare.
SCALES = ((500, 600), (2000, 2000))
#: Pods that come one by one afterwards, and how many a second.
SINGLE, PACE = 100, 20.0
ROUNDS, MOVES = 20, 3
PATIENCE = 300.0


def main(arguments: Sequence[str] = ()) -> None:
    """Measures and prints."""
    given = argparse.ArgumentParser(prog="python -m benchmarks.bench_kubernetes")
    given.add_argument("--real", action="store_true", help="latencies on real kubelets")
    given.add_argument("--nodes", type=int, nargs="*", help="only these of the scales")
    options = given.parse_args(arguments)
    configure_logging(as_json=False, level="error")
    missing = [
        name for name in (*NEEDED, *(NEEDED_BY_NODES if options.real else ())) if not (binaries() / name).exists()
    ]
    if missing:
        print(
            f"skipped: no {', '.join(missing)}; deploy/test-clusters/k8s-build.sh {'--real ' * options.real}builds them"
        )
        return
    if not options.real:
        for nodes, jobs in SCALES:
            if options.nodes is None or nodes in options.nodes:
                with cluster(KubernetesCluster, nodes) as up:
                    admissions(up, nodes, jobs)
    if options.nodes is None:
        with cluster(RealNodes if options.real else KubernetesCluster, 4) as up:
            latencies(up, "real kubelets" if options.real else "pretended kubelets")


@contextlib.contextmanager
def cluster(kind: type[KubernetesCluster], nodes: int) -> Iterator[KubernetesCluster]:
    """Brought up, and taken down."""
    with tempfile.TemporaryDirectory(prefix="bk-") as base:
        began = time.perf_counter()
        up = kind(Path(base) / "c", nodes, heartbeat=max(1, nodes // 50))
        print(f"{nodes} nodes up in {time.perf_counter() - began:.1f} s", flush=True)
        try:
            yield up
        finally:
            up.down()


# ---- admissions


def pod(name: str, gpus: int) -> Object:
    """A user's pod: a job of its own."""
    container = {"name": "main", "image": "pretended", "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    spec = {"schedulerName": "compass-abs", "restartPolicy": "Never", "containers": [container]}
    return {"metadata": {"name": name}, "spec": spec}


class Bindings:
    """When each pod of a namespace was seen bound."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.at: dict[str, float] = {}
        self._client, self._path = client, pod_path(namespace)
        self._version = client.list(self._path).version
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        # ends with the cluster
        with contextlib.suppress(EngineUnavailableError):
            for event in self._client.watch(self._path, self._version):
                self._take(event)

    def _take(self, event: WatchEvent) -> None:
        if (event.object.get("spec") or {}).get("nodeName"):
            self.at.setdefault(event.object["metadata"]["name"], time.time())

    def wait(self, names: Sequence[str]) -> None:
        """Until all of them are bound."""
        deadline = time.monotonic() + PATIENCE
        while missing := [name for name in names if name not in self.at]:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{len(missing)} of {len(names)} pods are not bound after {PATIENCE:.0f} s")
            time.sleep(0.01)


@contextlib.contextmanager
def serving(up: KubernetesCluster) -> Iterator[tuple[subprocess.Popen[str], float]]:
    """`compass serve-kubernetes` as people start it, and when it began to listen."""
    with tempfile.TemporaryDirectory(prefix="bs-") as state, (Path(state) / "log").open("w+") as log:
        command = [sys.executable, "-m", "compass_abs", "serve-kubernetes", "--state", state, "--port", "0"]
        environment = dict(os.environ, KUBECONFIG=str(up.kubeconfig))
        process = subprocess.Popen(command, env=environment, stderr=log, stdout=log, text=True)
        try:
            while "listening on" not in (Path(state) / "log").read_text():
                if process.poll() is not None:
                    raise RuntimeError((Path(state) / "log").read_text())
                time.sleep(0.005)
            yield process, time.time()
        finally:
            process.terminate()
            process.wait(60)


def admissions(up: KubernetesCluster, nodes: int, jobs: int) -> None:
    """How quickly a backlog is admitted, and how quickly single pods are on the cluster that it has filled."""
    draw = random.Random(1)
    with contextlib.closing(up.client()) as client, up.namespace() as space:
        bindings = Bindings(client, space)

        def create(name: str) -> float:
            gpus = draw.choices([size for size, _ in SIZES], [share for _, share in SIZES])[0]
            client.create(pod_path(space), pod(name, gpus))
            return time.time()

        backlog = [f"job-{number}" for number in range(jobs)]
        began = time.time()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(create, backlog))
        created = time.time() - began
        with serving(up) as (process, listening):
            before = processor_seconds(process.pid)
            bindings.wait(backlog)
            admitted = max(bindings.at.values()) - listening
            used = processor_seconds(process.pid) - before
            single = []
            for number in range(SINGLE):
                name = f"single-{number}"
                made = create(name)
                single.append((name, made))
                time.sleep(max(0.0, made + 1 / PACE - time.time()))
            bindings.wait([name for name, _ in single])
        waited = [1000 * (bindings.at[name] - made) for name, made in single]
    print(
        f"{nodes} nodes, {jobs} jobs waiting: {jobs / admitted:.0f} admissions/s (target 100), in {admitted:.1f} s; "
        f"{1000 * used / jobs:.1f} ms of COMPASS's processor each; their pods were made at {jobs / created:.0f}/s"
    )
    p50, p90 = statistics.median(waited), percentile(waited, 0.9)
    print(
        f"{nodes} nodes, {SINGLE} more at {PACE:.0f}/s: created to bound {p50:.0f} ms median, {p90:.0f} ms p90",
        flush=True,
    )


def processor_seconds(pid: int) -> float:
    """Of a process, up to now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# ---- latencies


def latencies(up: KubernetesCluster, kind: str) -> None:
    """From binding and from order to process, and whole moves."""
    with tempfile.TemporaryDirectory(prefix="bl-") as name, up.namespace() as space:
        folder = Path(name)
        with contextlib.closing(up.client()) as client:
            print_latencies(
                f"{kind}, a user's pod from binding to its process", binding_to_process(client, space, folder)
            )
        template = {"spec": pod_spec()} if isinstance(up, RealNodes) else {}
        settings = PodSettings(space, image="test", template=template)
        engine = KubernetesEngine(folder / "engine", Client.connect(kubeconfig=up.kubeconfig), settings)
        try:
            print_latencies(f"{kind}, a job of ours from order to process", order_to_process(engine, folder, ROUNDS))
            print_moves(f"{kind}, whole move, cold", [whole_move(engine) for _ in range(MOVES)])
        finally:
            engine.close()


def binding_to_process(client: Client, space: str, folder: Path) -> list[float]:
    """Seconds between the binding of a user's pod and the first thing that it does."""
    found = []
    for number in range(ROUNDS):
        name, stamp = f"bound-{number}", folder / f"bound-{number}"
        manifest: Object = {"metadata": {"name": name}, "spec": pod_spec()}
        command = f"date +%s.%N > {stamp}.new; mv {stamp}.new {stamp}"
        manifest["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", command]
        manifest["spec"] |= {"schedulerName": "nobody", "restartPolicy": "Never"}
        client.create(pod_path(space), manifest)
        began = time.time()
        client.bind(space, name, "n1")
        deadline = time.monotonic() + PATIENCE
        while not stamp.exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        found.append(float(stamp.read_text()) - began)
        client.delete(pod_path(space, name), grace=1)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
