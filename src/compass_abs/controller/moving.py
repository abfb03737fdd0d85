"""Migrations being carried out: what is seen of a gang becomes a signal, the table says what follows."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compass_abs.controller import lifecycle, starting
from compass_abs.controller.book import JobEntry, JobPhase, MigrationEntry
from compass_abs.controller.effects import Call, EffectKind
from compass_abs.controller.live import Live
from compass_abs.controller.migration import Act, Phase, Signal, advance
from compass_abs.controller.pool import Move, Pool
from compass_abs.controller.records import (
    AfterClearing,
    Checkpointed,
    MigrationBegun,
    MigrationEnded,
    MigrationOutcome,
    StepBegun,
)
from compass_abs.controller.runs import View
from compass_abs.engines.protocol import AfterCheckpoint, Capability, CheckpointMode, CheckpointRequest, RunId
from compass_abs.model import NodeStatus

if TYPE_CHECKING:
    from compass_abs.controller.reconcile import Controller

#: How long a move waits for somebody's consent, and how often it is asked for.
_CONSENT_PATIENCE, _CONSENT_EVERY = 30.0, 2.0


def begin_moves(c: "Controller", pool: Pool) -> None:
    """Begins the migrations that are wanted and have room, in the order in which they were decided."""
    if not c.migrates:
        return
    blocked: list[Move] = []
    for move in list(pool.moves.values()):
        if c.moving >= c.config.migrations_at_once:
            return
        entry = c.book.jobs[move.job_id]
        if _can_be_asked(c, entry):
            if pool.target(move.job_id) != move.nodes or move.nodes == entry.nodes:
                del pool.moves[move.job_id]
            elif not all(_usable(c, pool, node) for node in _arrivals(entry, move.nodes)):
                del pool.moves[move.job_id]
                c.unsettle(pool)
            elif c.occupancy.has_room(_arrivals(entry, move.nodes), entry.job.gpus):
                _begin(c, pool, entry, move)
            else:
                blocked.append(move)
    if blocked and not c.moving and not pool.admitted_waits_for(c.occupancy) and _nobody_leaves(c, pool):
        # A cycle: each waits for GPUs that the next one holds. The first leaves before it can arrive.
        _begin(c, pool, c.book.jobs[blocked[0].job_id], blocked[0])


def _can_be_asked(c: "Controller", entry: JobEntry) -> bool:
    """True unless a gang does something else now, or is still about to begin: nobody listens to a request then."""
    live = c.live[entry.id]
    if entry.phase is not JobPhase.RUNNING or entry.cancelled or live.busy:
        return False
    heard = any(view.progress is not None for view in live.gang.generation(entry.generation))
    if heard or entry.spec.checkpoint.mode is not CheckpointMode.SESSION or live.waited(c.now) >= c.config.silence:
        return True
    c.wake(entry.id, live.entered + c.config.silence + 0.001)
    return False


def _nobody_leaves(c: "Controller", pool: Pool) -> bool:
    """True when nothing is under way that will free GPUs by itself."""
    return not any(entry.phase is JobPhase.CLEARING for entry in c.book.open_jobs.values() if c.pool_of(entry) is pool)


def _arrivals(entry: JobEntry, targets: Sequence[str]) -> list[str]:
    """Nodes that instances arrive on, one for each that moves."""
    return [new for old, new in zip(entry.nodes, targets, strict=True) if old != new]


def _usable(c: "Controller", pool: Pool, node: str) -> bool:
    return c.node_alive(node) and pool.state.node(node).status is NodeStatus.UP


def _begin(c: "Controller", pool: Pool, entry: JobEntry, move: Move) -> None:
    del pool.moves[move.job_id]
    rejoins = Capability.REJOIN in c.engine.capabilities and entry.spec.checkpoint.mode is CheckpointMode.SESSION
    stay = tuple(k for k, (old, new) in enumerate(zip(entry.nodes, move.nodes, strict=True)) if rejoins and old == new)
    migration_id = f"m{c.book.migrations_begun + 1}"
    c.note(MigrationBegun(entry.id, c.clock.wall(), migration_id, move.nodes, move.cause, stay))
    c.begin_moving(entry.id)
    live = c.live[entry.id]
    live.call_off = ""
    live.seconds.clear()
    assert entry.migration is not None
    reserve(c, entry, entry.migration)
    c.touch(entry.id)


def reserve(c: "Controller", entry: JobEntry, migration: MigrationEntry) -> None:
    """Keeps the GPUs at the new places for the successors, as far as they are free."""
    generation = migration.generation or entry.generation + 1
    views = c.live[entry.id].gang.views
    for number, (old, new) in enumerate(zip(migration.sources, migration.targets, strict=True)):
        run = RunId(entry.id, number, generation)
        # A run that was started holds GPUs in its own name, or has ended already.
        if old != new and run not in views and not c.occupancy.holds(run) and c.occupancy.free(new) >= entry.job.gpus:
            c.occupancy.hold(run, new, entry.job.gpus)


def _unreserve(c: "Controller", entry: JobEntry, live: Live, migration: MigrationEntry) -> None:
    """Gives back what was kept for successors that were never started."""
    generation = migration.generation or entry.generation + 1
    for number in range(entry.job.instances):
        run = RunId(entry.id, number, generation)
        if run not in live.gang.views:
            c.occupancy.release(run)


# ---- what is seen


def look(c: "Controller", entry: JobEntry, live: Live) -> None:
    """Takes a migration one signal further, if there is one."""
    migration = entry.migration
    assert migration is not None
    signal, why = _signal(c, entry, live, migration)
    if signal is None:
        deadline = live.entered + _patience(c, entry, migration.phase) + 0.001
        if deadline > c.now:
            c.wake(entry.id, deadline)
        return
    transition = advance(migration.phase, signal)
    if transition is None:
        return
    if transition.phase is not migration.phase:
        live.seconds[migration.phase] = live.seconds.get(migration.phase, 0.0) + live.waited(c.now)
    _carry_on(c, entry, live, migration, transition.phase, transition.act, why or str(signal))


def _patience(c: "Controller", entry: JobEntry, phase: Phase) -> float:
    spec = entry.spec.checkpoint
    if phase is Phase.REQUESTING and spec.timeout is not None and spec.mode is CheckpointMode.SESSION:
        return spec.timeout
    if phase is Phase.STOPPING:
        # The signal of mode SIGNAL is the request to save: it takes as long as saving may.
        saving = (spec.timeout or c.config.patience.checkpoint) if spec.mode is CheckpointMode.SIGNAL else spec.grace
        return saving + c.config.patience.stop
    if phase is Phase.RESUMING and spec.resume_timeout is not None:
        return spec.resume_timeout
    return c.config.patience.of(phase)


def _signal(c: "Controller", entry: JobEntry, live: Live, migration: MigrationEntry) -> tuple[Signal | None, str]:
    if entry.cancelled:
        return Signal.CANCELLED, "cancelled"
    seen, why = _SEEN[migration.phase](c, entry, live, migration)
    late = live.waited(c.now) >= _patience(c, entry, migration.phase)
    if seen is None and late and not live.busy:
        return Signal.TOO_SLOW, f"took longer than {_patience(c, entry, migration.phase):g} s: {migration.phase}"
    return seen, why


def _off(c: "Controller", entry: JobEntry, live: Live, migration: MigrationEntry) -> str:
    """Why the migration should not go on; empty when it should."""
    pool = c.pool_of(entry)
    for old, new in zip(migration.sources, migration.targets, strict=True):
        if old != new and not _usable(c, pool, new):
            return f"node {new} can't be used any more"
    return live.call_off


def _requesting(c: "Controller", entry: JobEntry, live: Live, migration: MigrationEntry) -> tuple[Signal | None, str]:
    views = live.gang.generation(entry.generation)
    dead = [view for view in views if c.dead(view)]
    broken = [view for view in dead if not lifecycle.ended_clean(view)]
    if broken:
        return Signal.BROKEN, lifecycle.epitaph(c, broken)[0]
    if len(dead) == entry.job.instances:
        return Signal.FINISHED, "it was done before it could be moved"
    off = _off(c, entry, live, migration) or ("" if c.migrates else "migrations were paused")
    if off:
        return (None, "") if live.busy else (Signal.CALLED_OFF, off)
    if not _consented(c, entry, live, views):
        return None, ""
    if entry.spec.checkpoint.mode is not CheckpointMode.SESSION:
        return Signal.SAVED, ""
    result = live.results.get(EffectKind.REQUEST)
    if result is None or result.unavailable:
        request = CheckpointRequest(migration.id, AfterCheckpoint.HOLD)
        alive = [view for view in views if not view.ended]
        c.act(
            entry,
            live,
            EffectKind.REQUEST,
            [Call("request_checkpoint", view.run, (view.run, request)) for view in alive],
        )
        return None, ""
    if result.refused:
        return Signal.NOT_SAVED, result.refused
    return _acknowledged(c, entry, migration, views)


def _consented(c: "Controller", entry: JobEntry, live: Live, views: Sequence[View]) -> bool:
    """Whether nobody else forbids the move. It waits for a while; then it is called off, and nobody is to blame."""
    if Capability.CONSENT not in c.engine.capabilities:
        return True
    result = live.results.get(EffectKind.CONSENT)
    if result is not None and result.succeeded:
        return True
    if result is not None and result.refused:
        if live.waited(c.now) > min(_CONSENT_PATIENCE, _patience(c, entry, Phase.REQUESTING) / 2):
            live.call_off = result.refused
            c.touch(entry.id)
            return False
        again = live.acted[EffectKind.CONSENT] + _CONSENT_EVERY
        if again > c.now:
            c.wake(entry.id, again)
            return False
    c.act(entry, live, EffectKind.CONSENT, [Call("consent", views[0].run, (views[0].run,))])
    return False


def _acknowledged(
    c: "Controller", entry: JobEntry, migration: MigrationEntry, views: Sequence[View]
) -> tuple[Signal | None, str]:
    answers = [view.acknowledgement for view in views]
    given = [answer for answer in answers if answer is not None and answer.request == migration.id]
    for number, answer in enumerate(given):
        if answer.error or not answer.path:
            return Signal.NOT_SAVED, f"instance {number} could not save: {answer.error or 'no checkpoint named'}"
    if len(given) < entry.job.instances:
        return None, ""
    if len({answer.step for answer in given}) > 1:
        return Signal.NOT_SAVED, f"instances saved different steps: {sorted({answer.step for answer in given})}"
    first = given[0]
    c.note(Checkpointed(entry.id, c.clock.wall(), entry.generation, first.step, first.path))
    return Signal.SAVED, ""


def _unable_to_rejoin(entry: JobEntry, live: Live, migration: MigrationEntry) -> tuple[int, ...]:
    """Instances that were to stay, and said with their acknowledgement that they can't."""
    views = live.gang.generation(entry.generation)
    answers = {view.run.number: view.acknowledgement for view in views}
    return tuple(number for number in migration.stay if (answer := answers.get(number)) and not answer.rejoins)


def _lost_seconds(entry: JobEntry, live: Live, migration: MigrationEntry) -> float:
    """What a gang that could not be asked to save has to repeat, by its own account."""
    answers = [view.acknowledgement for view in live.gang.generation(entry.generation)]
    lost = [each.lost_seconds for each in answers if each is not None and each.request == migration.id]
    return max(lost, default=0.0)


def _movers(entry: JobEntry, live: Live, migration: MigrationEntry) -> list[View]:
    return [view for view in live.gang.generation(entry.generation) if view.run.number not in migration.stay]


def _stayer_died(c: "Controller", entry: JobEntry, live: Live, migration: MigrationEntry) -> str:
    for view in live.gang.generation(entry.generation):
        if view.run.number in migration.stay and c.dead(view):
            return lifecycle.epitaph(c, [view])[0]
    return ""


def _stopping(c: "Controller", entry: JobEntry, live: Live, migration: MigrationEntry) -> tuple[Signal | None, str]:
    died = _stayer_died(c, entry, live, migration)
    if died:
        return Signal.BROKEN, died
    alive = [view for view in _movers(entry, live, migration) if not c.dead(view)]
    if not alive:
        return (None, "") if live.busy else (Signal.STOPPED, "")
    result = live.results.get(EffectKind.STOP)
    if EffectKind.KILL not in live.acted and (result is None or result.unavailable):
        grace = _patience(c, entry, Phase.STOPPING) - c.config.patience.stop
        c.act(entry, live, EffectKind.STOP, [Call("stop", view.run, (view.run, grace)) for view in alive])
    return None, ""


def _waiting(c: "Controller", entry: JobEntry, live: Live, migration: MigrationEntry) -> tuple[Signal | None, str]:
    died = _stayer_died(c, entry, live, migration)
    if died:
        return Signal.BROKEN, died
    off = _off(c, entry, live, migration)
    if off:
        return Signal.CALLED_OFF, off
    reserve(c, entry, migration)
    for number, node in enumerate(migration.targets):
        run = RunId(entry.id, number, entry.generation + 1)
        if number in migration.stay or c.occupancy.holds(run):
            continue
        # An instance that stays on its node without rejoining starts anew where its own GPUs have become free.
        if c.occupancy.free(node) < entry.job.gpus:
            c.wait_for_room(entry.id)
            return None, ""
        c.occupancy.hold(run, node, entry.job.gpus)
    return Signal.ROOM, ""


def _starting(c: "Controller", entry: JobEntry, live: Live, migration: MigrationEntry) -> tuple[Signal | None, str]:
    successors = live.gang.generation(migration.generation)
    dead = [view for view in successors if c.dead(view)]
    if dead and not live.busy:
        return Signal.BROKEN, lifecycle.epitaph(c, dead)[0]
    result = live.results.get(EffectKind.START)
    if result is not None and not result.unavailable:
        return (Signal.STARTED, "") if result.succeeded else (Signal.REFUSED, result.refused)
    off = _off(c, entry, live, migration)
    if off and not live.busy:
        return Signal.REFUSED, off
    calls, orders = [], []
    for number in range(entry.job.instances):
        order = starting.order(c, entry, number, migration)
        orders.append(order)
        if number in migration.stay:
            calls.append(Call("rejoin", order.run, (order, RunId(entry.id, number, entry.generation))))
        else:
            calls.append(Call("start", order.run, (order,)))
    if c.act(entry, live, EffectKind.START, calls):
        live.expect(orders)
        for order in orders:
            c.occupancy.hold(order.run, order.node, order.gpus)
    return None, ""


def _resuming(c: "Controller", entry: JobEntry, live: Live, migration: MigrationEntry) -> tuple[Signal | None, str]:
    views = live.gang.generation(migration.generation)
    broken = [view for view in views if c.dead(view) and not lifecycle.ended_clean(view)]
    if broken:
        why, own_doing = lifecycle.epitaph(c, broken)
        if own_doing and migration.resume_from and not any(view.trains for view in views):
            lifecycle.blame_checkpoint(c, entry, live, why)
        return Signal.BROKEN, why
    if len(views) == entry.job.instances and all(lifecycle.ended_clean(view) for view in views):
        return Signal.FINISHED, ""
    return (Signal.TRAINS, "") if lifecycle.is_up(c, entry, live, views) else (None, "")


_SEEN = {
    Phase.REQUESTING: _requesting,
    Phase.STOPPING: _stopping,
    Phase.WAITING: _waiting,
    Phase.STARTING: _starting,
    Phase.RESUMING: _resuming,
}

# ---- what follows


def _carry_on(
    c: "Controller", entry: JobEntry, live: Live, migration: MigrationEntry, phase: Phase | None, act: Act, why: str
) -> None:
    before = migration.phase
    match act:
        case Act.START:
            _write_start(c, entry, migration)
        case Act.KILL_MOVERS:
            _kill_movers(c, entry, live, migration)
        case Act.COMMIT:
            _end(c, entry, live, MigrationOutcome.DONE, "", blame=False)
            _after(c, entry)
        case Act.RESUME_ALL:
            blamed = not (live.call_off or _off(c, entry, live, migration)) and c.migrates
            _end(c, entry, live, MigrationOutcome.KEPT, why, blame=blamed)
            c.unsettle(c.pool_of(entry))
        case Act.CLEAR:
            _end(c, entry, live, MigrationOutcome.REQUEUED, why, blame=True)
            lifecycle.clear(c, entry, AfterClearing.REQUEUE, f"migration {migration.id}: {why}")
        case Act.END:
            _end(c, entry, live, MigrationOutcome.MOOT, why, blame=False)
            after = AfterClearing.CANCEL if entry.cancelled else AfterClearing.FINISH
            lifecycle.clear(c, entry, after, why if entry.cancelled else "")
        case _:
            assert phase is not None
            anew = _unable_to_rejoin(entry, live, migration) if act is Act.STOP_MOVERS else ()
            lost = _lost_seconds(entry, live, migration) if act is Act.STOP_MOVERS else 0.0
            c.note(StepBegun(entry.id, c.clock.wall(), migration.id, phase, anew=anew, lost_seconds=lost))
    if entry.migration is None or entry.migration.phase is not before:
        c.touch(entry.id)


def _kill_movers(c: "Controller", entry: JobEntry, live: Live, migration: MigrationEntry) -> None:
    patience = c.config.patience.stop
    last = live.acted.get(EffectKind.KILL)
    if last is not None and last + patience > c.now:
        c.wake(entry.id, last + patience)
        return
    alive = [view for view in _movers(entry, live, migration) if not c.dead(view)]
    c.act(entry, live, EffectKind.KILL, [Call("kill", view.run, (view.run,)) for view in alive])


def _write_start(c: "Controller", entry: JobEntry, migration: MigrationEntry) -> None:
    generation = entry.generation + 1
    meeting = starting.rendezvous(c, entry, migration.targets, generation)
    if meeting is None:
        c.wake(entry.id, c.now + c.config.retry_first)
        return
    best = entry.best_checkpoint()
    path, step = (best.path, best.step) if best is not None else ("", 0)
    c.note(StepBegun(entry.id, c.clock.wall(), migration.id, Phase.STARTING, generation, *meeting, path, step))


def _end(c: "Controller", entry: JobEntry, live: Live, outcome: MigrationOutcome, why: str, *, blame: bool) -> None:
    migration = entry.migration
    assert migration is not None
    seconds = {phase: round(value, 6) for phase, value in live.seconds.items()}
    _unreserve(c, entry, live, migration)
    c.note(MigrationEnded(entry.id, c.clock.wall(), migration.id, outcome, why, seconds, blame))
    c.end_moving(entry.id)
    live.seconds.clear()
    live.call_off = ""


def _after(c: "Controller", entry: JobEntry) -> None:
    """A gang has arrived; by now the scheduler may want it elsewhere already."""
    pool = c.pool_of(entry)
    pool.situation.progress[entry.id] = c.clock.wall()
    target = pool.target(entry.id)
    if target and target != entry.nodes and entry.id not in pool.moves:
        pool.moves[entry.id] = Move(entry.id, target, "follow-up")
