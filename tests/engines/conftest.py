"""Clusters that several test modules share."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.kubernetes_cluster import KubernetesCluster, skip_without_kubernetes


@pytest.fixture(scope="session")
def kubernetes() -> Iterator[KubernetesCluster]:
    """Eight nodes of eight GPUs. Each test leaves it as it found it: a namespace of its own is the easiest way."""
    skip_without_kubernetes()
    with tempfile.TemporaryDirectory(prefix="ck-") as base:
        cluster = KubernetesCluster(Path(base) / "c", nodes=8)
        yield cluster
        cluster.down()
