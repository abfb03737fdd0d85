"""Kubernetes as a platform of fault schedules: its servers and its nodes die at any moment."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random

from compass_abs.engines.kubernetes import names
from compass_abs.engines.kubernetes.client import pod_path
from tests.engines.kubernetes_cluster import KubernetesCluster

#: Killed and started again. Pods of the test cluster's kubelets don't outlive the process that all kubelets are.
SERVERS = ("kube-apiserver", "etcd", "kube-controller-manager")


class KubernetesPlatform:
    """A cluster's control plane, nodes and pods, and who else may touch them."""

    environment: Mapping[str, str] = {}

    def __init__(self, cluster: KubernetesCluster, folder: Path, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._client = cluster.client()
        self._nodes = [node["metadata"]["name"] for node in self._client.list("/api/v1/nodes").items]
        self.opening: Sequence[str] = ("kubernetes", str(folder / "engine"), str(cluster.kubeconfig), namespace)
        self.strikes: Mapping[str, Callable[[Random], None]] = {
            "server": self._restart_server,
            "connections": self._stop_server_for_a_while,
            "node": self._kill_node,
            "node back": self._revive,
            "pod": self._delete_pod,
        }

    def _restart_server(self, pick: Random) -> None:
        server = pick.choice(SERVERS)
        self._cluster.kill_daemon(server)
        time.sleep(pick.uniform(0.0, 3.0))
        self._cluster.start_daemon(server)

    def _stop_server_for_a_while(self, pick: Random) -> None:
        """Every connection is cut; new ones are refused."""
        self._cluster.kill_daemon("kube-apiserver")
        time.sleep(pick.uniform(2.0, 6.0))
        self._cluster.start_daemon("kube-apiserver")

    def _kill_node(self, pick: Random) -> None:
        alive = [node for node in self._nodes if node not in self._cluster.dead]
        if len(alive) > 2:
            self._cluster.kill_node(pick.choice(alive))

    def _revive(self, pick: Random) -> None:
        if self._cluster.dead:
            self._wait_for_server()
            self._cluster.revive_node(pick.choice(self._cluster.dead))

    def _delete_pod(self, pick: Random) -> None:
        """Somebody drains a node by hand, or a pod is preempted."""
        self._wait_for_server()
        found = self._ours()
        if found:
            self._client.delete(pod_path(self._namespace, pick.choice(found)), grace=pick.choice((1, 5)))

    def _wait_for_server(self) -> None:
        deadline = time.monotonic() + 30
        while not self._answers():
            assert time.monotonic() < deadline, "the API server is not back after 30 s"
            time.sleep(0.2)

    def _answers(self) -> bool:
        try:
            return bool(self._client.text("/readyz"))
        except Exception:
            return False

    def _ours(self) -> list[str]:
        listing = self._client.list(pod_path(self._namespace), labelSelector=names.JOB_ID_LABEL)
        return [pod["metadata"]["name"] for pod in listing.items]

    def heal(self) -> None:
        self._wait_for_server()
        for node in list(self._cluster.dead):
            self._cluster.revive_node(node)

    def leftovers(self) -> list[str]:
        return self._ours()

    def close(self) -> None:
        """Lets go of the connection."""
        self._client.close()
