"""What the controller knows of every job and node: the fold of the journal, and nothing else.

`apply` is the only way in, for a record just written and for one read back after a crash alike.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from compass_abs.controller.job_spec import JobSpec
from compass_abs.controller.migration import Phase
from compass_abs.controller.records import (
    AfterClearing,
    CancelRequested,
    CheckpointBad,
    Checkpointed,
    ClearingBegun,
    Ended,
    Launched,
    MigrationBegun,
    MigrationEnded,
    MigrationOutcome,
    NodeSeen,
    NodeWanted,
    Opened,
    Outcome,
    Placed,
    Record,
    Requeued,
    Resumed,
    Setting,
    StepBegun,
    Submitted,
    Unplaced,
)
from compass_abs.engines.protocol import Rendezvous
from compass_abs.model import InvariantError, Job, NodeStatus

#: Good checkpoints remembered of a job: enough to go back past a damaged one or two.
_CHECKPOINTS_KEPT = 4
#: Migrations of a job that may go wrong before it is left where it is.
_MIGRATION_PATIENCE = 3


class JobPhase(StrEnum):
    """Where a job is in its life."""

    QUEUED = "queued"
    STARTING = "starting"
    """Placed; not yet known to train."""
    RUNNING = "running"
    MIGRATING = "migrating"
    CLEARING = "clearing"
    """What is left of its gang is being ended."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED_PHASES = (JobPhase.DONE, JobPhase.FAILED, JobPhase.CANCELLED)
NOWHERE = Rendezvous("", 0)
_OUTCOMES = {
    Outcome.DONE: JobPhase.DONE,
    Outcome.FAILED: JobPhase.FAILED,
    Outcome.CANCELLED: JobPhase.CANCELLED,
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A place to start again from."""

    path: str
    step: int


@dataclass(slots=True)
class MigrationEntry:
    """A migration under way."""

    id: str
    phase: Phase
    targets: tuple[str, ...]
    sources: tuple[str, ...]
    cause: str
    stay: tuple[int, ...]
    began: float
    #: Of the successor gang; 0 until it is about to be started.
    generation: int = 0
    rendezvous: Rendezvous = NOWHERE
    resume_from: str = ""
    resume_step: int = 0
    lost_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MigrationPast:
    """A migration that is over."""

    id: str
    cause: str
    began: float
    ended: float
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    outcome: MigrationOutcome
    why: str
    seconds: dict[str, float]
    lost_seconds: float = 0.0


@dataclass(slots=True)
class JobEntry:
    """A job, as the journal tells it."""

    id: str
    spec: JobSpec
    #: What the scheduler sees; not movable any more once its migrations kept failing.
    job: Job
    submitted: float
    phase: JobPhase = JobPhase.QUEUED
    #: Highest generation ever intended: the next one is larger.
    generation: int = 0
    #: Nodes of the current generation; empty while none is wanted.
    nodes: tuple[str, ...] = ()
    rendezvous: Rendezvous = NOWHERE
    resume_from: str = ""
    resume_step: int = 0
    launched: bool = False
    cancelled: bool = False
    clearing: AfterClearing | None = None
    #: True when the clearing under way counts against its retries.
    blamed: bool = False
    why: str = ""
    migration: MigrationEntry | None = None
    checkpoints: list[Checkpoint] = field(default_factory=list)
    #: Paths of checkpoints that no start is to be tried from again.
    bad: list[str] = field(default_factory=list)
    first_started: float | None = None
    placed_at: float | None = None
    ended: float | None = None
    #: Restarts that were the job's own fault.
    retries: int = 0
    #: Restarts for whatever reason.
    restarts: int = 0
    lost_steps: int = 0
    #: Seconds of training that migrations made it repeat, as far as it can tell.
    lost_seconds: float = 0.0
    #: Steps known to be done, less those that were lost.
    furthest: int = 0
    migrations_failed: int = 0
    past: list[MigrationPast] = field(default_factory=list)
    #: Of each generation that a migration made: the one before it, and who went on in place.
    stayers: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """True when nothing will happen to it any more."""
        return self.phase in ENDED_PHASES

    @property
    def live_generations(self) -> tuple[int, ...]:
        """Generations of which a process may be alive without being a stray."""
        if self.phase in (JobPhase.STARTING, JobPhase.RUNNING):
            return (self.generation,)
        if self.migration is None or self.phase is not JobPhase.MIGRATING:
            return ()
        if self.migration.generation:
            return (self.generation, self.migration.generation)
        return (self.generation,)

    def log_begins(self, number: int, generation: int) -> int:
        """The generation in which the log of an instance begins: one that stays in place goes on in its old one."""
        found = self.stayers
        if self.migration is not None and self.migration.generation:
            found = {**found, self.migration.generation: (self.generation, self.migration.stay)}
        while generation in found and number in found[generation][1]:
            generation = found[generation][0]
        return generation

    def best_checkpoint(self) -> Checkpoint | None:
        """The latest one that is not known to be damaged."""
        return self.checkpoints[-1] if self.checkpoints else None


@dataclass(slots=True)
class NodeEntry:
    """A node, as far as the journal knows it."""

    name: str
    gpus: int
    pool: str
    wanted: NodeStatus = NodeStatus.UP


class Book:
    """Every job and node."""

    def __init__(self) -> None:
        self.jobs: dict[str, JobEntry] = {}
        self.nodes: dict[str, NodeEntry] = {}
        self.settings: dict[str, str] = {}
        self.epoch = 0
        self.records = 0
        self.migrations_begun = 0
        #: Jobs that are not over, in the order of submission.
        self.open_jobs: dict[str, JobEntry] = {}
        self.counts: dict[JobPhase, int] = dict.fromkeys(JobPhase, 0)
        self._appliers: dict[str, Callable[[Any], None]] = {
            Submitted.kind: self._submitted,
            Placed.kind: self._placed,
            Launched.kind: self._launched,
            Resumed.kind: self._resumed,
            Unplaced.kind: self._unplaced,
            Checkpointed.kind: self._checkpointed,
            CheckpointBad.kind: self._checkpoint_bad,
            ClearingBegun.kind: self._clearing,
            Requeued.kind: self._requeued,
            Ended.kind: self._ended,
            CancelRequested.kind: self._cancel,
            MigrationBegun.kind: self._migration,
            StepBegun.kind: self._step,
            MigrationEnded.kind: self._migration_end,
            NodeSeen.kind: self._node,
            NodeWanted.kind: self._node_wanted,
            Setting.kind: self._setting,
            Opened.kind: self._opened,
        }

    def apply(self, record: Record) -> None:
        """Takes one record into account."""
        self._appliers[record.kind](record)
        self.records += 1

    def _move(self, entry: JobEntry, phase: JobPhase) -> None:
        self.counts[entry.phase] -= 1
        self.counts[phase] += 1
        entry.phase = phase

    def _submitted(self, r: Submitted) -> None:
        if r.job_id in self.jobs:
            raise InvariantError(f"job {r.job_id!r} is in the journal twice")
        spec = JobSpec.from_record(r.spec)
        entry = JobEntry(r.job_id, spec, spec.to_job(r.job_id, r.time), r.time)
        self.jobs[r.job_id] = self.open_jobs[r.job_id] = entry
        self.counts[JobPhase.QUEUED] += 1

    def _placed(self, r: Placed) -> None:
        entry = self.jobs[r.job_id]
        if r.generation <= entry.generation or entry.phase is not JobPhase.QUEUED:
            raise InvariantError(
                f"job {r.job_id!r}: placed as generation {r.generation} while {entry.phase} with {entry.generation}"
            )
        entry.generation, entry.nodes = r.generation, r.nodes
        entry.rendezvous = Rendezvous(r.address, r.port)
        entry.resume_from, entry.resume_step = r.resume_from, r.resume_step
        entry.placed_at, entry.launched, entry.why = r.time, False, ""
        if entry.first_started is None:
            entry.first_started = r.time
        self._move(entry, JobPhase.STARTING)

    def _launched(self, r: Launched) -> None:
        self.jobs[r.job_id].launched = True

    def _resumed(self, r: Resumed) -> None:
        entry = self.jobs[r.job_id]
        entry.furthest = max(entry.furthest, r.step)
        if entry.phase is JobPhase.STARTING:
            self._move(entry, JobPhase.RUNNING)

    def _unplaced(self, r: Unplaced) -> None:
        entry = self.jobs[r.job_id]
        entry.nodes, entry.why, entry.placed_at = (), r.why, None
        self._move(entry, JobPhase.QUEUED)

    def _checkpointed(self, r: Checkpointed) -> None:
        entry = self.jobs[r.job_id]
        if r.path in entry.bad or any(known.path == r.path for known in entry.checkpoints):
            return
        entry.furthest = max(entry.furthest, r.step)
        entry.checkpoints.append(Checkpoint(r.path, r.step))
        entry.checkpoints.sort(key=lambda checkpoint: checkpoint.step)
        del entry.checkpoints[:-_CHECKPOINTS_KEPT]

    def _checkpoint_bad(self, r: CheckpointBad) -> None:
        entry = self.jobs[r.job_id]
        entry.bad.append(r.path)
        entry.checkpoints = [known for known in entry.checkpoints if known.path != r.path]

    def _clearing(self, r: ClearingBegun) -> None:
        entry = self.jobs[r.job_id]
        entry.clearing, entry.why, entry.blamed = r.after, r.why, r.own_fault
        self._move(entry, JobPhase.CLEARING)

    def _requeued(self, r: Requeued) -> None:
        entry = self.jobs[r.job_id]
        entry.nodes, entry.clearing, entry.why, entry.placed_at = (), None, r.why, None
        entry.restarts += 1
        entry.retries += r.own_fault
        entry.lost_steps += r.lost_steps
        best = entry.best_checkpoint()
        entry.furthest = best.step if best is not None else 0
        self._move(entry, JobPhase.QUEUED)

    def _ended(self, r: Ended) -> None:
        entry = self.jobs[r.job_id]
        if entry.over:
            raise InvariantError(f"job {r.job_id!r} ended twice")
        entry.nodes, entry.clearing, entry.why, entry.ended = (), None, r.why, r.time
        entry.furthest = max(entry.furthest, r.step)
        del self.open_jobs[r.job_id]
        self._move(entry, _OUTCOMES[r.outcome])

    def _cancel(self, r: CancelRequested) -> None:
        self.jobs[r.job_id].cancelled = True

    def _migration(self, r: MigrationBegun) -> None:
        entry = self.jobs[r.job_id]
        if entry.phase is not JobPhase.RUNNING:
            raise InvariantError(f"job {r.job_id!r} begins a migration while {entry.phase}")
        entry.migration = MigrationEntry(
            r.migration_id, Phase.REQUESTING, r.targets, entry.nodes, r.cause, r.stay, r.time
        )
        self.migrations_begun += 1
        self._move(entry, JobPhase.MIGRATING)

    def _step(self, r: StepBegun) -> None:
        entry = self.jobs[r.job_id]
        migration = entry.migration
        if migration is None or migration.id != r.migration_id:
            raise InvariantError(f"job {r.job_id!r}: a step of migration {r.migration_id}, which is not under way")
        migration.phase = Phase(r.phase)
        migration.stay = tuple(number for number in migration.stay if number not in r.anew)
        migration.lost_seconds = max(migration.lost_seconds, r.lost_seconds)
        if r.generation:
            migration.generation, migration.rendezvous = r.generation, Rendezvous(r.address, r.port)
            migration.resume_from, migration.resume_step = r.resume_from, r.resume_step

    def _migration_end(self, r: MigrationEnded) -> None:
        entry = self.jobs[r.job_id]
        migration = entry.migration
        if migration is None or migration.id != r.migration_id:
            raise InvariantError(f"job {r.job_id!r}: the end of migration {r.migration_id}, which is not under way")
        entry.migration = None
        entry.lost_seconds += migration.lost_seconds
        if migration.generation:
            entry.stayers[migration.generation] = (entry.generation, migration.stay)
            entry.generation = migration.generation
        if r.outcome is MigrationOutcome.DONE:
            entry.nodes, entry.rendezvous = migration.targets, migration.rendezvous
            entry.resume_from, entry.resume_step = migration.resume_from, migration.resume_step
            entry.migrations_failed = 0
        elif r.outcome in (MigrationOutcome.REQUEUED, MigrationOutcome.KEPT) and r.blame:
            entry.migrations_failed += 1
            if entry.migrations_failed >= _MIGRATION_PATIENCE:
                entry.job = replace(entry.job, movable=False)
        entry.past.append(
            MigrationPast(
                migration.id,
                migration.cause,
                migration.began,
                r.time,
                migration.sources,
                migration.targets,
                r.outcome,
                r.why,
                r.seconds,
                migration.lost_seconds,
            )
        )
        if entry.phase is JobPhase.MIGRATING:
            self._move(entry, JobPhase.RUNNING)

    def _node(self, r: NodeSeen) -> None:
        known = self.nodes.get(r.name)
        self.nodes[r.name] = NodeEntry(r.name, r.gpus, r.pool, known.wanted if known else NodeStatus.UP)

    def _node_wanted(self, r: NodeWanted) -> None:
        if r.name in self.nodes:
            self.nodes[r.name].wanted = NodeStatus(r.status)

    def _setting(self, r: Setting) -> None:
        self.settings[r.name] = r.value

    def _opened(self, r: Opened) -> None:
        self.epoch = r.epoch
