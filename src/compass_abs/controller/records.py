"""What the journal holds: one small record for each thing that was intended or has happened.

The controller's whole memory is the fold of these (`controller/book.py`). Records that announce an effect (`Placed`,
`MigrationBegun`, `StepBegun`, `ClearingBegun`) are committed before the effect is carried out.
"""

import json
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar

from compass_abs.model import CompassError


class JournalFormatError(CompassError):
    """A journal row that this version can't read."""


class Outcome(StrEnum):
    """How a job ended."""

    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


class MigrationOutcome(StrEnum):
    """How a migration ended."""

    DONE = "done"
    """It trains at its new places."""
    KEPT = "kept"
    """It was called off; the job trains on where it was."""
    REQUEUED = "requeued"
    """It went wrong after the job had stopped; the job restarts from its last good checkpoint."""
    MOOT = "moot"
    """The job ended by itself, or was cancelled, meanwhile."""


class AfterClearing(StrEnum):
    """What becomes of a job once the rest of its gang is gone."""

    REQUEUE = "requeue"
    FAIL = "fail"
    CANCEL = "cancel"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Submitted:
    """A job was accepted."""

    kind: ClassVar[str] = "submitted"
    job_id: str
    time: float
    spec: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Placed:
    """Intent: this generation of a gang is to start on these nodes."""

    kind: ClassVar[str] = "placed"
    job_id: str
    time: float
    generation: int
    nodes: tuple[str, ...]
    address: str
    port: int
    resume_from: str = ""
    resume_step: int = 0


@dataclass(frozen=True, slots=True)
class Launched:
    """The engine accepted every instance of a generation."""

    kind: ClassVar[str] = "launched"
    job_id: str
    time: float
    generation: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """A generation really trains."""

    kind: ClassVar[str] = "resumed"
    job_id: str
    time: float
    generation: int
    step: int


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A start was refused: nothing runs, the job waits again."""

    kind: ClassVar[str] = "unplaced"
    job_id: str
    time: float
    generation: int
    why: str


@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A checkpoint that every instance acknowledged, or that the job reported."""

    kind: ClassVar[str] = "checkpointed"
    job_id: str
    time: float
    generation: int
    step: int
    path: str


@dataclass(frozen=True, slots=True)
class CheckpointBad:
    """A start from this checkpoint died before its first step: not to be tried again."""

    kind: ClassVar[str] = "checkpoint-bad"
    job_id: str
    time: float
    path: str
    why: str


@dataclass(frozen=True, slots=True)
class ClearingBegun:
    """Intent: whatever is left of a gang is to be ended, then `after`."""

    kind: ClassVar[str] = "clearing"
    job_id: str
    time: float
    after: AfterClearing
    why: str
    #: True when the restart counts against the job's own retries.
    own_fault: bool = False


@dataclass(frozen=True, slots=True)
class Requeued:
    """The gang is gone; the job waits again, for a start from its last good checkpoint."""

    kind: ClassVar[str] = "requeued"
    job_id: str
    time: float
    why: str
    lost_steps: int = 0
    own_fault: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """A job is over."""

    kind: ClassVar[str] = "ended"
    job_id: str
    time: float
    outcome: Outcome
    why: str = ""
    #: Steps that it had done, as far as it said.
    step: int = 0


@dataclass(frozen=True, slots=True)
class CancelRequested:
    """Somebody wants it ended."""

    kind: ClassVar[str] = "cancel"
    job_id: str
    time: float
    who: str = ""


@dataclass(frozen=True, slots=True)
class MigrationBegun:
    """Intent: a running gang is to move; its checkpoint is about to be requested."""

    kind: ClassVar[str] = "migration"
    job_id: str
    time: float
    migration_id: str
    targets: tuple[str, ...]
    cause: str
    #: Instances that hold in place and rejoin.
    stay: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class StepBegun:
    """Intent: the next phase of a migration. For `starting`, with all that its start orders need."""

    kind: ClassVar[str] = "migration-step"
    job_id: str
    time: float
    migration_id: str
    phase: str
    generation: int = 0
    address: str = ""
    port: int = 0
    resume_from: str = ""
    resume_step: int = 0
    #: Instances that turned out unable to rejoin, and so are stopped and started like those that move.
    anew: tuple[int, ...] = ()
    #: Training that a gang that can't be asked to save has to repeat.
    lost_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MigrationEnded:
    """A migration is over, how, and how long each phase took."""

    kind: ClassVar[str] = "migration-end"
    job_id: str
    time: float
    migration_id: str
    outcome: MigrationOutcome
    why: str
    seconds: dict[str, float]
    #: False when it went wrong through no doing of the job's.
    blame: bool = True


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node that the engine has, for the first time or with another shape."""

    kind: ClassVar[str] = "node"
    name: str
    time: float
    gpus: int
    pool: str


@dataclass(frozen=True, slots=True)
class NodeWanted:
    """What an operator wants of a node: up, cordoned or draining."""

    kind: ClassVar[str] = "node-wanted"
    name: str
    time: float
    status: str
    who: str = ""


@dataclass(frozen=True, slots=True)
class Setting:
    """What an operator switched: `migrations` to `on` or `paused`."""

    kind: ClassVar[str] = "setting"
    name: str
    time: float
    value: str
    who: str = ""


#: Setting of a journal that goes on from another: numbers up to this one name other jobs.
JOBS_BEFORE = "jobs-before"


@dataclass(frozen=True, slots=True)
class Opened:
    """A controller took the journal over."""

    kind: ClassVar[str] = "opened"
    time: float
    epoch: int
    scheduler: str
    mode: str


Record = (
    Submitted
    | Placed
    | Launched
    | Resumed
    | Unplaced
    | Checkpointed
    | CheckpointBad
    | ClearingBegun
    | Requeued
    | Ended
    | CancelRequested
    | MigrationBegun
    | StepBegun
    | MigrationEnded
    | NodeSeen
    | NodeWanted
    | Setting
    | Opened
)

_CLASSES: dict[str, type[Any]] = {
    cls.kind: cls
    for cls in (
        Submitted,
        Placed,
        Launched,
        Resumed,
        Unplaced,
        Checkpointed,
        CheckpointBad,
        ClearingBegun,
        Requeued,
        Ended,
        CancelRequested,
        MigrationBegun,
        StepBegun,
        MigrationEnded,
        NodeSeen,
        NodeWanted,
        Setting,
        Opened,
    )
}
_TUPLES = frozenset({"nodes", "targets", "stay", "anew"})
_ENUMS: dict[tuple[str, str], type[StrEnum]] = {
    ("ended", "outcome"): Outcome,
    ("migration-end", "outcome"): MigrationOutcome,
    ("clearing", "after"): AfterClearing,
}
_FIELDS = {kind: frozenset(f.name for f in fields(cls)) for kind, cls in _CLASSES.items()}


def encode(record: Record) -> tuple[str, str, str]:
    """Kind, job id (or empty) and JSON body of a record."""
    return record.kind, getattr(record, "job_id", ""), json.dumps(asdict(record), separators=(",", ":"))


def decode(kind: str, body: str, sequence: int = 0) -> Record:
    """The record of a journal row."""
    cls = _CLASSES.get(kind)
    if cls is None:
        raise JournalFormatError(
            f"journal row {sequence} is of kind {kind!r}, which this version does not know: "
            "run the version that wrote it, or a newer one"
        )
    try:
        values = json.loads(body)
        known = {name: values[name] for name in _FIELDS[kind] if name in values}
        for name in known.keys() & _TUPLES:
            known[name] = tuple(known[name])
        for (where, name), enum in _ENUMS.items():
            if where == kind:
                known[name] = enum(known[name])
        record: Record = cls(**known)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise JournalFormatError(f"journal row {sequence} ({kind}) can't be read: {error}") from error
    return record
