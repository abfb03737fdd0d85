"""The nodes of a Ray cluster, and the GPUs on them that others hold."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from compass_abs.engines.protocol import NodeHealth, NodeReport

#: Resources that Ray makes up for accelerator models.
_MODEL = "accelerator_type:"
#: GPUs that seem to be held by others count as held after this long: Ray tells late what has become free.
_SETTLED = 3.0


@dataclass(frozen=True, slots=True)
class RayNode:
    """A node."""

    name: str
    id: str
    address: str
    gpus: int
    model: str
    alive: bool


def read_nodes(values: list[dict[str, Any]]) -> list[RayNode]:
    """The nodes of `ray.nodes()` that have, or had, GPUs; named by their label `name`, their host, or their id."""
    hosts: dict[str, int] = {}
    for value in values:
        if value.get("Alive"):
            host = str(value.get("NodeManagerHostname", ""))
            hosts[host] = hosts.get(host, 0) + 1
    found: dict[str, RayNode] = {}
    for value in values:
        resources: Mapping[str, float] = value.get("Resources") or {}
        host = str(value.get("NodeManagerHostname", ""))
        label = (value.get("Labels") or {}).get("name", "")
        name = label or (host if hosts.get(host) == 1 else str(value["NodeID"])[:12])
        model = next((key[len(_MODEL) :].lower() for key in resources if key.startswith(_MODEL)), "")
        gpus, alive = int(resources.get("GPU", 0)), bool(value.get("Alive"))
        node = RayNode(name, str(value["NodeID"]), str(value.get("NodeManagerAddress", "")), gpus, model, alive)
        # A node that came back has a new id: the dead one of the same name is history.
        if (gpus or not alive) and (name not in found or alive):
            found[name] = node
    return list(found.values())


class Foreign:
    """GPUs that are used and not ours, once that has lasted."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[int, float]] = {}
        self._settled: dict[str, int] = {}

    def look(self, node: str, used: int, ours: int, now: float) -> int:
        """GPUs of a node that others hold."""
        foreign = max(0, used - ours)
        known, since = self._since.get(node, (-1, 0.0))
        if known != foreign:
            self._since[node] = (foreign, now)
        elif now - since >= _SETTLED or foreign == 0:
            self._settled[node] = foreign
        return self.held(node)

    def held(self, node: str) -> int:
        """What that was when it was last looked at."""
        return self._settled.get(node, 0)


def node_report(node: RayNode, capacity: int, foreign: int) -> NodeReport:
    """What the controller is told of a node."""
    if not node.alive:
        return NodeReport(node.name, capacity, node.model, NodeHealth.LOST, "Ray says that it is dead")
    if foreign:
        detail = f"{foreign} GPUs are held by other Ray tasks or actors"
        return NodeReport(node.name, capacity, node.model, NodeHealth.CORDONED, detail)
    return NodeReport(node.name, capacity, node.model)
