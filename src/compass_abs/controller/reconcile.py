"""The controller: what is observed and what is wanted go in, decisions and effects come out.

Single-threaded and without a clock of its own. Everything that happens is told to it (`submit`, `on_report`,
`on_effect`, ...) and only marks what has to be looked at; `step` looks, decides, writes its intentions down and only
then lets them be carried out. It may die anywhere: what it knew is in the journal, what is true is in the engine.
"""

import heapq
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from time import perf_counter

from compass_abs.controller import hearing, lifecycle, moving, restoring, topology
from compass_abs.controller.book import Book, JobEntry, JobPhase
from compass_abs.controller.effects import Call, Effect, EffectKind, EffectResult
from compass_abs.controller.job_spec import JobSpec
from compass_abs.controller.journal import Journal
from compass_abs.controller.live import Clock, Live
from compass_abs.controller.migration import Patience
from compass_abs.controller.pool import Move, Pool
from compass_abs.controller.records import (
    JOBS_BEFORE,
    CancelRequested,
    Ended,
    NodeWanted,
    Opened,
    Outcome,
    Record,
    Setting,
    Submitted,
)
from compass_abs.controller.runs import Occupancy, View
from compass_abs.engines.protocol import (
    Engine,
    NodeHealth,
    NodeReport,
    Observation,
    Report,
)
from compass_abs.model import CAPACITIES, CompassError, Decision, NodeStatus, UnknownJobError, UnknownNodeError

_MIGRATIONS = "migrations"
#: Rounds of looking before `step` gives up and says that something won't settle: a defect.
_MOST_ROUNDS = 1000


class NotReadyError(CompassError):
    """The engine hasn't been seen yet."""


class Conduct(StrEnum):
    """Whether migrations are made."""

    RECOMMEND = "recommend"
    """Every move is computed and shown, none is made."""
    EXECUTE = "execute"


@dataclass(frozen=True, slots=True)
class Config:
    """How a controller behaves."""

    scheduler: str = "compass-abs"
    parameters: Mapping[str, object] = field(default_factory=dict)
    queue: str = "fifo"
    conduct: Conduct = Conduct.EXECUTE
    patience: Patience = field(default=Patience())
    #: Gangs that may migrate at the same time.
    migrations_at_once: int = 8
    #: A program that doesn't report progress counts as training once it has been up this long.
    settling: float = 3.0
    #: A session that has said nothing yet is still starting, and isn't asked to move for so long: torch takes its time.
    silence: float = 60.0
    #: A restart for a reason that isn't the job's own is free, but not for ever.
    most_restarts: int = 100
    #: First and longest pause before an unavailable engine is asked again.
    retry_first: float = 0.5
    retry_most: float = 30.0

    def check(self) -> None:
        """Raises when scheduler, its parameters or the queue make no sense: better now than at the first node."""
        Pool("", max(CAPACITIES), self.scheduler, self.queue, dict(self.parameters))


class Controller:
    """See the module's docstring."""

    def __init__(
        self,
        journal: Journal,
        engine: Engine,
        submit_effect: Callable[[Effect], None],
        clock: Clock,
        config: Config | None = None,
        listener: Callable[[int, Record], None] = lambda number, record: None,
    ) -> None:
        self.config = config or Config()
        self.engine = engine
        self.clock = clock
        self.book = Book()
        self.pools: dict[str, Pool] = {}
        self.occupancy = Occupancy()
        self.health: dict[str, NodeReport] = {}
        #: Nodes of which nothing can be made, and how many GPUs they have.
        self.unfit_nodes: dict[str, int] = {}
        self.live: dict[str, Live] = {}
        self.ready = False
        #: Set when only a fresh look at the engine can tell what became of a call.
        self.wants_observation = True
        #: Number of the latest call about a start that has returned.
        self.ticket = 0
        #: Seconds that the latest scheduling decisions took, for the metrics.
        self.decision_seconds: deque[float] = deque(maxlen=10_000)
        self._journal = journal
        self._submit_effect = submit_effect
        self._listener = listener
        self._pending: list[Record] = []
        self._effects: list[Effect] = []
        self._effect_number = 0
        self._dirty: dict[str, None] = {}
        self._unsettled: dict[str, None] = {}
        self._timers: list[tuple[float, str]] = []
        self._moving: dict[str, None] = {}
        self._roomless: dict[str, None] = {}
        for record in journal.replay():
            self.book.apply(record)
        #: Records that are durable: the number of the latest one, over all controllers that wrote this journal.
        self.durable = self.book.records
        self.note(Opened(clock.wall(), self.book.epoch + 1, self.config.scheduler, self.config.conduct))
        self._flush()

    # ---- told by users

    def submit(self, spec: JobSpec) -> str:
        """Accepts a job and says its id; it is durable after the next `step`."""
        pool = self._pool_for(spec)
        job_id = self._new_id(spec.name)
        now = self.clock.wall()
        job = spec.to_job(job_id, now)
        pool.state.check_job(job)
        self.note(Submitted(job_id, now, spec.to_record()))
        self.tell_time()
        pool.submit(self.book.jobs[job_id].job)
        return job_id

    def _pool_for(self, spec: JobSpec) -> Pool:
        if not self.ready:
            raise NotReadyError("the engine has not been seen yet; try again in a moment")
        if not spec.pool and len(self.pools) == 1:
            return next(iter(self.pools.values()))
        pool = self.pools.get(spec.pool)
        if pool is None:
            known = ", ".join(repr(name) for name in sorted(self.pools)) or "none"
            raise CompassError(f"pool: there is no pool {spec.pool!r}; known: {known}")
        return pool

    def _new_id(self, name: str) -> str:
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:28].strip("-") or "job"
        before = int(self.book.settings.get(JOBS_BEFORE, "0"))
        return f"{slug}-{before + len(self.book.jobs) + 1}"

    def cancel(self, job_id: str, who: str = "") -> None:
        """Ends a job, whatever it is doing. Does nothing to one that is over."""
        entry = self.entry(job_id)
        if entry.over or entry.cancelled:
            return
        self.note(CancelRequested(job_id, self.clock.wall(), who))
        self.touch(job_id)

    def set_node(self, name: str, status: NodeStatus, who: str = "") -> None:
        """Drains, cordons or brings back a node."""
        if name not in self.book.nodes:
            raise UnknownNodeError(f"there is no node {name!r}; known: {', '.join(sorted(self.book.nodes))}")
        if self.book.nodes[name].wanted is not status:
            self.note(NodeWanted(name, self.clock.wall(), status, who))
            if self.ready:
                topology.refresh(self, name)

    def pause_migrations(self, who: str = "") -> None:
        """No migration begins; those that have not stopped anything yet are called off."""
        self._switch_migrations("paused", who)

    def resume_migrations(self, who: str = "") -> None:
        """Migrations are made again."""
        self._switch_migrations("on", who)

    def _switch_migrations(self, value: str, who: str) -> None:
        if self.book.settings.get(_MIGRATIONS, "on") == value:
            return
        self.note(Setting(_MIGRATIONS, self.clock.wall(), value, who))
        for name in self.pools:
            self._unsettled[name] = None
        for job_id in self._moving:
            self.touch(job_id)

    @property
    def migrates(self) -> bool:
        """True when migrations are made, not only shown."""
        return self.config.conduct is Conduct.EXECUTE and self.book.settings.get(_MIGRATIONS, "on") == "on"

    def entry(self, job_id: str) -> JobEntry:
        """The job of this id."""
        entry = self.book.jobs.get(job_id)
        if entry is None:
            raise UnknownJobError(f"there is no job {job_id!r}")
        return entry

    def records_of(self, job_id: str, most: int) -> list[Record]:
        """The latest durable records of a job, in order."""
        return self._journal.of_job(self.entry(job_id).id, most)

    # ---- told by the engine

    def on_report(self, report: Report) -> None:
        """One node or run, as the engine's watch tells it."""
        if isinstance(report, NodeReport):
            if self.ready:
                topology.on_node(self, report)
            return
        hearing.on_run(self, report)

    def on_observation(self, observation: Observation, ticket: int) -> None:
        """Everything, as it was when the call began whose ticket this is."""
        hearing.on_observation(self, observation, ticket)

    def on_effect(self, result: EffectResult) -> None:
        """What came of a batch of calls."""
        hearing.on_effect(self, result)

    # ---- looking

    def touch(self, job_id: str) -> None:
        """This job is to be looked at in the next step."""
        self._dirty[job_id] = None

    def wake(self, job_id: str, when: float) -> None:
        """This job is to be looked at again at this time, by the monotonic clock."""
        heapq.heappush(self._timers, (when, job_id))

    def unsettle(self, pool: Pool) -> None:
        """The scheduler of this pool believes something that isn't true."""
        self._unsettled[pool.name] = None

    def note(self, record: Record) -> None:
        """Takes a record into account, and into the next commit."""
        self.book.apply(record)
        self._pending.append(record)

    def next_wake(self) -> float | None:
        """When `step` is due again even if nothing happens, by the monotonic clock."""
        times = [self._timers[0][0]] if self._timers else []
        now, wall = self.clock.monotonic(), self.clock.wall()
        for pool in self.pools.values():
            times += [now + max(0.0, due - wall) for due in (pool.round_due, pool.hold_ends) if due is not None]
        return min(times) if times else None

    def step(self) -> None:
        """Looks at whatever was marked, decides, commits, and lets the effects begin."""
        now = self.clock.monotonic()
        while self._timers and self._timers[0][0] <= now:
            self.touch(heapq.heappop(self._timers)[1])
        if self.ready:
            self.tell_time()
            for _ in range(_MOST_ROUNDS):
                if not self._look():
                    break
            else:
                raise CompassError(f"won't settle: {list(self._dirty)[:5]}, {list(self._unsettled)}")
        self._flush()

    def tell_time(self) -> None:
        """Lets every scheduler know what time it is."""
        wall = self.clock.wall()
        for pool in self.pools.values():
            pool.situation.now = wall

    def _look(self) -> bool:
        """One round; False when nothing was left to do."""
        busy = bool(self._dirty)
        while self._dirty:
            job_id = next(iter(self._dirty))
            del self._dirty[job_id]
            self._look_at(job_id)
        for name in list(self._unsettled):
            busy = True
            del self._unsettled[name]
            restoring.settle(self, self.pools[name])
        for pool in self.pools.values():
            if pool.round_is_due():
                busy = True
                self.take_moves(pool, pool.scheduler.round(pool.situation), "round")
            if pool.hold_is_over():
                pool.try_again = True
            if pool.try_again:
                busy = True
                began = perf_counter()
                topology.plan_drains(self, pool)
                pool.admit(self)
                self.decision_seconds.append(perf_counter() - began)
            lifecycle.begin_starts(self, pool)
            moving.begin_moves(self, pool)
        return busy or bool(self._dirty) or bool(self._unsettled)

    def _look_at(self, job_id: str) -> None:
        entry = self.book.jobs.get(job_id)
        if entry is None:
            return
        live = self.live.setdefault(job_id, Live())
        migration = entry.migration
        live.enter((entry.phase, entry.generation, migration and migration.id, migration and migration.phase), self.now)
        if lifecycle.sweep(self, entry, live):
            return
        if entry.phase is JobPhase.MIGRATING:
            moving.look(self, entry, live)
        else:
            lifecycle.look(self, entry, live)

    @property
    def now(self) -> float:
        """The monotonic clock."""
        return self.clock.monotonic()

    def take_moves(self, pool: Pool, decision: Decision, trigger: str) -> None:
        """Makes the moves of a decision wanted, or only shows them; and looks at gangs it took down."""
        for job in decision.lost:
            self.touch(job.id)
        moved: dict[str, str] = {move.instance.job_id: move.cause for move in decision.migrations}
        if not moved:
            return
        if not self.migrates:
            pool.propose(trigger, decision.migrations)
            self.unsettle_moved(pool, list(moved))
            return
        for job_id, cause in moved.items():
            self.retarget(pool, job_id, cause)

    def unsettle_moved(self, pool: Pool, job_ids: Sequence[str]) -> None:
        """Puts gangs back where they are in the scheduler's eyes: nobody moves them."""
        for job_id in job_ids:
            entry = self.book.jobs[job_id]
            if entry.phase in (JobPhase.RUNNING, JobPhase.STARTING) and pool.target(job_id) != entry.nodes:
                self.unsettle(pool)

    def retarget(self, pool: Pool, job_id: str, cause: str) -> None:
        """The scheduler has this gang elsewhere now: what is to be done about it?"""
        entry = self.book.jobs[job_id]
        target = pool.target(job_id)
        if job_id in pool.admitted or not target or entry.phase is JobPhase.CLEARING:
            return
        if entry.phase is not JobPhase.MIGRATING and target == entry.nodes:
            pool.moves.pop(job_id, None)
        else:
            pool.moves[job_id] = Move(job_id, target, cause)
        self.touch(job_id)

    # ---- what is true

    def pool_of(self, entry: JobEntry) -> Pool:
        """The pool a job runs in."""
        if entry.job.pool in self.pools:
            return self.pools[entry.job.pool]
        return next(iter(self.pools.values()))

    def dead(self, view: View) -> bool:
        """True when a run's processes are gone, or its node is."""
        return view.ended or not self.node_alive(view.node)

    def node_alive(self, name: str) -> bool:
        """True unless the engine has lost this node."""
        report = self.health.get(name)
        return report is not None and report.health is not NodeHealth.LOST

    # ---- effects

    def act(self, entry: JobEntry, live: Live, kind: EffectKind, calls: Sequence[Call]) -> bool:
        """Begins a batch of calls, unless one is under way or it is too soon to try again; True when it began."""
        if live.busy or not calls or self.now < live.retry_at:
            return False
        self._effect_number += 1
        live.busy = self._effect_number
        live.acted[kind] = self.now
        self._effects.append(Effect(self._effect_number, entry.id, kind, tuple(calls)))
        return True

    def finish(self, entry: JobEntry, outcome: Outcome, why: str) -> None:
        """The job is over and nothing of it is left."""
        live = self.live.get(entry.id)
        done = live.gang.furthest() if live is not None else 0
        self.note(Ended(entry.id, self.clock.wall(), outcome, why, max(done, entry.furthest)))
        pool = self.pool_of(entry)
        if entry.id in pool.admitted or not pool.withdraw(entry.id):
            self.take_moves(pool, pool.finish(entry.id), f"end of {entry.id}")
        self.touch(entry.id)

    def wait_for_room(self, job_id: str) -> None:
        """This job goes on as soon as GPUs become free somewhere."""
        self._roomless[job_id] = None

    def tell_of_room(self) -> None:
        """GPUs became free: whoever waits for that is looked at."""
        for job_id in self._roomless:
            self.touch(job_id)
        self._roomless.clear()

    def begin_moving(self, job_id: str) -> None:
        """Counts a migration as under way."""
        self._moving[job_id] = None

    def end_moving(self, job_id: str) -> None:
        """Counts a migration as over."""
        self._moving.pop(job_id, None)

    @property
    def moving(self) -> int:
        """Migrations under way."""
        return len(self._moving)

    def _flush(self) -> None:
        """Commits what was intended, then lets it happen."""
        if self._pending:
            records, self._pending = self._pending, []
            self._journal.append(records)
            for record in records:
                self.durable += 1
                self._listener(self.durable, record)
        effects, self._effects = self._effects, []
        for effect in effects:
            self._submit_effect(effect)
