"""How fast each engine's hands are: from decision to process, and a whole move by phase, on real servers.

    python -m benchmarks.bench_engines [ENGINE ...]          # local warm slurm kubernetes ray; all that are here

Starts are of a program that only writes down when it runs, one at a time, and eight at once (until the last runs). A
move is that of one instance of a two-node DDP job on the CPU, by draining its node under a real controller; its phases
are those of the journal. `warm` is the local engine with a standby process on each node. Slurm's scheduler looks once
a second; Kubernetes has a kubelet that runs containers as processes.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import pytest
import structlog
from tests.engines.gangs import Story, training
from tests.engines.kubernetes_cluster import KubernetesCluster, skip_without_kubernetes
from tests.engines.opening import open_engine
from tests.engines.ray_cluster import ray_cluster
from tests.engines.shorthands import end_all
from tests.engines.slurm_cluster import SlurmCluster, skip_without_slurm

from compass_abs.controller.job_spec import JobSpec
from compass_abs.controller.migration import Phase
from compass_abs.controller.server import configure_logging
from compass_abs.engines.local import LocalEngine, Warmth
from compass_abs.engines.protocol import Engine, NodeHealth, RunId, RunPhase, StartOrder, Workload
from compass_abs.model import NodeStatus

STARTS, GANG, MOVES = 12, 8, 3
PATIENCE = 120.0


@contextmanager
def _local(folder: Path) -> Iterator[Engine]:
    yield LocalEngine(folder / "engine", nodes=4, gpus=8, real_gpus=())


@contextmanager
def _warm(folder: Path) -> Iterator[Engine]:
    engine = LocalEngine(folder / "engine", nodes=4, gpus=8, real_gpus=(), warmth=Warmth.STANDBY)
    assert engine._standbys is not None
    standbys = engine._standbys
    _until(lambda: all(standbys.ready(f"n{number}") for number in range(4)), "the standbys")
    yield engine


@contextmanager
def _slurm(folder: Path) -> Iterator[Engine]:
    skip_without_slurm()
    # Sockets have short names.
    with tempfile.TemporaryDirectory(prefix="cs-") as base:
        cluster = SlurmCluster(Path(base) / "c", nodes=4, gpus=8)
        try:
            yield open_engine("slurm", [str(folder / "engine"), str(cluster.conf)])
        finally:
            cluster.down()


@contextmanager
def _kubernetes(folder: Path) -> Iterator[Engine]:
    skip_without_kubernetes()
    with tempfile.TemporaryDirectory(prefix="ck-") as base:
        cluster = KubernetesCluster(Path(base) / "c", nodes=4)
        try:
            with cluster.namespace() as namespace:
                yield open_engine("kubernetes", [str(folder / "engine"), str(cluster.kubeconfig), namespace])
        finally:
            cluster.down()


@contextmanager
def _ray(folder: Path) -> Iterator[Engine]:
    with ray_cluster(nodes=4, gpus=8) as cluster:
        yield open_engine("ray", [str(folder / "engine"), cluster.address])


PLATFORMS = {"local": _local, "warm": _warm, "slurm": _slurm, "kubernetes": _kubernetes, "ray": _ray}


def _until(what: Callable[[], object], name: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name}: nothing within {PATIENCE:g} s")
        time.sleep(0.01)


def _gang(engine: Engine, job: str, nodes: Sequence[str], folder: Path) -> list[StartOrder]:
    """Orders of instances that write down when they run."""
    program = f"date +%s.%N > {folder}/$COMPASS_JOB_ID.$RANK.part; mv {folder}/$COMPASS_JOB_ID.$RANK.part "
    program += f"{folder}/$COMPASS_JOB_ID.$RANK; exec sleep 60"
    workload, meeting = Workload(("sh", "-c", program)), engine.rendezvous(job, 1, nodes)
    return [StartOrder(RunId(job, rank, 1), workload, tuple(nodes), 1, meeting) for rank in range(len(nodes))]


def start(engine: Engine, job: str, nodes: Sequence[str], folder: Path) -> float:
    """Seconds from the order until the last process runs."""
    orders = _gang(engine, job, nodes, folder)
    stamps = [folder / f"{job}.{rank}" for rank in range(len(nodes))]
    began = time.time()
    for order in orders:
        engine.start(order)
    _until(lambda: all(stamp.exists() for stamp in stamps), job)
    found = max(float(stamp.read_text()) for stamp in stamps) - began
    for order in orders:
        engine.kill(order.run)
    ours = {order.run for order in orders}
    _until(lambda: all(r.phase is RunPhase.ENDED for r in engine.observe().runs if r.run in ours), job)
    return found


def starts(engine: Engine, folder: Path) -> tuple[list[float], float]:
    """Seconds of single starts, and of a gang's."""
    nodes = [node.name for node in engine.observe().nodes if node.health is NodeHealth.READY]
    single = [start(engine, f"s{number}", [nodes[number % len(nodes)]], folder) for number in range(STARTS)]
    return single, start(engine, "gang", (nodes * GANG)[:GANG], folder)


def moves(engine: Engine, folder: Path) -> list[dict[str, float]]:
    """Seconds of each phase of some moves of one instance of a running DDP job."""
    story = Story(folder, engine)
    try:
        gpus = engine.observe().nodes[0].gpus
        command = training(folder, steps=100_000)
        spec = JobSpec(name="pair", instances=2, gpus_per_instance=gpus, command=command)  # type: ignore[arg-type]
        job = story.service.ask(lambda c: c.submit(spec))
        for number in range(MOVES):
            before = story.steps_done(folder)
            story.until(job, lambda entry, before=before: story.steps_done(folder) > before + 3)  # type: ignore[misc]
            leaving = story.entry(job).nodes[1]
            story.service.ask(lambda c, node=leaving: c.set_node(node, NodeStatus.DRAINING))  # type: ignore[misc]
            story.until(job, lambda entry, number=number: len(story.migrations()) > number)  # type: ignore[misc]
            story.service.ask(lambda c, node=leaving: c.set_node(node, NodeStatus.UP))  # type: ignore[misc]
        story.service.ask(lambda c: c.cancel(job))
        _until(lambda: story.entry(job).over, "the end of the job")
        return [ended.seconds for ended in story.migrations()]
    finally:
        story.close()


def measure(name: str) -> None:
    """Prints a row."""
    with tempfile.TemporaryDirectory(prefix="compass-") as folder, PLATFORMS[name](Path(folder)) as engine:
        single, gang = starts(engine, Path(folder))
        try:
            phases = moves(engine, Path(folder))
        finally:
            end_all(engine)
    by_phase = [median(seconds.get(phase, 0.0) for seconds in phases) for phase in Phase]
    whole = median(sum(seconds.values()) for seconds in phases)
    cells = [median(single), max(single), gang, *by_phase, whole]
    print(f"{name:12}" + "".join(f"{cell:11.3f}" for cell in cells), flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    """Measures and prints; says which servers are not here."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_engines")
    parser.add_argument("engines", nargs="*", choices=[*PLATFORMS, []], default=[])
    wanted = parser.parse_args(arguments).engines or list(PLATFORMS)
    configure_logging(as_json=False, level="error")
    print(f"seconds; medians of {STARTS} starts and {MOVES} moves of one instance of a two-node DDP job, CPU")
    titles = ["start", "slowest", f"gang of {GANG}", *Phase, "move"]
    print(f"{'':12}" + "".join(f"{title:>11}" for title in titles), flush=True)
    for name in wanted:
        try:
            measure(name)
        except pytest.skip.Exception as reason:
            print(f"{name:12}  skipped: {reason.msg}", flush=True)
    structlog.reset_defaults()


if __name__ == "__main__":
    main(sys.argv[1:])
