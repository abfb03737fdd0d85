"""Who holds GPUs where, and which pods wait for us: kept up to date pod by pod."""

import threading
from typing import NamedTuple

from compass_abs.engines.kubernetes import pods
from compass_abs.engines.kubernetes.client import Object
from compass_abs.engines.kubernetes.requests import Amounts, requests_of
from compass_abs.engines.protocol import RunId

Key = tuple[str, str]


class Holding(NamedTuple):
    """A pod that holds GPUs of a node."""

    gpus: int
    #: Which run of ours it is; None for a pod of somebody else.
    run: RunId | None


class Ledger:
    """Pods with GPUs by node, and unbound pods of our scheduler."""

    def __init__(self, resource: str, scheduler: str, owner: str) -> None:
        self._resource, self._scheduler, self._owner = resource, scheduler, owner
        self._lock = threading.Lock()
        self._nodes: dict[str, dict[Key, Holding]] = {}
        self._place: dict[Key, str] = {}
        self._waiting: dict[Key, Object] = {}
        #: What pods of every kind ask for, by node; and where each is counted.
        self._asked: dict[str, dict[Key, Amounts]] = {}
        self._asks_on: dict[Key, str] = {}

    def take(self, kind: str, pod: Object) -> set[str]:
        """Takes a pod into account; nodes on which something changed."""
        key, node = pods.key_of(pod), pods.node_of(pod)
        gone = kind == "DELETED" or pods.is_over(pod)
        gpus = 0 if gone else pods.gpus_of(pod, self._resource)
        asked = requests_of(pod) if node and not gone else None
        with self._lock:
            moved = self._count(key, node, asked)
            before = self._place.pop(key, "")
            old = self._nodes[before].pop(key) if before else None
            self._waiting.pop(key, None)
            new = None
            if not gone and node and gpus:
                new = Holding(gpus, pods.run_of(pod, self._owner))
                self._nodes.setdefault(node, {})[key] = new
                self._place[key] = node
            elif not gone and not node and not pods.is_deleted(pod) and self._is_ours_to_place(pod):
                self._waiting[key] = pod
        changed = {name for name in (before, node) if name} if old != new or before != node else set()
        return changed | moved

    def _count(self, key: Key, node: str, asked: Amounts | None) -> set[str]:
        """Counts what a pod asks for; nodes that it left or came to."""
        before, after = self._asks_on.pop(key, ""), node if asked is not None else ""
        if before:
            del self._asked[before][key]
        if asked is not None:
            self._asked.setdefault(node, {})[key] = asked
            self._asks_on[key] = node
        return {before, after} - {""} if before != after else set()

    def asked(self, node: str) -> Amounts:
        """What all pods of a node ask for together."""
        with self._lock:
            found = list(self._asked.get(node, {}).values())
        return Amounts(*map(sum, zip(*found, strict=True))) if found else Amounts()

    def _is_ours_to_place(self, pod: Object) -> bool:
        return (pod.get("spec") or {}).get("schedulerName") == self._scheduler

    def waiting(self) -> list[Object]:
        """Pods that wait for our scheduler."""
        with self._lock:
            return list(self._waiting.values())

    def waits(self, namespace: str, name: str) -> Object | None:
        """One of them."""
        with self._lock:
            return self._waiting.get((namespace, name))

    def holdings(self, node: str) -> dict[Key, Holding]:
        """Who holds GPUs of a node."""
        with self._lock:
            return dict(self._nodes.get(node, {}))
