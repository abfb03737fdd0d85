"""What another scheduler would have done with the jobs that one pool has seen."""

from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Any

from compass_abs.audit.history import History, JobHistory
from compass_abs.fragmentation import avoidable_partial_nodes
from compass_abs.model import ClusterState, Decision, Job, NodeStatus
from compass_abs.queues import make_queue
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.registry import make_scheduler

_END, _NODE, _GONE, _ARRIVAL, _ROUND, _WAKE = range(6)


@dataclass(slots=True)
class Fate:
    """One job under the other scheduler."""

    job: JobHistory
    started: float | None = None
    moves: int = 0


@dataclass(slots=True)
class Outcome:
    """One pool under the other scheduler."""

    pool: str
    fates: list[Fate] = field(default_factory=list)
    moves: int = 0
    gpu_seconds: float = 0.0
    moved_jobs: dict[str, None] = field(default_factory=dict)
    #: Time, partial nodes, avoidable ones, free GPUs: whenever they changed.
    measures: list[tuple[float, int, int, int]] = field(default_factory=list)
    #: Gangs that lost a node in this telling and went back to the queue.
    requeued: int = 0
    #: Jobs that took no part: too large for the pool's nodes, or without a place in the beginning.
    skipped: int = 0


class WhatIf:
    """Replays one pool from the first observation to the last.

    Every job takes as long as it was seen to take, and its moves add their pauses. A job that still ran in the end, or
    that never started, holds its GPUs to the end once it has started. The scheduler is told no ends in advance.
    """

    def __init__(
        self,
        history: History,
        pool: str,
        scheduler: str,
        parameters: dict[str, str],
        queue: str,
        everything_moves: bool,
        pause: float,
    ) -> None:
        self._history = history
        self._pool = history.pools[pool]
        self._begin, self._until = history.times[0], history.times[-1]
        self._pause = pause
        self._everything_moves = everything_moves
        names = [name for name, seen in self._pool.nodes.items() if seen[0][0] <= self._begin]
        self._state = ClusterState(names, self._pool.capacity, pool)
        self._scheduler: Scheduler = make_scheduler(scheduler, self._state, **parameters)
        self._queue = make_queue(queue, self._scheduler)
        self._situation = Situation()
        self._situation.waiting = self._queue
        self._situation.now = self._begin
        self._heap: list[tuple[float, int, int, Any]] = []
        self._sequence = 0
        self._fates: dict[str, Fate] = {}
        #: When each running job ends, and how much each waiting one has left.
        self._ends: dict[str, float] = {}
        self._left: dict[str, float] = {}
        self._out = Outcome(pool)

    def run(self) -> Outcome:
        """What would have happened."""
        self._prepare()
        self._serve()
        self._measure(self._begin)
        self._plan_round()
        while self._heap and self._heap[0][0] <= self._until:
            time, kind, _, subject = heappop(self._heap)
            self._situation.now = time
            self._step(kind, subject, time)
            if not self._heap or self._heap[0][0] > time:
                self._serve()
                self._measure(time)
        self._out.fates = list(self._fates.values())
        return self._out

    def _push(self, time: float, kind: int, subject: object) -> None:
        self._sequence += 1
        heappush(self._heap, (time, kind, self._sequence, subject))

    # ---- the beginning

    def _prepare(self) -> None:
        here = [job for job in self._history.jobs if self._is_here(job)]
        initial = [job for job in here if job.initial]
        self._scheduler.restore((self._job(job), [self._state.index_of[n] for n in job.nodes]) for job in initial)
        for name, seen in self._pool.nodes.items():
            for time, status in seen:
                if time > self._begin:
                    self._push(time, _NODE, (name, status))
                elif status is not NodeStatus.UP:
                    self._scheduler.set_status(name, status, self._situation)
        for number, job in enumerate(here):
            name = self._name(job, number)
            fate = self._fates[name] = Fate(job)
            if job.initial:
                fate.started = job.started
                self._end(job.id, inf if job.ended is None else job.ended)
                self._situation.progress[job.id] = job.started or self._begin
            elif job.gpus > self._state.capacity or job.instances > len(self._pool.nodes) * (
                self._state.capacity // job.gpus
            ):
                self._out.skipped += 1
                del self._fates[name]
            else:
                self._left[name] = inf if job.ended is None or job.started is None else job.ended - job.started
                since = job.free_since if job.free_since is not None else inf
                if since <= self._until:
                    self._push(max(since, self._begin), _ARRIVAL, (self._job(job, name), since))
                if job.gone is not None:
                    self._push(job.gone, _GONE, name)
        # Who waits in the beginning joins the queue in the order of submission.
        arrivals = [each for each in self._heap if each[1] == _ARRIVAL and each[0] == self._begin]
        self._heap = [each for each in self._heap if not (each[1] == _ARRIVAL and each[0] == self._begin)]
        self._heap.sort()
        for _, _, _, (job, _) in sorted(arrivals, key=lambda each: (each[3][1], each[2])):
            self._arrive(job)

    def _is_here(self, job: JobHistory) -> bool:
        return job.pool == self._pool.name or (not job.pool and job.pools[:1] == (self._pool.name,))

    def _name(self, job: JobHistory, number: int) -> str:
        """A job that runs twice under one name is two jobs."""
        return job.id if job.initial or job.id not in self._fates else f"{job.id} ({number})"

    def _job(self, job: JobHistory, name: str = "") -> Job:
        movable = (job.movable or self._everything_moves) and not job.fixed
        return Job(
            name or job.id,
            job.instances,
            job.gpus,
            submitted=job.submitted or self._begin,
            pool=self._pool.name,
            priority=job.priority,
            movable=movable,
            pause=job.pause,
        )

    # ---- events

    def _step(self, kind: int, subject: Any, time: float) -> None:
        if kind == _END:
            if self._ends.get(subject) == time:
                del self._ends[subject]
                self._situation.progress.pop(subject, None)
                self._account(self._scheduler.finish(subject, self._situation))
        elif kind == _ARRIVAL:
            self._arrive(subject[0])
        elif kind == _GONE:
            if subject in self._ends:
                self._end(subject, time)
            elif any(job.id == subject for job in self._queue):
                self._queue.remove(subject)
        elif kind == _NODE:
            self._change(*subject)
        elif kind == _ROUND:
            self._account(self._scheduler.round(self._situation))
            self._plan_round()

    def _arrive(self, job: Job) -> None:
        self._queue.push(job)
        self._scheduler.submitted(job, self._situation)

    def _change(self, name: str, status: NodeStatus) -> None:
        state = self._state
        known = state.index_of.get(name)
        back = known is None or state.nodes[known].status is NodeStatus.LOST
        if back:
            decision = self._scheduler.add_node(name, self._situation)
            self._account(decision)
            if status is NodeStatus.UP:
                return
        decision = self._scheduler.set_status(name, status, self._situation)
        for job in decision.lost:
            end = self._ends.pop(job.id, inf)
            self._left[job.id] = end - self._situation.now
            self._situation.progress.pop(job.id, None)
            self._queue.requeue(job)
            self._out.requeued += 1
        self._account(decision)

    def _plan_round(self) -> None:
        wanted = self._scheduler.next_round(self._situation.now)
        if wanted is not None and wanted > self._situation.now:
            self._push(wanted, _ROUND, None)

    def _end(self, name: str, time: float) -> None:
        self._ends[name] = time
        if time < inf:
            self._push(time, _END, name)

    # ---- decisions

    def _serve(self) -> None:
        attempts = self._queue.attempts(self._situation)
        try:
            job = next(attempts)
            while True:
                decision = self._scheduler.admit(job, self._situation)
                self._account(decision)
                if decision.admitted:
                    self._start(job)
                elif decision.reason is not None and decision.reason.until is not None:
                    self._push(max(decision.reason.until, self._situation.now + 1.0), _WAKE, None)
                job = attempts.send(decision.admitted)
        except StopIteration:
            return

    def _start(self, job: Job) -> None:
        now = self._situation.now
        fate = self._fates[job.id]
        if fate.started is None:
            fate.started = now
        self._situation.progress[job.id] = now
        self._end(job.id, now + self._left[job.id])

    def _account(self, decision: Decision) -> None:
        """Every gang that moves stands still once, for its pause."""
        gangs = self._state.gangs
        by_job: dict[str, int] = {}
        for move in decision.migrations:
            by_job[move.instance.job_id] = by_job.get(move.instance.job_id, 0) + 1
        for job_id, moves in by_job.items():
            job = gangs[job_id].job
            pause = self._pause if job.pause is None else job.pause
            self._out.moves += moves
            self._out.moved_jobs[job_id] = None
            self._out.gpu_seconds += job.total_gpus * pause
            if job_id in self._fates:
                self._fates[job_id].moves += moves
            if job_id in self._ends and pause:
                self._end(job_id, self._ends[job_id] + pause)
            self._situation.progress[job_id] = self._situation.now + pause

    def _measure(self, time: float) -> None:
        state = self._state
        now = (time, state.partial_nodes, avoidable_partial_nodes(state), state.free_gpus)
        if not self._out.measures or self._out.measures[-1][1:] != now[1:]:
            self._out.measures.append(now)
