"""The Slurm engine on a real cluster: what every engine must do, and what only it can."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from compass_abs.engines.protocol import Engine, RunPhase
from compass_abs.engines.slurm import SlurmEngine
from tests.engines.conformance import EngineConformance
from tests.engines.gangs import GangConformance, undisturbed
from tests.engines.slurm_cluster import SlurmCluster, skip_without_slurm

__all__ = ["undisturbed"]

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    skip_without_slurm()
    # Sockets have short names: pytest's folders may be too deep.
    with tempfile.TemporaryDirectory(prefix="cs-") as base:
        cluster = SlurmCluster(Path(base) / "c", nodes=8, gpus=8)
        yield cluster
        cluster.down()


def end_all(engine: Engine) -> None:
    """Leaves nothing for the next test."""
    for report in engine.observe().runs:
        engine.kill(report.run)
    deadline = time.monotonic() + 15
    while any(r.phase is not RunPhase.ENDED for r in engine.observe().runs) and time.monotonic() < deadline:
        time.sleep(0.05)
    engine.close()


class OnSlurm:
    """Fixtures and hooks."""

    @pytest.fixture
    def engine(self, cluster: SlurmCluster, tmp_path: Path) -> Iterator[Engine]:
        self._root, self._cluster = tmp_path / "engine", cluster
        self._engines = [SlurmEngine(self._root, configuration=cluster.conf)]
        yield self._engines[0]
        end_all(self._engines[-1])
        for node in cluster.dead:
            cluster.revive_node(node)

    def reopen(self, engine: Engine) -> Engine:
        engine.close()
        self._engines.append(SlurmEngine(self._root, configuration=self._cluster.conf))
        return self._engines[-1]


class TestSlurmEngine(OnSlurm, EngineConformance):
    pass


class TestSlurmGangs(OnSlurm, GangConformance):
    def serving(self) -> Sequence[str]:
        return ["slurm", str(self._root), str(self._cluster.conf)]

    def lose_node(self, engine: Engine, node: str) -> None:
        self._cluster.kill_node(node)
        # What a health check or an operator does; without it SlurmdTimeout has to pass.
        self._cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power")
