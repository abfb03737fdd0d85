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

from compass_abs.controller import lifecycle, moving, topology
from compass_abs.controller.book import Book, JobEntry, JobPhase, MigrationEntry
from compass_abs.controller.effects import Call, Effect, EffectKind, EffectResult
from compass_abs.controller.job_spec import JobSpec
from compass_abs.controller.journal import Journal
from compass_abs.controller.live import Clock, Live
from compass_abs.controller.migration import Patience, Phase
from compass_abs.controller.pool import Committed, Firmness, Move, Pool
from compass_abs.controller.records import (
    CancelRequested,
    Checkpointed,
    Ended,
    NodeWanted,
    Opened,
    Outcome,
    Placed,
    Record,
    Setting,
    Submitted,
)
from compass_abs.controller.runs import Occupancy, View, newer
from compass_abs.engines.protocol import (
    End,
    EndCause,
    Engine,
    EngineRefusalError,
    EngineUnavailableError,
    NodeHealth,
    NodeReport,
    Observation,
    Report,
    RunId,
    RunPhase,
    RunReport,
    StartOrder,
)
from compass_abs.model import CompassError, Decision, NodeStatus, UnknownJobError, UnknownNodeError

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
    #: A restart for a reason that isn't the job's own is free, but not for ever.
    most_restarts: int = 100
    #: First and longest pause before an unavailable engine is asked again.
    retry_first: float = 0.5
    retry_most: float = 30.0


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
        return f"{slug}-{len(self.book.jobs) + 1}"

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

    # ---- told by the engine

    def on_report(self, report: Report) -> None:
        """One node or run, as the engine's watch tells it."""
        if isinstance(report, NodeReport):
            if self.ready:
                topology.on_node(self, report)
            return
        self._on_run(report)

    def on_observation(self, observation: Observation, ticket: int) -> None:
        """Everything, as it was when the call began whose ticket this is."""
        topology.on_nodes(self, observation.nodes)
        for report in observation.runs:
            self._on_run(report)
        seen = {report.run for report in observation.runs}
        for job_id, live in self.live.items():
            for view in live.gang:
                if view.run not in seen and not view.ended and 0 <= view.ticket <= ticket:
                    self._absent(self.book.jobs[job_id], live, view)
        if not self.ready and self.pools:
            self.ready = True
            self._restore()

    def _on_run(self, report: RunReport) -> None:
        job_id = report.run.job_id
        entry = self.book.jobs.get(job_id)
        if entry is None:
            # Ours by name, unknown to the journal: someone else's journal, perhaps. Its GPUs are taken all the same.
            self._hold_stray(report)
            return
        live = self.live.setdefault(job_id, Live())
        view = live.gang.views.get(report.run)
        if view is None:
            view = live.gang.views[report.run] = View(report.run, report.node, ticket=self.ticket)
        if not newer(view.report, report):
            return
        changed = view.report != report
        view.report, view.node = report, report.node
        if view.ended:
            self.occupancy.release(report.run)
            for waiting in self._roomless:
                self.touch(waiting)
            self._roomless.clear()
        elif not self.occupancy.holds(report.run) or changed:
            self.occupancy.hold(report.run, report.node, entry.job.gpus)
        if changed:
            self.touch(job_id)
            self._note_checkpoint(entry, report)

    def _absent(self, entry: JobEntry, live: Live, view: View) -> None:
        """A run that a look at everything didn't show."""
        if view.accepted or view.report is not None:
            gone = End(EndCause.UNKNOWN, detail="the engine knows nothing of it")
            self._on_run(RunReport(view.run, view.node, RunPhase.ENDED, end=gone))
        else:
            # Nobody knew whether it had been started. It has not.
            del live.gang.views[view.run]
            if view.run.generation not in entry.live_generations:
                self.occupancy.release(view.run)
        self.touch(entry.id)

    def _hold_stray(self, report: RunReport) -> None:
        if report.phase is RunPhase.ENDED:
            self.occupancy.release(report.run)
        else:
            self.occupancy.hold(report.run, report.node, max(len(report.gpus), 1))

    def _note_checkpoint(self, entry: JobEntry, report: RunReport) -> None:
        progress = report.progress
        if progress is None or not progress.checkpoint or report.run.number or entry.over:
            return
        best = entry.best_checkpoint()
        newest = best is None or (progress.checkpoint_step > best.step and progress.checkpoint != best.path)
        if newest and progress.checkpoint not in entry.bad and report.run.generation in entry.live_generations:
            step, path = progress.checkpoint_step, progress.checkpoint
            self.note(Checkpointed(entry.id, self.clock.wall(), report.run.generation, step, path))

    def on_effect(self, result: EffectResult) -> None:
        """What came of a batch of calls."""
        effect = result.effect
        live = self.live.get(effect.job_id)
        if live is None or live.busy != effect.id:
            return
        live.busy = 0
        live.results[effect.kind] = result
        self.ticket += 1
        if effect.kind is EffectKind.START:
            self._started(live, result)
        elif effect.kind is EffectKind.KILL:
            for call in effect.calls:
                if call.run in live.gang.views:
                    live.gang.views[call.run].ticket = self.ticket
        elif effect.kind is EffectKind.FORGET:
            for call in effect.calls[: result.made + bool(result.refused)]:
                live.gang.views.pop(call.run, None)
        if result.unavailable:
            self.wants_observation = True
            live.tries += 1
            pause = min(self.config.retry_first * 2 ** (live.tries - 1), self.config.retry_most)
            live.retry_at = self.clock.monotonic() + pause
            self.wake(effect.job_id, live.retry_at)
        self.touch(effect.job_id)

    def _started(self, live: Live, result: EffectResult) -> None:
        for number, call in enumerate(result.effect.calls):
            view = live.gang.views.get(call.run)
            if view is None:
                continue
            if number < result.made:
                view.ticket, view.accepted = self.ticket, True
            elif number == result.made and not result.refused:
                view.ticket = self.ticket
            elif view.report is None and not (result.unavailable and number > result.made):
                # Certainly not started: refused, or behind the one that was.
                del live.gang.views[call.run]
                self.occupancy.release(call.run)
            else:
                view.ticket = self.ticket

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
            self._settle(self.pools[name])
        for pool in self.pools.values():
            wall = pool.situation.now
            if pool.round_is_due():
                busy = True
                self.take_moves(pool, pool.scheduler.round(pool.situation), "round")
            if pool.hold_ends is not None and pool.hold_ends <= wall:
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

    def committed(self, pool: Pool) -> list[Committed]:
        """Where every gang of a pool is, or is bound to be."""
        found = []
        for entry in self.book.open_jobs.values():
            if self.pool_of(entry) is not pool:
                continue
            if entry.phase in (JobPhase.RUNNING, JobPhase.STARTING):
                found.append(Committed(entry.job, entry.nodes, Firmness.RUNNING))
            elif entry.phase is JobPhase.MIGRATING and entry.migration is not None:
                found.append(Committed(entry.job, entry.migration.targets, Firmness.MOVING))
            elif entry.phase is JobPhase.CLEARING and pool.target(entry.id):
                found.append(Committed(entry.job, pool.target(entry.id), Firmness.LEAVING))
        return found

    def _settle(self, pool: Pool) -> None:
        self._unsettled.pop(pool.name, None)
        for job_id in pool.settle(self.committed(pool)):
            entry = self.book.jobs[job_id]
            if entry.phase is JobPhase.MIGRATING:
                self.live[job_id].call_off = "its new place is taken"
            self.touch(job_id)

    def _restore(self) -> None:
        """After the first observation: puts running gangs and waiting jobs back to where they were."""
        for entry in self.book.jobs.values():
            if not entry.over:
                pool = self.pool_of(entry)
                pool.scheduler.submitted(entry.job, pool.situation)
                self._restore_job(entry, pool)
            if not entry.over or entry.id in self.live:
                self.touch(entry.id)
        for pool in self.pools.values():
            self.unsettle(pool)
        self.wants_observation = True

    def _restore_job(self, entry: JobEntry, pool: Pool) -> None:
        if entry.phase is JobPhase.QUEUED:
            pool.requeue(entry.job)
            return
        live = self.live.setdefault(entry.id, Live())
        if entry.placed_at is not None:
            if entry.job.duration is not None:
                pool.situation.ends[entry.id] = entry.placed_at + entry.job.duration
            pool.situation.progress[entry.id] = entry.placed_at
            live.ran_before = max(0.0, self.clock.wall() - entry.placed_at)
        if entry.phase in (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.CLEARING, JobPhase.MIGRATING) and entry.nodes:
            self._expect(live, entry, entry.generation, entry.nodes, entry.launched)
        if entry.migration is not None:
            self._moving[entry.id] = None
            moving.reserve(self, entry, entry.migration)
            if entry.migration.generation:
                started = entry.migration.phase is Phase.RESUMING
                self._expect(live, entry, entry.migration.generation, entry.migration.targets, started)

    def _expect(self, live: Live, entry: JobEntry, generation: int, nodes: Sequence[str], accepted: bool) -> None:
        """Runs that the journal says were ordered: alive until an observation made after now says otherwise."""
        for number, node in enumerate(nodes):
            run = RunId(entry.id, number, generation)
            if run not in live.gang.views:
                live.gang.views[run] = View(run, node, ticket=self.ticket, accepted=accepted)
                self.occupancy.hold(run, node, entry.job.gpus)

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

    def rendezvous(self, entry: JobEntry, nodes: Sequence[str], generation: int) -> tuple[str, int] | None:
        """Where a new generation is to meet; None when the engine can't say now."""
        try:
            return self.engine.rendezvous(entry.id, generation, nodes)
        except (EngineRefusalError, EngineUnavailableError):
            return None

    def place(self, pool: Pool, entry: JobEntry, nodes: tuple[str, ...]) -> bool:
        """Writes down that a gang is to start here; False when the engine isn't able to now."""
        generation = entry.generation + 1
        meeting = self.rendezvous(entry, nodes, generation)
        if meeting is None:
            return False
        best = entry.best_checkpoint()
        path, step = (best.path, best.step) if best else ("", 0)
        wall = self.clock.wall()
        self.note(Placed(entry.id, wall, generation, nodes, *meeting, path, step))
        for number, node in enumerate(nodes):
            self.occupancy.hold(RunId(entry.id, number, generation), node, entry.job.gpus)
        live = self.live.setdefault(entry.id, Live())
        live.run_began = self.now
        if entry.job.duration is not None:
            pool.situation.ends[entry.id] = wall + entry.job.duration
        pool.situation.progress[entry.id] = wall
        self.touch(entry.id)
        return True

    def order(self, entry: JobEntry, number: int, migration: MigrationEntry | None = None) -> StartOrder:
        """The start order of one instance, of the current generation or of a migration's."""
        if migration is None:
            generation, nodes, meeting = entry.generation, entry.nodes, entry.rendezvous
            resume_from = entry.resume_from
        else:
            generation, nodes, meeting = migration.generation, migration.targets, migration.rendezvous
            resume_from = migration.resume_from
        return StartOrder(
            run=RunId(entry.id, number, generation),
            workload=entry.spec.to_workload(),
            nodes=nodes,
            gpus=entry.job.gpus,
            rendezvous=meeting,
            resume_from=resume_from,
            display_name=entry.spec.name,
        )

    def finish(self, entry: JobEntry, outcome: Outcome, why: str) -> None:
        """The job is over and nothing of it is left."""
        self.note(Ended(entry.id, self.clock.wall(), outcome, why))
        pool = self.pool_of(entry)
        if entry.id in pool.admitted or not pool.withdraw(entry.id):
            self.take_moves(pool, pool.finish(entry.id), f"end of {entry.id}")
        self.touch(entry.id)

    def wait_for_room(self, job_id: str) -> None:
        """This job goes on as soon as GPUs become free somewhere."""
        self._roomless[job_id] = None

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
