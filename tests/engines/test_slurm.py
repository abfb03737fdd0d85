"""The Slurm engine on a real cluster: what every engine must do, and what only it can."""

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compass_abs.engines.protocol import Engine, RunPhase
from compass_abs.engines.slurm import SlurmEngine
from tests.engines.conformance import EngineConformance
from tests.engines.slurm_cluster import SlurmCluster, skip_without_slurm

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


class TestSlurmEngine(EngineConformance):
    @pytest.fixture
    def engine(self, cluster: SlurmCluster, tmp_path: Path) -> Iterator[Engine]:
        self._root, self._conf = tmp_path / "engine", cluster.conf
        self._engines = [SlurmEngine(self._root, configuration=cluster.conf)]
        yield self._engines[0]
        end_all(self._engines[-1])

    def reopen(self, engine: Engine) -> Engine:
        engine.close()
        self._engines.append(SlurmEngine(self._root, configuration=self._conf))
        return self._engines[-1]
