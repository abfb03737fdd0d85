"""What the engine tells: reports, looks at everything, results of calls. Each only marks what has to be looked at."""

from typing import TYPE_CHECKING

from compass_abs.controller import restoring, topology
from compass_abs.controller.book import JobEntry
from compass_abs.controller.effects import EffectKind, EffectResult
from compass_abs.controller.live import Live
from compass_abs.controller.records import Checkpointed
from compass_abs.controller.runs import View, newer
from compass_abs.engines.protocol import End, EndCause, Observation, RunPhase, RunReport

if TYPE_CHECKING:
    from compass_abs.controller.reconcile import Controller


def on_observation(c: "Controller", observation: Observation, ticket: int) -> None:
    """Everything, as it was when the call began whose ticket this is."""
    topology.on_nodes(c, observation.nodes)
    for report in observation.runs:
        on_run(c, report)
    seen = {report.run for report in observation.runs}
    for job_id, live in c.live.items():
        for view in live.gang:
            if view.run not in seen and not view.ended and 0 <= view.ticket <= ticket:
                _absent(c, c.book.jobs[job_id], live, view)
    if not c.ready and c.pools:
        c.ready = True
        restoring.restore(c)


def on_run(c: "Controller", report: RunReport) -> None:
    """One run, as the engine sees it."""
    job_id = report.run.job_id
    entry = c.book.jobs.get(job_id)
    if entry is None:
        # Ours by name, unknown to the journal: someone else's journal, perhaps. Its GPUs are taken all the same.
        _hold_stray(c, report)
        return
    live = c.live.setdefault(job_id, Live())
    view = live.gang.views.get(report.run)
    if view is None:
        view = live.gang.views[report.run] = View(report.run, report.node, ticket=c.ticket)
    if not newer(view.report, report):
        return
    changed = view.report != report
    view.report, view.node = report, report.node
    if view.ended:
        c.occupancy.release(report.run)
        c.tell_of_room()
    elif not c.occupancy.holds(report.run) or changed:
        c.occupancy.hold(report.run, report.node, entry.job.gpus)
    if changed:
        c.touch(job_id)
        _note_checkpoint(c, entry, report)


def _absent(c: "Controller", entry: JobEntry, live: Live, view: View) -> None:
    """A run that a look at everything didn't show."""
    if view.accepted or view.report is not None:
        gone = End(EndCause.UNKNOWN, detail="the engine knows nothing of it")
        on_run(c, RunReport(view.run, view.node, RunPhase.ENDED, end=gone))
    else:
        # Nobody knew whether it had been started. It has not.
        del live.gang.views[view.run]
        if view.run.generation not in entry.live_generations:
            c.occupancy.release(view.run)
    c.touch(entry.id)


def _hold_stray(c: "Controller", report: RunReport) -> None:
    if report.phase is RunPhase.ENDED:
        c.occupancy.release(report.run)
    else:
        c.occupancy.hold(report.run, report.node, max(len(report.gpus), 1))


def _note_checkpoint(c: "Controller", entry: JobEntry, report: RunReport) -> None:
    progress = report.progress
    if progress is None or not progress.checkpoint or report.run.number or entry.over:
        return
    best = entry.best_checkpoint()
    newest = best is None or (progress.checkpoint_step > best.step and progress.checkpoint != best.path)
    if newest and progress.checkpoint not in entry.bad and report.run.generation in entry.live_generations:
        step, path = progress.checkpoint_step, progress.checkpoint
        c.note(Checkpointed(entry.id, c.clock.wall(), report.run.generation, step, path))


def on_effect(c: "Controller", result: EffectResult) -> None:
    """What came of a batch of calls."""
    effect = result.effect
    live = c.live.get(effect.job_id)
    if live is None or live.busy != effect.id:
        return
    live.busy = 0
    live.results[effect.kind] = result
    c.ticket += 1
    if effect.kind is EffectKind.START:
        _started(c, live, result)
    elif effect.kind is EffectKind.KILL:
        for call in effect.calls:
            if call.run in live.gang.views:
                live.gang.views[call.run].ticket = c.ticket
    elif effect.kind is EffectKind.FORGET:
        for call in effect.calls[: result.made + bool(result.refused)]:
            live.gang.views.pop(call.run, None)
    if result.unavailable:
        c.wants_observation = True
        live.tries += 1
        pause = min(c.config.retry_first * 2 ** (live.tries - 1), c.config.retry_most)
        live.retry_at = c.clock.monotonic() + pause
        c.wake(effect.job_id, live.retry_at)
    c.touch(effect.job_id)


def _started(c: "Controller", live: Live, result: EffectResult) -> None:
    for number, call in enumerate(result.effect.calls):
        view = live.gang.views.get(call.run)
        if view is None:
            continue
        if number < result.made:
            view.ticket, view.accepted = c.ticket, True
        elif number == result.made and not result.refused:
            view.ticket = c.ticket
        elif view.report is None and not (result.unavailable and number > result.made):
            # Certainly not started: refused, or behind the one that was.
            del live.gang.views[call.run]
            c.occupancy.release(call.run)
        else:
            view.ticket = c.ticket
