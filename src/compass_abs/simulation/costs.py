"""What a migration costs the jobs that move, and the jobs that need the room they leave."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from compass_abs.model import ClusterState, CompassError, Instance, Job, Migration, Mode
from compass_abs.simulation.clock import SECOND, microseconds


class CostError(CompassError):
    """A migration cost that makes no sense."""


class Charge(ABC):
    """The cost model at work in one simulation; times in microseconds."""

    @abstractmethod
    def pause(self, now: int, job: Job, moves: Sequence[Migration], state: ClusterState) -> int:
        """How long the gang of `job` stands still when these instances of it move now."""

    def vacate(self, now: int, moves: Sequence[Migration], state: ClusterState) -> None:  # noqa: B027 - optional
        """Notes which GPUs the moves of a decision leave, before anybody takes them."""

    def start(self, now: int, job: Job, nodes: Sequence[int], state: ClusterState) -> int:
        """When a gang that has just been placed can really start."""
        return now


@dataclass(frozen=True, slots=True)
class Cost(ABC):
    """A cost model, as it is configured."""

    #: Name in configurations and on the command line.
    model: ClassVar[str]

    @abstractmethod
    def charge(self, state: ClusterState) -> Charge:
        """The model at work on this cluster."""


def _seconds(value: float, what: str) -> int:
    spent = microseconds(value, what)
    if spent < 0:
        raise CostError(f"{what} is {value!r}, expected seconds ≥ 0")
    return spent


def _override(job: Job) -> int | None:
    return None if job.pause is None else _seconds(job.pause, f"job {job.id!r}: pause")


@dataclass(frozen=True, slots=True)
class PaperCost(Cost):
    """Each job that has instances moved in an event is delayed by `seconds` once; room is vacated at once.

    `Job.pause` overrides `seconds` for that job.
    """

    #: The paper's own cluster averaged about 8 s (section 6.5).
    seconds: float = 8.0
    model: ClassVar[str] = "paper"

    def __post_init__(self) -> None:
        _seconds(self.seconds, "migration cost")

    def charge(self, state: ClusterState) -> Charge:
        """A fixed pause."""
        return _PaperCharge(_seconds(self.seconds, "migration cost"))


class _PaperCharge(Charge):
    def __init__(self, pause: int) -> None:
        self._pause = pause

    def pause(self, now: int, job: Job, moves: Sequence[Migration], state: ClusterState) -> int:
        own = _override(job)
        return self._pause if own is None else own


@dataclass(frozen=True, slots=True)
class StrictCost(Cost):
    """Room is free only once the checkpoint of what held it has been taken.

    A moved gang stands still for its checkpoint, then until its new GPUs are clear, then for its restore. A gang that
    starts on GPUs which are still being vacated waits for them, and no longer than for those it needs. A gang that is
    moved by a restart takes no checkpoint: what it held is clear at once, and it stands still for its restore only.
    `Job.pause` overrides checkpoint + restore for that job, split in the same proportion.
    """

    checkpoint: float = 3.0
    restore: float = 5.0
    model: ClassVar[str] = "strict"

    def __post_init__(self) -> None:
        _seconds(self.checkpoint, "checkpoint time")
        _seconds(self.restore, "restore time")

    def charge(self, state: ClusterState) -> Charge:
        """Keeps an account of the GPUs that are being vacated."""
        return _StrictCharge(self)

    def phases(self, job: Job) -> tuple[int, int]:
        """Checkpoint and restore of this job, in microseconds."""
        checkpoint, restore = round(self.checkpoint * SECOND), round(self.restore * SECOND)
        own = _override(job)
        if own is None:
            return checkpoint, restore
        both = checkpoint + restore
        first = own * checkpoint // both if both else own
        return first, own - first


class _StrictCharge(Charge):
    def __init__(self, cost: StrictCost) -> None:
        self._cost = cost
        #: For a node, the GPUs that are free or taken anew but still being vacated: (time they are clear, how many).
        self._clearing: dict[int, list[tuple[int, int]]] = {}
        #: Where instances have been sent at the latest instant at which any were.
        self._instant = -1
        self._sent: dict[Instance, int] = {}

    def vacate(self, now: int, moves: Sequence[Migration], state: ClusterState) -> None:
        if now != self._instant:
            self._instant = now
            self._sent.clear()
        for move in moves:
            # Who was sent there only now has not been restored there, and leaves nothing to save.
            passes_through = self._sent.get(move.instance) == move.source
            self._sent[move.instance] = move.target
            if passes_through or move.mode is Mode.RESTART:
                continue
            checkpoint, _ = self._cost.phases(state.gangs[move.instance.job_id].job)
            if checkpoint:
                self._clearing.setdefault(move.source, []).append((now + checkpoint, move.gpus))

    def start(self, now: int, job: Job, nodes: Sequence[int], state: ClusterState) -> int:
        return max([now, *(self._claim(now, node, job.gpus, state) for node in nodes)]) if self._clearing else now

    def pause(self, now: int, job: Job, moves: Sequence[Migration], state: ClusterState) -> int:
        checkpoint, restore = self._cost.phases(job)
        if any(move.mode is Mode.RESTART for move in moves):
            checkpoint = 0
        ready = max([now + checkpoint, *(self._claim(now, move.target, move.gpus, state) for move in moves)])
        return ready - now + restore

    def _claim(self, now: int, node: int, gpus: int, state: ClusterState) -> int:
        """When `gpus` GPUs that have just been placed on a node are clear; they take those that are clear first."""
        entries = self._clearing.get(node)
        if not entries:
            return now
        entries = sorted(entry for entry in entries if entry[0] > now)
        wanted = min(gpus, sum(count for _, count in entries) - state.nodes[node].free)
        ready = now
        while wanted > 0:
            ready, count = entries.pop(0)
            if count > wanted:
                entries.insert(0, (ready, count - wanted))
            wanted -= count
        if entries:
            self._clearing[node] = entries
        else:
            del self._clearing[node]
        return ready


def make_cost(model: str, seconds: float = 8.0, checkpoint: float | None = None, restore: float | None = None) -> Cost:
    """The cost model of this name: `paper` (one pause) or `strict` (checkpoint, then restore)."""
    if model == PaperCost.model:
        if checkpoint is not None or restore is not None:
            raise CostError("cost model paper has one pause for all; checkpoint and restore times are for model strict")
        return PaperCost(seconds)
    if model == StrictCost.model:
        # Three eighths for the checkpoint: writing is asynchronous up to a last delta, reading and warming up is not.
        first = seconds * 3 / 8 if checkpoint is None else checkpoint
        return StrictCost(first, seconds - seconds * 3 / 8 if restore is None else restore)
    raise CostError(f"there is no migration cost model {model!r}; known: paper, strict")
