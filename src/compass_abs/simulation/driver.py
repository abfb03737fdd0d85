"""The event loop: a trace in, a scheduler's decisions carried out in simulated time, metrics out."""

import math
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, IntEnum, auto
from heapq import heappop, heappush
from typing import Any

from compass_abs.model import CompassError, Decision, InvalidJobError, Job, Migration, Mode, NodeStatus, Verdict
from compass_abs.queues.base import Queue
from compass_abs.queues.registry import make_queue
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.simulation.clock import SECOND, microseconds
from compass_abs.simulation.costs import Cost, PaperCost
from compass_abs.simulation.job_record import JobRecord
from compass_abs.simulation.meter import Meter
from compass_abs.simulation.node_changes import NodeChange, NodeChangeError
from compass_abs.simulation.observer import Observer
from compass_abs.simulation.summary import Summary

#: Seconds of work between two periodic checkpoints; what GFS's public artifact assumes.
CHECKPOINT_PERIOD = 3600.0
#: Events between two calls of a progress callback: few enough for schedulers that think for a tenth of a second.
PROGRESS_EVERY = 64


class StuckError(CompassError):
    """Jobs wait, and nothing is left that could ever let them start."""


class Kind(IntEnum):
    """Order of events at the same instant: what frees GPUs comes before what takes them."""

    DEPARTURE = 0
    NODE = 1
    ROUND = 2
    ARRIVAL = 3
    WAKE = 4


class Checks(Enum):
    """How often invariants are checked."""

    NEVER = auto()
    EVERY_EVENT = auto()


class Simulation:
    """One replay of jobs on one pool. Times inside are whole microseconds.

    Events are ordered by (time, kind, sequence). After each event the queue is served; everything that follows from
    one event at that instant belongs to it, so a gang pays for moving once however often it is moved by it.
    """

    def __init__(
        self,
        jobs: Iterable[Job],
        scheduler: Scheduler,
        queue: Queue | None = None,
        *,
        cost: Cost | None = None,
        node_changes: Iterable[NodeChange] = (),
        checkpoint_period: float | None = CHECKPOINT_PERIOD,
        history: Iterable[Job] = (),
        observer: Observer | None = None,
        checks: Checks = Checks.NEVER,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.scheduler = scheduler
        self.state = scheduler.state
        self.queue = make_queue("fifo", scheduler) if queue is None else queue
        self.situation = Situation()
        self.situation.waiting = self.queue
        self.meter = Meter(self.state)
        self._jobs = iter(jobs)
        self._charge = (PaperCost() if cost is None else cost).charge(self.state)
        self._period = None if checkpoint_period is None else microseconds(checkpoint_period, "checkpoint period")
        self._observer = observer
        self._checks = checks
        self._progress = progress
        self._heap: list[tuple[int, int, int, Any]] = []
        self._now = 0
        self._records: dict[str, JobRecord] = {}
        #: GPUs held by running gangs, and how many gangs run.
        self._busy = self._running = 0
        self._submitted = self._events = self._sequence = 0
        #: Jobs that have paid for moving in the current event.
        self._paid: dict[str, None] = {}
        self._held = False
        self._wake = -1
        if type(scheduler).submitted is not Scheduler.submitted:
            # Schedulers that learn the demand have seen the days before; they are not told what became of them.
            for job in history:
                self.situation.now = job.submitted
                scheduler.submitted(job, self.situation)
        changes = sorted(node_changes, key=lambda change: change.time)
        self._changes_left = len(changes)
        for change in changes:
            self._push(microseconds(change.time, f"node {change.node!r}: time"), Kind.NODE, change)

    # ---- the loop

    def run(self) -> Summary:
        """Replays everything until all jobs have finished."""
        heap, queue, situation = self._heap, self.queue, self.situation
        interval, observer = self.meter.interval, self._observer
        job = next(self._jobs, None)
        arrival = self._arrival_time(job) if job is not None else 0
        if job is not None:
            self._now = min(arrival, heap[0][0]) if heap else arrival
            situation.now = self._now / SECOND
            self._plan_round()
        while True:
            if job is not None and (not heap or (arrival, Kind.ARRIVAL) < heap[0][:2]):
                time, kind = arrival, 3
                subject: Any = job
            elif heap and (job is not None or self._records):
                time, kind, _, subject = heappop(heap)
                if kind == 0 and not self._is_due(subject, time):
                    continue
                if kind == 4 and time != self._wake:
                    continue
            elif self._records:
                raise self._stuck()
            else:
                break
            now = self._now
            if time > now:
                interval(time - now, self._busy, queue.head(), self._held)
                if observer is not None:
                    observer.passed(now, time, self.meter, self._busy, len(queue))
                self._now = time
                situation.now = time / SECOND
            self._events += 1
            if self._paid:
                self._paid.clear()
            if kind == 0:
                self._depart(subject)
            elif kind == 3:
                self._arrive(subject, time)
                job = next(self._jobs, None)
                if job is not None:
                    arrival = self._arrival_time(job)
            elif kind == 2:
                self._round()
            elif kind == 1:
                self._change_node(subject)
            else:
                self._wake = -1
            if queue:
                self._serve()
                if not self._running and job is None and self._is_stuck():
                    raise self._stuck()
            if self._checks is Checks.EVERY_EVENT:
                self.scheduler.check_invariants()
            if self._progress is not None and not self._events % PROGRESS_EVERY:
                self._progress(self._submitted - len(self._records))
        if self._progress is not None:
            self._progress(self._submitted)
        return self.meter.summary(self._events, self._submitted)

    def _push(self, time: int, kind: Kind, subject: object) -> None:
        self._sequence += 1
        heappush(self._heap, (time, int(kind), self._sequence, subject))

    def _arrival_time(self, job: Job) -> int:
        try:
            time = round(job.submitted * SECOND)
        except (OverflowError, ValueError):
            raise InvalidJobError(f"job {job.id!r}: submitted is {job.submitted!r}, expected seconds") from None
        if time < self._now and self._submitted:
            raise InvalidJobError(
                f"job {job.id!r}: submitted at {job.submitted}, before the job ahead of it; sort the jobs by time"
            )
        return time

    def _is_due(self, record: JobRecord, time: int) -> bool:
        """Whether a departure popped from the heap is to happen now; one that was delayed goes back."""
        if record.heap_end != time:
            return False
        record.heap_end = -1
        if not record.running:
            return False
        if record.end > time:
            record.heap_end = record.end
            heappush(self._heap, (record.end, 0, record.number, record))
            return False
        return True

    # ---- events

    def _arrive(self, job: Job, now: int) -> None:
        state = self.state
        if job.id in self._records:
            raise InvalidJobError(f"job {job.id!r} is submitted twice; job ids must be unique")
        duration = job.duration
        if duration is None or not 0 <= duration < math.inf:
            raise InvalidJobError(f"job {job.id!r}: duration is {job.duration!r}, expected seconds ≥ 0")
        if job.gpus > state.capacity:
            state.check_job(job)
        if job.gpus > state.capacity:
            room, remedy = state.most_instances(job.gpus), "more domains"
        else:
            each = state.capacity // job.gpus
            room, remedy = self.meter.nodes * each, f"at least {-(-job.instances // each)} nodes"
        if not self._changes_left and job.instances > room:
            raise InvalidJobError(
                f"job {job.id!r}: {job.instances} × {job.gpus} GPUs never fit {self.meter.nodes} nodes of "
                f"{state.capacity} (room for {room} instances); simulate {remedy}, or leave the job out"
            )
        self._submitted += 1
        self._records[job.id] = JobRecord(job, self._submitted, now, round(duration * SECOND))
        self.meter.submitted(now)
        if self._observer is not None:
            self._observer.submitted(now, job)
        self.queue.push(job)
        self.scheduler.submitted(job, self.situation)

    def _depart(self, record: JobRecord) -> None:
        job_id = record.job.id
        decision = self.scheduler.finish(job_id, self.situation)
        situation = self.situation
        situation.ends.pop(job_id, None)
        situation.progress.pop(job_id, None)
        del self._records[job_id]
        record.running = False
        self._running -= 1
        self._busy -= record.job.total_gpus
        self.meter.finished(record, self._now)
        if self._observer is not None:
            self._observer.finished(self._now, record)
        if decision.before or decision.after:
            self._account_moves(decision.migrations)

    def _round(self) -> None:
        if self._running:
            self._account(self.scheduler.round(self.situation))
        self._plan_round()

    def _plan_round(self) -> None:
        now = self._now
        wanted = self.scheduler.next_round(now / SECOND)
        if wanted is None:
            return
        time = _at_or_after(wanted)
        if time <= now and self._events:
            raise CompassError(
                f"scheduler {self.scheduler.name!r} wants its next round at {wanted}, which isn't after {now / SECOND}"
            )
        self._push(max(time, now), Kind.ROUND, None)

    def _change_node(self, change: NodeChange) -> None:
        self._changes_left -= 1
        state, scheduler = self.state, self.scheduler
        index = state.index_of.get(change.node)
        if index is None and change.status is not NodeStatus.UP:
            raise NodeChangeError(
                f"node event at {change.time:.15g} s: there is no node {change.node!r} to be {change.status}; the "
                f"cluster began with {state.nodes[0].name} to {state.nodes[-1].name}, and only 'up' adds one"
            )
        back = index is None or state.nodes[index].status is NodeStatus.LOST
        if change.status is NodeStatus.UP and back:
            decision = scheduler.add_node(change.node, self.situation)
        else:
            decision = scheduler.set_status(change.node, change.status, self.situation)
        self.meter.nodes_changed()
        if self._observer is not None:
            self._observer.node_changed(self._now, change, state.index_of[change.node])
        for job in decision.lost:
            self._lose(self._records[job.id])
        self._account(decision)

    def _lose(self, record: JobRecord) -> None:
        """A gang goes back to the queue with what its last checkpoint kept."""
        now, job = self._now, record.job
        kept = record.keep(now, self._period)
        record.redone += record.progress(now) - kept
        record.delay -= max(0, record.resumes - now)
        record.saved = kept
        record.running = False
        record.queued_at = now
        record.requeues += 1
        self._running -= 1
        self._busy -= job.total_gpus
        self.situation.ends.pop(job.id, None)
        self.situation.progress.pop(job.id, None)
        self.queue.requeue(job)
        if self._observer is not None:
            self._observer.lost(now, record)

    # ---- decisions

    def _serve(self) -> None:
        """Tries waiting jobs for as long as the queue offers one."""
        admit, situation = self.scheduler.admit, self.situation
        attempts = self.queue.attempts(situation)
        held = refused = False
        try:
            job = next(attempts)
            while True:
                decision = admit(job, situation)
                reason = decision.reason
                if reason is None:
                    self._start(decision)
                    job = attempts.send(True)
                    continue
                if decision.after:
                    self._account(decision)
                if not refused:
                    # The first who is refused is the head of the queue from now on.
                    refused = True
                    held = reason.verdict is Verdict.POLICY
                if reason.until is not None:
                    self._wake_at(reason.until)
                if self._observer is not None:
                    self._observer.refused(self._now, job, reason)
                job = attempts.send(False)
        except StopIteration:
            self._held = held

    def _wake_at(self, until: float) -> None:
        time = _at_or_after(until)
        if time > self._now and (self._wake < 0 or time < self._wake):
            self._wake = time
            self._push(time, Kind.WAKE, None)

    def _start(self, decision: Decision) -> None:
        job, now = decision.job, self._now
        assert job is not None
        record = self._records[job.id]
        moves = decision.migrations
        if moves:
            self._charge.vacate(now, moves, self.state)
        begins = self._charge.start(now, job, decision.nodes, self.state)
        record.queueing += now - record.queued_at
        record.delay += begins - now
        record.resumes = begins
        end = record.end = begins + record.service - record.saved
        record.running = True
        self._running += 1
        self._busy += job.instances * job.gpus
        self.situation.ends[job.id] = end / SECOND
        self.situation.progress[job.id] = begins / SECOND
        if record.heap_end != end:
            record.heap_end = end
            heappush(self._heap, (end, 0, record.number, record))
        if record.first_start < 0:
            record.first_start = now
        if self._observer is not None:
            self._observer.started(now, record, decision.nodes)
        if moves:
            self._pay(moves)

    def _account(self, decision: Decision) -> None:
        """What a decision without an admission costs."""
        if moves := decision.migrations:
            self._account_moves(moves)

    def _account_moves(self, moves: Sequence[Migration]) -> None:
        self._charge.vacate(self._now, moves, self.state)
        self._pay(moves)

    def _pay(self, moves: Sequence[Migration]) -> None:
        """Delays each gang that moves, once an event."""
        self.meter.moved(len(moves))
        if self._observer is not None:
            self._observer.moved(self._now, moves)
        by_job: dict[str, list[Migration]] = {}
        for move in moves:
            by_job.setdefault(move.instance.job_id, []).append(move)
        for job_id, own in by_job.items():
            record = self._records[job_id]
            record.migrations += len(own)
            if job_id not in self._paid:
                self._paid[job_id] = None
                self._pause(record, own)

    def _pause(self, record: JobRecord, moves: Sequence[Migration]) -> None:
        now, job = self._now, record.job
        pause = self._charge.pause(now, job, moves, self.state)
        done = record.progress(now)
        again = 0
        if any(move.mode is Mode.RESTART for move in moves):
            again = done - record.keep(now, self._period)
            record.redone += again
        else:
            record.saved = done
        record.resumes = max(now, record.resumes) + pause
        record.end += pause + again
        record.delay += pause
        record.pauses += 1
        self.situation.ends[job.id] = record.end / SECOND
        self.situation.progress[job.id] = record.resumes / SECOND
        if self._observer is not None:
            self._observer.paused(now, record, pause)

    # ---- the end

    def _is_stuck(self) -> bool:
        """Whether nothing runs and nothing is to come that could change that."""
        return self._wake < 0 and not self._changes_left

    def _stuck(self) -> StuckError:
        job = self.queue.head()
        assert job is not None
        refusal = self.scheduler.admit(job, self.situation).reason
        return StuckError(
            f"job {job.id!r} ({job.instances} × {job.gpus} GPUs) can never start under {self.scheduler.name!r}: "
            f"nothing runs on {self.state.available_nodes} nodes, and it is refused for {refusal}"
        )


def _at_or_after(seconds: float) -> int:
    """The first microsecond that, read back as seconds, isn't before this time."""
    time = math.ceil(seconds * SECOND)
    return time if time / SECOND >= seconds else time + 1


def simulate(jobs: Iterable[Job], scheduler: Scheduler, queue: Queue | None = None, **options: Any) -> Summary:
    """Replays jobs under a scheduler and returns the metrics; `options` are those of `Simulation`."""
    return Simulation(jobs, scheduler, queue, **options).run()
