"""A live run as the simulator would have told it: out of the journal, into the same tables, metrics and reports.

Placements are the physical ones. A gang on the move holds nothing between the end of its movers and the start of
their successors, and whoever was admitted but waits for GPUs that are being vacated still waits.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from compass_abs import __version__
from compass_abs.controller.job_spec import JobSpec
from compass_abs.controller.migration import Phase
from compass_abs.controller.records import (
    ClearingBegun,
    Ended,
    MigrationBegun,
    MigrationEnded,
    MigrationOutcome,
    Outcome,
    Placed,
    Record,
    Requeued,
    StepBegun,
    Submitted,
    Unplaced,
)
from compass_abs.model import Cause, ClusterState, Instance, Job, Migration
from compass_abs.model.errors import PlacementError
from compass_abs.reporting.comparison import JobView, RunView
from compass_abs.reporting.recorder import ReportRecorder
from compass_abs.simulation import Recorder, Result, Setup
from compass_abs.simulation.clock import SECOND
from compass_abs.simulation.job_record import JobRecord
from compass_abs.simulation.meter import Meter
from compass_abs.simulation.observer import Several
from compass_abs.simulation.summary import Summary

_CAUSES = {cause.value: cause for cause in Cause}


class RecordedRun:
    """Plays a journal to the simulator's meter and recorders. `due` says when each job was meant to be submitted."""

    def __init__(self, names: Sequence[str], capacity: int, began: float, due: Mapping[str, float]) -> None:
        self._names, self._began, self._due = tuple(names), began, due
        self._state = ClusterState(self._names, capacity)
        self._meter = Meter(self._state)
        self._recorder, self._report = Recorder(self._state), ReportRecorder(self._state)
        self._watching = Several((self._recorder, self._report))
        self._now = 0
        self._jobs: dict[str, JobRecord] = {}
        self._waiting: dict[str, Job] = {}
        self._nodes: dict[str, tuple[int, ...]] = {}
        self._moves: dict[str, MigrationBegun] = {}
        self._events: list[tuple[int, Record]] = []
        self._at = 0
        #: The jobs that ended well, with the time for which they really trained: what a replay needs.
        self.done: list[Job] = []
        #: Seconds of each migration that was made, by phase.
        self.latencies: list[dict[str, float]] = []
        self.summary: Summary | None = None

    def play(self, records: Iterable[Record]) -> Summary:
        """Everything that the journal says, in the order of time."""
        told = [(self._time(record), record) for record in records if hasattr(record, "job_id")]
        self._events = sorted(told, key=lambda event: event[0])
        for at, (time, record) in enumerate(self._events):
            self._at = at
            self._pass(max(time, self._now))
            self._hear(record)
        self.done.sort(key=lambda job: (job.submitted, job.id))
        self.summary = self._meter.summary(len(self._events), len(self._jobs))
        return self.summary

    def result(self, setup: Setup, about: Mapping[str, Any]) -> Result:
        """The run as files that everything which reads simulations reads too."""
        assert self.summary is not None, "play first"
        config = {"compass_abs": __version__, "setup": setup.as_dict(), "trace": dict(about)}
        tables = (self._recorder.jobs(), self._recorder.events(), self._recorder.timeseries())
        return Result(config, self.summary, *tables, self._names)

    def view(self, scheduler: str) -> RunView:
        """The run as the report draws it."""
        assert self.summary is not None, "play first"
        return self._report.run_view(scheduler, self.summary)

    @property
    def jobs(self) -> list[JobView]:
        """Every job, in the order of submission."""
        return self._report.jobs

    # ---- time

    def _time(self, record: Any) -> int:
        due = self._due.get(record.job_id) if isinstance(record, Submitted) else None
        return round((record.time - self._began if due is None else due) * SECOND)

    def _pass(self, time: int) -> None:
        if time > self._now:
            busy = sum(self._jobs[job_id].job.total_gpus for job_id in self._nodes)
            head = next(iter(self._waiting.values()), None)
            self._meter.interval(time - self._now, busy, head, False)
            self._watching.passed(self._now, time, self._meter, busy, len(self._waiting))
            self._now = time

    # ---- what the journal says

    def _hear(self, record: Record) -> None:
        match record:
            case Submitted():
                self._submitted(record)
            case Placed():
                self._placed(record)
            case Unplaced() | Requeued():
                self._requeued(self._jobs[record.job_id])
            case ClearingBegun():
                self._vacate(record.job_id)
            case MigrationBegun():
                self._moves[record.migration_id] = record
            case StepBegun(phase=Phase.WAITING):
                self._vacate(record.job_id)
            case StepBegun(phase=Phase.STARTING):
                self._moved(record)
            case MigrationEnded(outcome=MigrationOutcome.DONE):
                self._migrated(record)
            case Ended():
                self._ended(record)
            case _:
                pass

    def _submitted(self, record: Submitted) -> None:
        job = JobSpec.from_record(record.spec).to_job(record.job_id, self._now / SECOND)
        self._jobs[job.id] = JobRecord(job, len(self._jobs) + 1, self._now, 0)
        self._waiting[job.id] = job
        self._meter.submitted(self._now)
        self._watching.submitted(self._now, job)

    def _placed(self, record: Placed) -> None:
        job = self._jobs[record.job_id]
        del self._waiting[record.job_id]
        job.queueing += self._now - job.queued_at
        job.resumes = self._now
        if job.first_start < 0:
            job.first_start = self._now
        self._hold(job.job, tuple(self._state.index_of[name] for name in record.nodes))
        self._watching.started(self._now, job, self._nodes[record.job_id])

    def _requeued(self, job: JobRecord) -> None:
        self._vacate(job.job.id)
        self._nodes.pop(job.job.id, None)
        # What it had done since its last checkpoint is not known to the journal: it counts as service.
        job.queued_at = self._now
        job.requeues += 1
        self._waiting[job.job.id] = job.job
        self._watching.lost(self._now, job)

    def _moved(self, record: StepBegun) -> None:
        job, move = self._jobs[record.job_id], self._moves[record.migration_id]
        before = self._nodes[record.job_id]
        after = tuple(self._state.index_of[name] for name in move.targets)
        self._vacate(record.job_id)
        self._hold(job.job, after)
        cause = _CAUSES.get(move.cause, Cause.ADMISSION)
        moves = [
            Migration(Instance(record.job_id, number), source, target, job.job.gpus, cause)
            for number, (source, target) in enumerate(zip(before, after, strict=True))
            if source != target
        ]
        job.migrations += len(moves)
        self._meter.moved(len(moves))
        self._watching.moved(self._now, moves)

    def _migrated(self, record: MigrationEnded) -> None:
        job, pause = self._jobs[record.job_id], round(sum(record.seconds.values()) * SECOND)
        self.latencies.append(record.seconds)
        job.delay += pause
        job.pauses += 1
        self._watching.paused(self._now, job, pause)

    def _ended(self, record: Ended) -> None:
        job = self._jobs[record.job_id]
        self._vacate(record.job_id)
        ran = self._nodes.pop(record.job_id, None) is not None
        self._waiting.pop(record.job_id, None)
        if record.outcome is Outcome.DONE:
            job.service = max(0, self._now - job.submitted - job.queueing - job.delay)
            self._meter.finished(job, self._now)
            self._watching.finished(self._now, job)
            # The scheduler was told what was expected; a replay is told what was true.
            self.done.append(replace(job.job, duration=max(job.service, 1) / SECOND))
        elif ran:
            self._watching.lost(self._now, job)

    # ---- who holds what

    def _vacate(self, job_id: str) -> None:
        if job_id in self._state.gangs:
            self._state.release(job_id)

    def _hold(self, job: Job, nodes: tuple[int, ...]) -> None:
        self._nodes[job.id] = nodes
        while True:
            try:
                self._state.place(job, nodes)
                return
            except PlacementError:
                # Whoever held these GPUs had left them, in the same step, and the journal says so a record later.
                self._state.release(self._next_leaver(job, nodes))

    def _next_leaver(self, job: Job, nodes: tuple[int, ...]) -> str:
        for _, record in self._events[self._at + 1 :]:
            leaver = _leaver(record)
            if leaver in self._state.gangs and set(nodes) & set(self._nodes[leaver]):
                return leaver
        raise PlacementError(f"journal: job {job.id!r} is placed on GPUs that nobody leaves")


def _leaver(record: Record) -> str:
    """Whose GPUs are free from this record on; nobody's where it is of another kind."""
    match record:
        case ClearingBegun() | Requeued() | Unplaced() | Ended() | StepBegun(phase=Phase.WAITING):
            return record.job_id
        case _:
            return ""
