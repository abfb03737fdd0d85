"""One pool of interchangeable nodes: its scheduler, its queue, and what they want that isn't so yet.

The scheduler's state is the *target*: it takes a migration for done the moment it decides on it. What really is
lags behind. This room keeps the difference: jobs that are admitted but not started yet, gangs that are to move. When
something can't be carried out, `settle` brings the scheduler back to what is true, and it decides again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import chain
from typing import Protocol

from compass_abs.controller.runs import Occupancy
from compass_abs.model import (
    ClusterState,
    Decision,
    Gang,
    Job,
    Migration,
    NodeStatus,
    PlacementError,
    Reason,
    UnknownJobError,
    UnknownNodeError,
    Verdict,
)
from compass_abs.queues.registry import make_queue
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.registry import make_scheduler

#: No job is kept from being tried for longer than this, in seconds.
LONGEST_HOLD = 60.0


class Firmness(IntEnum):
    """How much of a placement is physical; the firmer ones are put back first."""

    RUNNING = 0
    """Its processes are there, or are being started there."""
    MOVING = 1
    """It is on its way there."""
    LEAVING = 2
    """Its remains are being ended."""
    ADMITTED = 3
    """Nothing of it is there yet."""


@dataclass(frozen=True, slots=True)
class Committed:
    """Where a gang is, or is bound to be."""

    job: Job
    nodes: tuple[str, ...]
    firmness: Firmness


@dataclass(frozen=True, slots=True)
class Move:
    """A gang that is to be elsewhere."""

    job_id: str
    nodes: tuple[str, ...]
    cause: str


@dataclass(frozen=True, slots=True)
class Proposal:
    """A decision's moves that are shown and not made."""

    time: float
    trigger: str
    moves: tuple[Migration, ...]
    nodes: tuple[str, ...]


class Driver(Protocol):
    """Who carries out what a pool decides: the controller."""

    @property
    def migrates(self) -> bool:
        """True when migrations are made, not only shown."""

    def take_moves(self, pool: "Pool", decision: Decision, trigger: str) -> None:
        """Makes the moves of a decision wanted, or only shows them."""


class Pool:
    """A scheduler and its queue, driven by the controller."""

    def __init__(self, name: str, capacity: int, scheduler: str, queue: str, parameters: dict[str, object]) -> None:
        self.name = name
        self.state = ClusterState([], capacity, name)
        self.scheduler = make_scheduler(scheduler, self.state, **parameters)
        self.queue = make_queue(queue, self.scheduler)
        self.situation = Situation()
        self.situation.waiting = self.queue
        #: Jobs that all nodes together could not hold if they were empty: they wait beside the queue, not at its head.
        self.oversize: dict[str, Job] = {}
        #: Admitted jobs whose GPUs aren't all free yet, in the order of admission.
        self.admitted: dict[str, Job] = {}
        #: Gangs that are to move and don't yet, in the order of the decisions.
        self.moves: dict[str, Move] = {}
        #: Why each job that was tried waits.
        self.reasons: dict[str, Reason] = {}
        #: Until when a job is not to be tried, because the engine refused to start it.
        self.held: dict[str, float] = {}
        #: Latest decisions' moves that were not made: nobody may, or everybody only looks.
        self.proposals: list[Proposal] = []
        #: Set when something changed that could let somebody start.
        self.try_again = True
        #: Time at which a held job asked to be tried again.
        self.hold_ends: float | None = None
        #: Time at which that was asked for.
        self.held_since = 0.0
        #: Time of the next round.
        self.round_due: float | None = None

    # ---- nodes

    def add_node(self, name: str) -> Decision:
        """A node came, or a lost one is back."""
        self.try_again = True
        decision = self.scheduler.add_node(name, self.situation)
        for job in [job for job in self.oversize.values() if not self._is_oversize(job)]:
            del self.oversize[job.id]
            self.reasons.pop(job.id, None)
            self.queue.requeue(job)
        return decision

    def set_status(self, name: str, status: NodeStatus) -> Decision:
        """A node changed; the gangs that it took with it are in `lost`."""
        self.try_again = True
        return self.scheduler.set_status(name, status, self.situation)

    # ---- what the scheduler wants

    def names(self, nodes: Sequence[int]) -> tuple[str, ...]:
        """Names of nodes given by index."""
        return tuple(self.state.nodes[index].name for index in nodes)

    def target(self, job_id: str) -> tuple[str, ...]:
        """Where the scheduler has a gang; empty when nowhere."""
        gang = self.state.gangs.get(job_id)
        return self.names(gang.nodes) if gang is not None else ()

    def submit(self, job: Job) -> None:
        """A new job waits."""
        if not self._set_aside(job):
            self.queue.push(job)
        self.scheduler.submitted(job, self.situation)
        self.try_again = True

    def requeue(self, job: Job) -> None:
        """A job that had started waits again."""
        if not self._set_aside(job):
            self.queue.requeue(job)
        self.try_again = True

    def _is_oversize(self, job: Job) -> bool:
        # Nodes that are closed or lost count: they come back.
        return job.instances > len(self.state.nodes) * (self.state.capacity // job.gpus)

    def _set_aside(self, job: Job) -> bool:
        if not self._is_oversize(job):
            return False
        self.oversize[job.id] = job
        self.reasons[job.id] = Reason(Verdict.CAPACITY, job.total_gpus, self.state.free_gpus)
        return True

    @property
    def waiting(self) -> Iterator[Job]:
        """Every job that is not admitted, in the order of the queue; last those that wait for more nodes."""
        return chain(self.queue, self.oversize.values())

    def withdraw(self, job_id: str) -> bool:
        """Takes a job out of the queue; False when it isn't there."""
        if self.oversize.pop(job_id, None) is None:
            try:
                self.queue.remove(job_id)
            except UnknownJobError:
                return False
        self.reasons.pop(job_id, None)
        self.try_again = True
        return True

    def finish(self, job_id: str) -> Decision:
        """A gang is gone: its GPUs are free."""
        self.moves.pop(job_id, None)
        self.admitted.pop(job_id, None)
        self.situation.ends.pop(job_id, None)
        self.situation.progress.pop(job_id, None)
        self.try_again = True
        if job_id not in self.state.gangs:
            return Decision()
        return self.scheduler.finish(job_id, self.situation)

    def hold(self, job_id: str, until: float) -> None:
        """This job is not to be tried before this time."""
        self.held[job_id] = until

    def admit(self, driver: Driver) -> None:
        """Tries whom the queue puts forward until nobody starts."""
        self.try_again, self.hold_ends, self.held_since = False, None, self.situation.now
        attempts = self.queue.attempts(self.situation)
        try:
            job = next(attempts)
            while True:
                decision = self._try(job, driver)
                if decision.admitted:
                    self.reasons.pop(job.id, None)
                    self.admitted[job.id] = job
                    driver.take_moves(self, decision, f"start {job.id}")
                elif decision.reason is not None:
                    self.reasons[job.id] = decision.reason
                    until = decision.reason.until
                    if until is not None and (self.hold_ends is None or until < self.hold_ends):
                        self.hold_ends = until
                job = attempts.send(decision.admitted)
        except StopIteration:
            pass

    def _try(self, job: Job, driver: Driver) -> Decision:
        until = self.held.get(job.id)
        if until is not None:
            # Never longer than the longest hold, whatever the clock did meanwhile.
            if self.situation.now < until <= self.situation.now + LONGEST_HOLD:
                text = "the engine refused its latest start; it is tried again soon"
                return self.scheduler.refuse(job, Verdict.POLICY, text, until)
            del self.held[job.id]
        decision = self.scheduler.admit(job, self.situation)
        trigger = f"start {job.id}"
        # Whatever was proposed for it before, this is what is true now.
        self.proposals = [proposal for proposal in self.proposals if proposal.trigger != trigger]
        if not decision.admitted or not decision.migrations or driver.migrates:
            return decision
        self.scheduler.undo(decision)
        if decision.before:
            self.propose(trigger, decision.migrations)
            return Decision(job, reason=self._would_start(job, decision))
        # Only what would have been tidied up afterwards is left out.
        self.propose(f"beginning of {job.id}", decision.migrations)
        self.state.place(job, decision.nodes)
        self.scheduler.restore(())
        return Decision(job, decision.nodes)

    def _would_start(self, job: Job, decision: Decision) -> Reason:
        text = f"would start after {len(decision.before)} moves, which are not being made now"
        return Reason(Verdict.FRAGMENTATION, job.total_gpus, self.state.free_gpus, text)

    def propose(self, trigger: str, moves: tuple[Migration, ...]) -> None:
        """Remembers moves that were computed and not made."""
        touched = dict.fromkeys(node for move in moves for node in (move.source, move.target))
        self.proposals = [proposal for proposal in self.proposals if proposal.trigger != trigger]
        self.proposals.append(Proposal(self.situation.now, trigger, moves, self.names(list(touched))))
        del self.proposals[:-50]

    def admitted_waits_for(self, occupancy: Occupancy) -> bool:
        """True when an admitted job has room by now: it starts first."""
        return any(occupancy.has_room(self.target(job_id), job.gpus) for job_id, job in self.admitted.items())

    def hold_is_over(self) -> bool:
        """True when a held job is to be tried again: in its time, or because the clock was set back meanwhile."""
        now = self.situation.now
        return self.hold_ends is not None and (self.hold_ends <= now or now < self.held_since)

    def round_is_due(self) -> bool:
        """True when a reorganisation is to be made now; plans the next one. A clock that is set back delays none."""
        now, due = self.situation.now, self.round_due
        following = self.scheduler.next_round(now)
        if due is not None and due <= now:
            self.round_due = following
            return True
        self.round_due = following if due is None or following is None else min(due, following)
        return False

    # ---- back to what is true

    def settle(self, committed: Iterable[Committed]) -> list[str]:
        """Makes the scheduler's state equal to these placements; says who doesn't fit any more, the rest being
        as firm or firmer. Moves that weren't begun are dropped; jobs that were admitted, not started, and don't fit
        any more wait again.
        """
        self.moves.clear()
        wanted = {entry.job.id: entry for entry in committed}
        for job_id, job in self.admitted.items():
            if job_id in self.state.gangs:
                wanted[job_id] = Committed(job, self.target(job_id), Firmness.ADMITTED)
        for job_id, gang in list(self.state.gangs.items()):
            if job_id not in wanted or not self._as_wanted(gang, wanted[job_id]):
                self.state.release(job_id)
        refused = self._put_back(wanted)
        if any(wanted[job_id].firmness is Firmness.RUNNING for job_id in refused):
            # Something less firm is in the way of what is physically there.
            for job_id in list(self.state.gangs):
                if wanted[job_id].firmness is not Firmness.RUNNING:
                    self.state.release(job_id)
            refused = self._put_back(wanted)
        for job_id in [job_id for job_id in self.admitted if job_id not in self.state.gangs]:
            self.queue.requeue(self.admitted.pop(job_id))
        self.scheduler.restore(())
        self.try_again = True
        return [job_id for job_id in refused if wanted[job_id].firmness is not Firmness.ADMITTED]

    def _as_wanted(self, gang: Gang, wanted: Committed) -> bool:
        return self.names(gang.nodes) == wanted.nodes and gang.job.movable == wanted.job.movable

    def _put_back(self, wanted: dict[str, Committed]) -> list[str]:
        """Places what is missing, the firmest first; says what did not fit."""
        refused = []
        missing = [entry for job_id, entry in wanted.items() if job_id not in self.state.gangs]
        for entry in sorted(missing, key=lambda entry: entry.firmness):
            try:
                nodes = [self.state.index_of[name] for name in entry.nodes]
                if any(self.state.nodes[index].status is NodeStatus.LOST for index in nodes):
                    raise PlacementError(f"job {entry.job.id!r}: one of its nodes is lost")
                self.state.restore([(entry.job, nodes)])
            except (PlacementError, UnknownNodeError, KeyError):
                refused.append(entry.job.id)
        return refused
