"""Fault schedules on a real API server: a few in each run, many with `-m nightly`."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.fault_schedule import FaultSchedule
from tests.engines.kubernetes_cluster import KubernetesCluster, skip_without_kubernetes
from tests.engines.kubernetes_platform import KubernetesPlatform

pytestmark = pytest.mark.engine


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubernetesCluster]:
    """One of its own: its servers are killed."""
    skip_without_kubernetes()
    with tempfile.TemporaryDirectory(prefix="cf-") as base:
        cluster = KubernetesCluster(Path(base) / "c", nodes=4, gpus=4)
        yield cluster
        cluster.down()


def play(cluster: KubernetesCluster, folder: Path, seed: int) -> None:
    with cluster.namespace() as namespace:
        platform = KubernetesPlatform(cluster, folder, namespace)
        try:
            FaultSchedule(seed, platform, folder).play()
        finally:
            platform.heal()
            platform.close()


@pytest.mark.parametrize("seed", range(2))
def test_fault_schedule_on_kubernetes_loses_and_doubles_nothing(
    cluster: KubernetesCluster, tmp_path: Path, seed: int
) -> None:
    play(cluster, tmp_path, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_fault_schedules_on_kubernetes(cluster: KubernetesCluster, tmp_path: Path, seed: int) -> None:
    play(cluster, tmp_path, seed)
