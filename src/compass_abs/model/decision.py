"""What a scheduler answers: where a gang goes, what moves, or why it must wait."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from compass_abs.model.job import Instance, Job


class Placement(NamedTuple):
    """An instance starts on (or ran on) a node."""

    instance: Instance
    node: int
    gpus: int


class Cause(StrEnum):
    """Why an instance moves: the operator that asked for it."""

    FILLER = "filler"
    """A 1-GPU instance into, or out of, a slot's vacancy."""
    POOL = "pool"
    """A 1-GPU instance from one pool node to another."""
    SLOT = "slot"
    """An anchor, or a filler that travels with it, while slots are compacted."""
    ADMISSION = "admission"
    """Room for a job at the head of the queue."""
    TIDY = "tidy"
    """Fewer partial nodes, with nobody waiting for it."""
    ROUND = "round"
    """A periodic reorganisation."""
    DRAIN = "drain"
    """A node that an operator wants empty."""


class Mode(StrEnum):
    """How an instance moves."""

    CHECKPOINT = "checkpoint"
    """Progress is kept: the gang pauses for a checkpoint and a restore."""
    RESTART = "restart"
    """The gang falls back to its last periodic checkpoint and loses the work since."""


class Migration(NamedTuple):
    """An instance moves from one node to another."""

    instance: Instance
    source: int
    target: int
    gpus: int
    cause: Cause
    mode: Mode = Mode.CHECKPOINT


class Verdict(StrEnum):
    """What keeps a job waiting."""

    CAPACITY = "capacity"
    """Fewer free GPUs than it asks for, or no packing of it and the running jobs exists."""
    FRAGMENTATION = "fragmentation"
    """Enough GPUs are free, but scattered."""
    POLICY = "policy"
    """A rule forbids it: a budget, a pin, a hold, a pool that doesn't exist."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a job can't start now, as data; formatted only when shown."""

    verdict: Verdict
    demand: int
    free: int
    detail: str = ""
    #: Time at which to ask again even if nothing happens until then: a job that is held knows when its hold ends.
    until: float | None = None

    def __str__(self) -> str:
        short = self.demand - self.free
        if self.verdict is Verdict.CAPACITY and short > 0:
            text = f"capacity: {self.demand} GPUs wanted, {self.free} free, {short} short"
        else:
            text = f"{self.verdict}: {self.demand} GPUs wanted, {self.free} free"
        return f"{text} ({self.detail})" if self.detail else text


@dataclass(slots=True)
class Decision:
    """All that one event changed in the cluster, in the order in which it has to be carried out.

    `before` makes room, then the job starts on (or has left) `nodes`, then `after` tidies up. A refusal has a
    `reason` and starts nothing; it may tidy up (`after`), which is what `compass-jit` does while somebody waits.
    """

    job: Job | None = None
    #: Node of each instance of `job`: where it was placed, or for a departure where it had been.
    nodes: tuple[int, ...] = ()
    departed: bool = False
    before: tuple[Migration, ...] = ()
    after: tuple[Migration, ...] = ()
    reason: Reason | None = None
    #: Gangs that lost an instance with its node; they are gone from the cluster and belong back in the queue.
    lost: tuple[Job, ...] = field(default=())

    @property
    def admitted(self) -> bool:
        """True when `job` starts now."""
        return self.job is not None and self.reason is None and not self.departed

    @property
    def migrations(self) -> tuple[Migration, ...]:
        """Every move, in order."""
        return self.before + self.after if self.before else self.after

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Every instance of the admitted or departed job with its node."""
        if self.job is None:
            return ()
        job_id, gpus = self.job.id, self.job.gpus
        return tuple(Placement(Instance(job_id, k), node, gpus) for k, node in enumerate(self.nodes))
