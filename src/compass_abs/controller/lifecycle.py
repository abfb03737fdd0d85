"""A job from its start to its end, migrations aside: starting, running, clearing away what is left."""

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from compass_abs.controller import starting
from compass_abs.controller.book import JobEntry, JobPhase
from compass_abs.controller.effects import Call, EffectKind
from compass_abs.controller.live import Live
from compass_abs.controller.pool import LONGEST_HOLD, Pool
from compass_abs.controller.records import (
    AfterClearing,
    CheckpointBad,
    ClearingBegun,
    Launched,
    MigrationOutcome,
    Outcome,
    Requeued,
    Resumed,
    Unplaced,
)
from compass_abs.controller.runs import View
from compass_abs.engines.protocol import CheckpointMode, EndCause, RunId, RunPhase

if TYPE_CHECKING:
    from compass_abs.controller.reconcile import Controller

#: Failed starts from a checkpoint, without a single step, after which it counts as damaged.
_TRIES_FROM_CHECKPOINT = 2
#: Ends that are a job's own doing.
_OWN_DOING = (EndCause.EXITED, EndCause.SIGNALLED, EndCause.LIMIT)


def look(c: "Controller", entry: JobEntry, live: Live) -> None:
    """What is to be done about a job that isn't migrating."""
    match entry.phase:
        case JobPhase.QUEUED if entry.cancelled:
            c.finish(entry, Outcome.CANCELLED, "cancelled while it waited")
        case JobPhase.STARTING | JobPhase.RUNNING:
            _look_alive(c, entry, live)
        case JobPhase.CLEARING:
            _look_clearing(c, entry, live)
        case _:
            pass


def sweep(c: "Controller", entry: JobEntry, live: Live) -> bool:
    """Ends runs of generations that nobody wants, and forgets those that are gone; True when it began to."""
    if live.busy or entry.phase is JobPhase.CLEARING:
        return False
    wanted = entry.live_generations
    strays = [view for view in live.gang if view.run.generation not in wanted]
    alive = [view for view in strays if not c.dead(view) and (view.report is not None or view.ticket >= 0)]
    if alive:
        c.wants_observation = c.wants_observation or any(view.report is None for view in alive)
        if (again := live.acted.get(EffectKind.KILL, -inf) + c.config.patience.stop) > c.now:
            c.wake(entry.id, again)
            return False
        return c.act(entry, live, EffectKind.KILL, [Call("kill", view.run, (view.run,)) for view in alive])
    gone = [view for view in strays if view.ended]
    return c.act(entry, live, EffectKind.FORGET, [Call("forget", view.run, (view.run,)) for view in gone])


def begin_starts(c: "Controller", pool: Pool) -> None:
    """Starts admitted jobs whose GPUs are all free by now."""
    for job_id in list(pool.admitted):
        entry = c.book.jobs[job_id]
        nodes = pool.target(job_id)
        if not nodes:
            pool.requeue(pool.admitted.pop(job_id))
        elif c.occupancy.has_room(nodes, entry.job.gpus) and all(c.node_alive(node) for node in nodes):
            if starting.place(c, pool, entry, nodes):
                pool.admitted.pop(job_id, None)
            else:
                c.wake(job_id, c.now + c.config.retry_first)


# ---- starting and running


def _look_alive(c: "Controller", entry: JobEntry, live: Live) -> None:
    views = live.gang.generation(entry.generation)
    if entry.cancelled:
        clear(c, entry, AfterClearing.CANCEL, "cancelled")
    elif _ended(c, entry, live, views):
        pass
    elif entry.phase is JobPhase.STARTING and not entry.launched:
        _launch(c, entry, live)
    elif entry.phase is JobPhase.STARTING:
        _await_first_step(c, entry, live, views)
    else:
        _look_running(c, entry, live, views)


def _ended(c: "Controller", entry: JobEntry, live: Live, views: Sequence[View]) -> bool:
    """Handles a gang of which someone has ended; True when it had to."""
    dead = [view for view in views if c.dead(view)]
    if not dead:
        return False
    broken = [view for view in dead if not ended_clean(view)]
    if not broken:
        if len(dead) == entry.job.instances:
            clear(c, entry, AfterClearing.FINISH, "")
            return True
        return False
    break_up(c, entry, live, broken, views)
    return True


def ended_clean(view: View) -> bool:
    """True for a run that ended by itself with 0."""
    return view.report is not None and view.report.end is not None and view.report.end.clean


def break_up(c: "Controller", entry: JobEntry, live: Live, broken: Sequence[View], views: Sequence[View]) -> None:
    """An instance died: the rest of the gang goes too, and the job starts again where it last saved, or fails."""
    why, own_doing = epitaph(c, broken)
    stepped = any(view.trains for view in views)
    if own_doing and not stepped and entry.resume_from and blame_checkpoint(c, entry, live, why):
        own_doing = False
    out_of_retries = own_doing and entry.retries >= entry.spec.retries
    if out_of_retries or entry.restarts >= c.config.most_restarts:
        clear(c, entry, AfterClearing.FAIL, why)
    else:
        clear(c, entry, AfterClearing.REQUEUE, why, own_doing)


def blame_checkpoint(c: "Controller", entry: JobEntry, live: Live, why: str) -> bool:
    """A start from a checkpoint died before its first step: True when that is the checkpoint's fault, perhaps."""
    path = entry.migration.resume_from if entry.migration is not None else entry.resume_from
    if path in entry.bad:
        return False
    count = live.failed_from.get(path, 0) + 1
    live.failed_from[path] = count
    if count >= _TRIES_FROM_CHECKPOINT:
        c.note(CheckpointBad(entry.id, c.clock.wall(), path, why))
    return True


def epitaph(c: "Controller", broken: Sequence[View]) -> tuple[str, bool]:
    """Why a gang broke, and whether that was its own doing: instances whose peer is gone fail, too."""
    lost = lost_with_node(c, broken)
    if lost:
        return lost, False
    for view in broken:
        end = view.report.end if view.report is not None else None
        if end is not None and end.cause in _OWN_DOING:
            code = f" {end.code}" if end.cause is not EndCause.LIMIT else ""
            detail = f": {end.detail}" if end.detail else ""
            return f"instance {view.run.number} on {view.node} {end.cause}{code}{detail}", True
    view = broken[0]
    end = view.report.end if view.report is not None else None
    what = f"{end.cause}: {end.detail}".rstrip(": ") if end is not None else "gone"
    return f"instance {view.run.number} on {view.node}: {what}", False


def lost_with_node(c: "Controller", views: Sequence[View]) -> str:
    """Which of these went with its node, in words; empty when none did."""
    for view in views:
        end = view.report.end if view.report is not None else None
        if not c.node_alive(view.node) or (end is not None and end.cause is EndCause.NODE_LOST):
            return f"node {view.node} was lost with instance {view.run.number}"
    return ""


def _launch(c: "Controller", entry: JobEntry, live: Live) -> None:
    result = live.results.get(EffectKind.START)
    if result is None or result.unavailable:
        if live.waited(c.now) > c.config.patience.start:
            clear(c, entry, AfterClearing.REQUEUE, f"could not be started: {result.unavailable if result else '?'}")
            return
        runs = [starting.order(c, entry, number) for number in range(entry.job.instances)]
        if c.act(entry, live, EffectKind.START, [Call("start", order.run, (order,)) for order in runs]):
            live.expect(runs)
        c.wake(entry.id, live.entered + c.config.patience.start + 0.001)
    elif result.refused:
        if live.gang.generation(entry.generation):
            clear(c, entry, AfterClearing.REQUEUE, result.refused)
        else:
            _take_back(c, entry, live, result.refused)
    else:
        live.refusals = 0
        c.note(Launched(entry.id, c.clock.wall(), entry.generation))
        c.touch(entry.id)


def _take_back(c: "Controller", entry: JobEntry, live: Live, why: str) -> None:
    """The engine refused and nothing runs: the placement is undone, the job waits again."""
    pool = c.pool_of(entry)
    c.note(Unplaced(entry.id, c.clock.wall(), entry.generation, why))
    live.refusals += 1
    pause = min(c.config.retry_first * 2.0 ** (live.refusals - 1), c.config.retry_most, LONGEST_HOLD)
    pool.hold(entry.id, c.clock.wall() + pause)
    pool.requeue(entry.job)
    c.unsettle(pool)
    c.wants_observation = True


def is_up(c: "Controller", entry: JobEntry, live: Live, views: Sequence[View]) -> bool:
    """True when a new generation has been seen to train, or to be up if it doesn't tell."""
    if len(views) < entry.job.instances or any(view.phase is RunPhase.PENDING for view in views):
        return False
    if all(view.trains or ended_clean(view) for view in views):
        return True
    tells = entry.spec.checkpoint.mode is CheckpointMode.SESSION and (
        entry.phase is JobPhase.MIGRATING or any(view.progress is not None for view in views)
    )
    if tells:
        return False
    if live.up_since is None:
        live.up_since = c.now
    if c.now - live.up_since >= c.config.settling:
        return True
    c.wake(entry.id, live.up_since + c.config.settling + 0.001)
    return False


def _await_first_step(c: "Controller", entry: JobEntry, live: Live, views: Sequence[View]) -> None:
    if is_up(c, entry, live, views):
        step = max((view.progress.step for view in views if view.progress is not None), default=0)
        c.note(Resumed(entry.id, c.clock.wall(), entry.generation, step))
        c.touch(entry.id)


def _look_running(c: "Controller", entry: JobEntry, live: Live, views: Sequence[View]) -> None:
    limit = entry.spec.max_duration
    if limit is not None:
        began = live.run_began if live.run_began is not None else live.entered
        live.run_began = began
        ran = live.ran_before + c.now - began
        if ran >= limit:
            clear(c, entry, AfterClearing.FAIL, f"ran for its max_duration of {limit:g} s")
            return
        c.wake(entry.id, c.now + limit - ran + 0.001)
    _train_on(c, entry, live, views)


def _train_on(c: "Controller", entry: JobEntry, live: Live, views: Sequence[View]) -> None:
    """Runs that hold for a migration that was called off are told to train on, as often as it takes."""
    latest = entry.past[-1] if entry.past else None
    if latest is None or latest.outcome is not MigrationOutcome.KEPT or latest.id == live.told_to_resume:
        return
    result = live.results.get(EffectKind.RESUME)
    if result is not None and not result.unavailable:
        live.told_to_resume = latest.id
    elif not live.busy:
        holding = [view for view in views if not c.dead(view)]
        c.act(entry, live, EffectKind.RESUME, [Call("resume", view.run, (view.run,)) for view in holding])


# ---- clearing


def clear(c: "Controller", entry: JobEntry, after: AfterClearing, why: str, own_fault: bool = False) -> None:
    """Writes down that what is left of a gang is to be ended, and what comes then."""
    c.pool_of(entry).moves.pop(entry.id, None)
    c.note(ClearingBegun(entry.id, c.clock.wall(), after, why, own_fault))
    c.touch(entry.id)


def _look_clearing(c: "Controller", entry: JobEntry, live: Live) -> None:
    if live.busy:
        return
    if entry.cancelled and entry.clearing is AfterClearing.REQUEUE:
        clear(c, entry, AfterClearing.CANCEL, "cancelled")
        return
    alive = [view for view in live.gang if not c.dead(view)]
    if alive:
        _end_rest(c, entry, live, alive)
        return
    _cleared(c, entry, live)


def _end_rest(c: "Controller", entry: JobEntry, live: Live, alive: Sequence[View]) -> None:
    c.wants_observation = c.wants_observation or any(view.report is None for view in alive)
    patience, grace = c.config.patience.stop, entry.spec.checkpoint.grace
    gently = entry.clearing in (AfterClearing.CANCEL, AfterClearing.FAIL)
    stopped, killed = live.acted.get(EffectKind.STOP), live.acted.get(EffectKind.KILL)
    if gently and stopped is None:
        c.act(entry, live, EffectKind.STOP, [Call("stop", view.run, (view.run, grace)) for view in alive])
    elif killed is not None and killed + patience > c.now:
        c.wake(entry.id, killed + patience)
    elif killed is None and stopped is not None and stopped + grace + patience > c.now:
        c.wake(entry.id, stopped + grace + patience)
    else:
        c.act(entry, live, EffectKind.KILL, [Call("kill", view.run, (view.run,)) for view in alive])


def _cleared(c: "Controller", entry: JobEntry, live: Live) -> None:
    live.seconds.clear()
    live.run_began, live.ran_before = None, 0.0
    for number in range(entry.job.instances):
        run = RunId(entry.id, number, entry.generation)
        if run not in live.gang.views:
            c.occupancy.release(run)
    pool, why, blamed = c.pool_of(entry), entry.why, entry.blamed
    after = entry.clearing
    if after in (AfterClearing.FAIL, AfterClearing.REQUEUE) and entry.restarts < c.config.most_restarts:
        # Instances fail within a second of a peer's node; that it is lost is known much later.
        lost = lost_with_node(c, live.gang.generation(entry.generation))
        if lost:
            after, why, blamed = AfterClearing.REQUEUE, lost, False
    if after is AfterClearing.FINISH:
        c.finish(entry, Outcome.DONE, "")
    elif after is AfterClearing.CANCEL:
        c.finish(entry, Outcome.CANCELLED, why)
    elif after is AfterClearing.FAIL:
        c.finish(entry, Outcome.FAILED, why)
    else:
        c.note(Requeued(entry.id, c.clock.wall(), why, _lost_steps(entry, live), blamed))
        c.take_moves(pool, pool.finish(entry.id), f"end of {entry.id}")
        pool.requeue(entry.job)
        c.touch(entry.id)


def _lost_steps(entry: JobEntry, live: Live) -> int:
    """Steps that a restart from the last good checkpoint repeats."""
    latest = max((view.run.generation for view in live.gang), default=0)
    done = [view.progress.step for view in live.gang.generation(latest) if view.progress is not None]
    best = entry.best_checkpoint()
    return max(0, max([*done, entry.furthest]) - (best.step if best is not None else 0))
