"""A snapshot as rows: what a file, or an audit of a live cluster, says of each node."""

from dataclasses import dataclass

from compass_abs.model import CAPACITIES, CompassError, NodeStatus


class SnapshotError(CompassError):
    """A snapshot that can't be read: names the file, the row, the value, and what was expected."""


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """One instance on a node."""

    gpus: int
    #: Instances of one job and size are one gang; None for an instance by itself.
    job: str | None = None
    pinned: bool = False
    priority: int = 0
    #: Seconds that a move pauses its job; None for the default.
    pause: float | None = None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One node and what is on it. Nodes of one pool, GPU model and capacity are interchangeable."""

    name: str
    capacity: int
    instances: tuple[InstanceRow, ...] = ()
    pool: str = ""
    gpu: str = ""
    status: NodeStatus = NodeStatus.UP
    #: GPUs in use by something that nobody can tell: held where they are.
    unknown_gpus: int = 0
    #: Where it was read, for messages: "cluster.csv: row 3".
    where: str = ""

    def check(self) -> None:
        """Raises unless the instances make sense and fit."""
        if not self.name:
            raise SnapshotError(f"{self.where}: node has no name")
        prefix = f"{self.where}: node {self.name!r}"
        if self.capacity not in CAPACITIES:
            raise SnapshotError(f"{prefix}: capacity is {self.capacity}, expected one of {CAPACITIES}")
        for instance in self.instances:
            if not 1 <= instance.gpus <= self.capacity:
                raise SnapshotError(
                    f"{prefix}: an instance has {instance.gpus} GPUs, expected 1 to the capacity, {self.capacity}"
                )
        used = sum(instance.gpus for instance in self.instances) + self.unknown_gpus
        if used > self.capacity:
            raise SnapshotError(f"{prefix}: {used} GPUs are in use, but the capacity is {self.capacity}")
        if self.status is NodeStatus.LOST and used:
            raise SnapshotError(f"{prefix}: is lost, but {used} of its GPUs are in use; a lost node runs nothing")
