"""Virtual nodes: some GPU slots each, and whether they are there."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from compass_abs.engines.local.run_files import RunFiles, read_json, write_json
from compass_abs.engines.protocol import EngineRefusalError, NodeHealth, NodeReport


@dataclass(slots=True)
class LocalNode:
    """A virtual node."""

    name: str
    gpus: int
    pool: str
    health: NodeHealth = NodeHealth.READY
    detail: str = ""

    def report(self) -> NodeReport:
        """What the controller is told."""
        return NodeReport(self.name, self.gpus, self.pool, self.health, self.detail)


class LocalNodes:
    """The virtual nodes of one root folder; their state outlives the engine."""

    def __init__(self, files: RunFiles, count: int, gpus: int, pool: str) -> None:
        self._files = files
        self._nodes: dict[str, LocalNode] = {}
        for number in range(count):
            name = f"n{number}"
            saved = read_json(self._path(name)) or {}
            health = NodeHealth(saved.get("health", NodeHealth.READY))
            self._nodes[name] = LocalNode(name, gpus, pool, health, str(saved.get("detail", "")))

    def _path(self, name: str) -> Path:
        return self._files.root / "nodes" / f"{name}.json"

    def __iter__(self) -> Iterator[LocalNode]:
        return iter(self._nodes.values())

    def get(self, name: str) -> LocalNode:
        """The node of this name."""
        node = self._nodes.get(name)
        if node is None:
            raise EngineRefusalError(f"there is no node {name!r}")
        return node

    def usable(self, name: str) -> LocalNode:
        """The node of this name, if something may be started on it."""
        node = self.get(name)
        if node.health is not NodeHealth.READY:
            raise EngineRefusalError(f"node {name!r} is {node.health}")
        return node

    def set_health(self, name: str, health: NodeHealth, detail: str = "") -> LocalNode:
        """A node is lost, cordoned, or back."""
        node = self.get(name)
        node.health, node.detail = health, detail
        write_json(self._path(name), {"health": health, "detail": detail})
        return node
