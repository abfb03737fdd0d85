"""A real Ray cluster on this machine for tests: a head and some raylets in a network that has only loopback.

Ray looks for an address of this machine by itself and would bind it; hence the namespace.
"""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_CLONE_NEWNET = 0x4000_0000
#: A dead node is noticed within some 3 s instead of 14.
FAST_HEALTH_CHECKS = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}


@contextmanager
def own_network() -> Iterator[None]:
    """This thread, and what it starts, has a network of its own; skips where that isn't allowed."""
    system = ctypes.CDLL(None, use_errno=True)
    if not shutil.which("ip"):
        pytest.skip("needs iproute2 to give Ray a network of its own")
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        if system.unshare(_CLONE_NEWNET) != 0:
            pytest.skip("needs root to give Ray a network of its own")
        try:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            yield
        finally:
            assert system.setns(before, _CLONE_NEWNET) == 0
    finally:
        os.close(before)


class RayCluster:
    """A head without GPUs, and nodes `n0`, `n1`, ... with some that are only said to be there."""

    def __init__(self, nodes: int, gpus: int) -> None:
        # A test may run where another program's cluster is set in the environment.
        os.environ.pop("RAY_ADDRESS", None)
        os.environ.update(FAST_HEALTH_CHECKS)
        import ray
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "object_store_memory": 100 << 20, "include_dashboard": False}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self._gpus = gpus
        self._nodes: dict[str, Any] = {}
        self.dead: list[str] = []
        for number in range(nodes):
            self._add(f"n{number}", wait=False)
        self._cluster.wait_for_nodes()
        self.address = str(self._cluster.address)
        ray.init(address=self.address, log_to_driver=False)

    def _add(self, name: str, *, wait: bool) -> None:
        self._nodes[name] = self._cluster.add_node(
            num_cpus=16,
            num_gpus=self._gpus,
            object_store_memory=80 << 20,
            labels={"name": name},
            wait=wait,
        )

    def kill_node(self, name: str) -> None:
        """A power failure: its raylet and everything on it."""
        self.dead.append(name)
        self._cluster.remove_node(self._nodes.pop(name), allow_graceful=False)

    def revive_node(self, name: str) -> None:
        """A node of this name is there again."""
        self._add(name, wait=True)
        self.dead.remove(name)

    def down(self) -> None:
        """Takes it down."""
        import ray

        ray.shutdown()
        self._cluster.shutdown()


@contextmanager
def ray_cluster(nodes: int = 3, gpus: int = 8) -> Iterator[RayCluster]:
    """A cluster in a network of its own; skips without Ray."""
    pytest.importorskip("ray", reason="pip install 'compass-abs[sweep]'")
    with own_network():
        cluster = RayCluster(nodes, gpus)
        try:
            yield cluster
        finally:
            cluster.down()
