"""What a reader says of a cluster: nodes with what is on them, jobs that run or wait, and what it could not tell."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from compass_abs.model import ClusterState, CompassError
from compass_abs.snapshots import NodeRow, pools_of


class AuditError(CompassError):
    """Something of a cluster's description that can't be read: names the source, the object, the value."""


class Shape(NamedTuple):
    """Instances of one size."""

    instances: int
    gpus: int

    @property
    def total(self) -> int:
        """GPUs of all of them."""
        return self.instances * self.gpus

    def __str__(self) -> str:
        return f"{self.instances} × {self.gpus}"


@dataclass(frozen=True, slots=True)
class PendingJob:
    """A gang that waits; it starts all or not at all."""

    id: str
    shapes: tuple[Shape, ...]
    #: Seconds since 1970; None when nobody says.
    submitted: float | None = None
    priority: int = 0
    owner: str = ""
    #: Why it may not start whatever room there is: held, a dependency, a quota. Empty when nothing forbids it.
    policy: str = ""
    #: What its own scheduler says it waits for.
    said: str = ""
    #: What the audit leaves out of account: pod affinity, a truncated list, ...
    caveat: str = ""
    #: The nodes that its own rules let it run on; None for all of them.
    reach: frozenset[str] | None = None
    #: What these rules are, for when they reach no node.
    rules: str = ""
    #: So many jobs like this one wait (an array).
    copies: int = 1

    @property
    def total_gpus(self) -> int:
        """GPUs of the whole gang."""
        return sum(shape.total for shape in self.shapes)


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A gang that runs; its instances are in the rows of the nodes, by its id."""

    id: str
    submitted: float | None = None
    started: float | None = None
    owner: str = ""
    #: Whether its owner declares that it may be moved (a checkpoint contract).
    movable: bool = False
    #: Why it must stay where it is, whatever is assumed; empty when it could move if its owner agreed.
    fixed: str = ""


class Remark(NamedTuple):
    """Something that was left out of account, or held where it is, and how much of it there is."""

    what: str
    number: int
    gpus: int = 0

    def __str__(self) -> str:
        if not self.number:
            return self.what
        held = f" ({self.gpus:,} GPU{'' if self.gpus == 1 else 's'})" if self.gpus else ""
        return f"{self.what}: {self.number:,}{held}"


@dataclass(frozen=True, slots=True)
class Observation:
    """A cluster at one moment. In `rows` an instance is pinned when it is fixed, not for want of a declaration."""

    source: str
    rows: tuple[NodeRow, ...]
    running: Mapping[str, RunningJob] = field(default_factory=dict)
    pending: tuple[PendingJob, ...] = ()
    #: What is held where it is, and why.
    fixed: tuple[Remark, ...] = ()
    #: What takes no part at all.
    left_out: tuple[Remark, ...] = ()
    #: Seconds since 1970 at which it was so; None when nobody says.
    time: float | None = None

    def declared_pools(self) -> dict[str, ClusterState]:
        """A state for each pool in which only what is declared movable may move."""
        rows = []
        for row in self.rows:
            instances = tuple(
                instance if instance.pinned or self.is_declared(instance.job) else replace(instance, pinned=True)
                for instance in row.instances
            )
            rows.append(row if instances == row.instances else replace(row, instances=instances))
        return pools_of(rows)

    def assumed_pools(self) -> dict[str, ClusterState]:
        """A state for each pool in which everything moves that is not fixed."""
        return pools_of(self.rows)

    def is_declared(self, job: str | None) -> bool:
        """Whether a running job says of itself that it may move."""
        found = self.running.get(job) if job is not None else None
        return found is not None and found.movable
