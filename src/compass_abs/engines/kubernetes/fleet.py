"""The cluster's nodes with GPUs: what each is good for, and what the controller has been told of it."""

import threading
import time
from collections.abc import Callable, Iterator

from compass_abs.engines.kubernetes import pods
from compass_abs.engines.kubernetes.client import Object
from compass_abs.engines.kubernetes.ledger import Ledger
from compass_abs.engines.kubernetes.nodes import GpuNode, read_node
from compass_abs.engines.kubernetes.requests import requests_of
from compass_abs.engines.protocol import EngineRefusalError, NodeHealth, NodeReport

#: A node that lacks processors or memory is closed for so long, or until its pods change.
_REMEMBERED = 60.0


class Fleet:
    """Kept up to date node by node; `tell` hears of every change. Thread-safe by the lock that it is given."""

    def __init__(
        self, resource: str, ledger: Ledger, lock: threading.RLock, tell: Callable[[NodeReport], None]
    ) -> None:
        self._resource, self._ledger, self._lock, self._tell = resource, ledger, lock, tell
        self._nodes: dict[str, GpuNode] = {}
        #: Grows with every change of a node.
        self.changes = 0
        #: The pool that each node was first seen in: it can't leave it under running jobs.
        self._pools: dict[str, str] = {}
        self._told: dict[str, NodeReport] = {}
        #: Nodes with GPUs to spare that had no room for a pod otherwise: why, and until when that is remembered.
        self._short: dict[str, tuple[str, float]] = {}

    def node_changed(self, kind: str, node: Object) -> None:
        """Takes a node into account."""
        name = str(node["metadata"]["name"])
        found = read_node(node, self._resource) if kind != "DELETED" else None
        with self._lock:
            if found != self._nodes.get(name):
                self.changes += 1
            if found is None:
                self._nodes.pop(name, None)
            else:
                self._nodes[name] = found
            self.tell(name)

    def pods_changed(self, name: str) -> None:
        """Something came to a node, or left it."""
        with self._lock:
            self._short.pop(name, None)
            self.tell(name)

    def tell(self, name: str) -> None:
        """Tells what a node is good for, unless that was told."""
        with self._lock:
            node, told = self._nodes.get(name), self._told.get(name)
            if node is not None:
                report = self._report(node)
            elif told is not None:
                report = NodeReport(name, told.gpus, told.pool, NodeHealth.LOST, "removed")
            else:
                return
            if report != told:
                self._told[name] = report
                self._tell(report)

    def reports(self) -> Iterator[NodeReport]:
        """All nodes, as they are now."""
        with self._lock:
            yield from [self._report(node) for node in self._nodes.values()]

    def _report(self, node: GpuNode) -> NodeReport:
        """Other schedulers' pods close a node: what they hold is fixed, and what they will ask for isn't known."""
        pool = self._pools.setdefault(node.name, node.pool)
        health, detail = node.health, node.detail
        foreign = {key: each.gpus for key, each in self._ledger.holdings(node.name).items() if each.run is None}
        if health is NodeHealth.READY and pool != node.pool:
            health = NodeHealth.CORDONED
            detail = f"it was in pool {pool!r} and is labelled or tainted for {node.pool!r}; restart COMPASS to follow"
        elif health is NodeHealth.READY and foreign:
            whose = ", ".join("/".join(key) for key in sorted(foreign)[:5])
            health, detail = NodeHealth.CORDONED, f"{sum(foreign.values())} GPUs are held by pods of others: {whose}"
        elif health is NodeHealth.READY and time.monotonic() < self._short.get(node.name, ("", 0.0))[1]:
            health, detail = NodeHealth.CORDONED, self._short[node.name][0]
        return NodeReport(node.name, node.gpus, pool, health, detail)

    def usable(self, name: str) -> GpuNode:
        """The node of this name; refuses unless something may start on it."""
        with self._lock:
            node = self._nodes.get(name)
        if node is None:
            raise EngineRefusalError(f"there is no node {name!r} with {self._resource}")
        if node.health is not NodeHealth.READY:
            raise EngineRefusalError(f"node {name!r} is {node.health}: {node.detail}")
        return node

    def address(self, name: str) -> str:
        """Where a node can be reached; its name where it says nothing."""
        with self._lock:
            node = self._nodes.get(name)
        return (node.address if node is not None else "") or name

    def pools(self) -> dict[str, list[GpuNode]]:
        """Nodes by pool."""
        found: dict[str, list[GpuNode]] = {}
        with self._lock:
            for node in self._nodes.values():
                found.setdefault(self._pools.get(node.name, node.pool), []).append(node)
        return found

    def check_room(self, node: GpuNode, pod: Object) -> None:
        """Refuses unless the node has the processors and the memory that a pod asks for; then it is closed for a while:
        only GPUs count where it is decided who goes where.
        """
        short = node.capacity.minus(self._ledger.asked(node.name)).shortage(requests_of(pod))
        if short:
            said = f"no room for {pods.key_of(pod)[1]}: {short}"
            with self._lock:
                self._short[node.name] = (said, time.monotonic() + _REMEMBERED)
                self.tell(node.name)
            raise EngineRefusalError(f"node {node.name!r} has {said}")
