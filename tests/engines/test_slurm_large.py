"""The Slurm engine on a cluster of 64 nodes: all of it in one gang, and what becomes of it when a node goes."""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from compass_abs.engines.protocol import EndCause, Engine, EngineRefusalError, RunPhase
from compass_abs.engines.slurm import SlurmEngine
from tests.engines.shorthands import Shorthands, end_all
from tests.engines.slurm_cluster import SlurmCluster, skip_without_slurm

pytestmark = pytest.mark.engine

NODES = 64


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    skip_without_slurm()
    with tempfile.TemporaryDirectory(prefix="cl-") as base:
        cluster = SlurmCluster(Path(base) / "c", nodes=NODES, gpus=8)
        yield cluster
        cluster.down()


@pytest.fixture
def engine(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Engine]:
    engine = SlurmEngine(tmp_path / "engine", configuration=cluster.conf)
    yield engine
    end_all(engine)


class TestLargeSlurm(Shorthands):
    patience = 60.0

    def test_gang_of_every_gpu_starts_together_and_leaves_no_room(
        self, engine: Engine, cluster: SlurmCluster, job: str
    ) -> None:
        nodes = self.nodes(engine)
        assert len(nodes) == NODES
        program = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(300)"]
        gang = self.orders(engine, job, nodes, program, 8)
        for order in gang:
            engine.start(order)
        for order in gang:
            self.until(engine, order.run, lambda report: report.phase is RunPhase.RUNNING)
        listed = cluster.run("squeue", "-h", "-p", "compass", "-t", "running", "-o", "%N %S").split()
        assert sorted(listed[::2]) == sorted(nodes)
        assert len(set(listed[1::2])) <= 2, "all of them are started in one round of Slurm, within a second or two"
        (more,) = self.orders(engine, f"{job}x", nodes[:1], program, 1)
        with pytest.raises(EngineRefusalError, match="0 free GPUs"):
            engine.start(more)
        cluster.kill_node("n33")
        cluster.run("scontrol", "update", "NodeName=n33", "State=DOWN", "Reason=power")
        victim = next(order for order in gang if order.node == "n33")
        end = self.ended(engine, victim.run).end
        assert end is not None
        assert end.cause is EndCause.NODE_LOST
        for order in gang:
            engine.kill(order.run)
        for order in gang:
            self.ended(engine, order.run)
