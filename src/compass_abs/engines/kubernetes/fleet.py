"""The cluster's nodes with GPUs: what each is good for, and what the controller has been told of it."""

import threading
from collections.abc import Callable, Iterator

from compass_abs.audit.kubernetes_rules import Place
from compass_abs.engines.kubernetes.client import Object
from compass_abs.engines.kubernetes.ledger import Ledger
from compass_abs.engines.kubernetes.nodes import GpuNode, read_node
from compass_abs.engines.protocol import EngineRefusalError, NodeHealth, NodeReport


class Fleet:
    """Kept up to date node by node; `tell` hears of every change. Thread-safe by the lock that it is given."""

    def __init__(
        self, resource: str, ledger: Ledger, lock: threading.RLock, tell: Callable[[NodeReport], None]
    ) -> None:
        self._resource, self._ledger, self._lock, self._tell = resource, ledger, lock, tell
        self._nodes: dict[str, GpuNode] = {}
        #: The pool that each node was first seen in: it can't leave it under running jobs.
        self._pools: dict[str, str] = {}
        self._told: dict[str, NodeReport] = {}

    def node_changed(self, kind: str, node: Object) -> None:
        """Takes a node into account."""
        name = str(node["metadata"]["name"])
        found = read_node(node, self._resource) if kind != "DELETED" else None
        with self._lock:
            if found is None:
                self._nodes.pop(name, None)
            else:
                self._nodes[name] = found
            self.tell(name)

    def tell(self, name: str) -> None:
        """Tells what a node is good for, unless that was told; also when its pods have changed."""
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

    def places(self) -> dict[str, list[Place]]:
        """Nodes by pool, as rules about nodes see them."""
        found: dict[str, list[Place]] = {}
        with self._lock:
            for node in self._nodes.values():
                found.setdefault(self._pools.get(node.name, node.pool), []).append(node.place)
        return found
