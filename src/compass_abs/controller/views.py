"""Pictures of the controller for people and programs: plain data, taken on the controller's thread."""

from typing import Any

from compass_abs.controller.book import JobEntry, JobPhase, MigrationPast
from compass_abs.controller.pool import Pool
from compass_abs.controller.proposals import proposals_view
from compass_abs.controller.reconcile import Controller
from compass_abs.controller.runs import View
from compass_abs.controller.topology import effective_status, still_on
from compass_abs.engines.protocol import RunPhase
from compass_abs.fragmentation import sif, wcc_margin
from compass_abs.fragmentation.measures import avoidable_partial_nodes

#: Waiting jobs that a picture of the whole cluster lists; the others are counted.
_QUEUE_SHOWN = 200
#: Ended jobs that it lists.
_RECENT_SHOWN = 30


def job_summary(c: Controller, entry: JobEntry) -> dict[str, Any]:
    """A job in a line."""
    migration = entry.migration
    live = c.live.get(entry.id)
    step, total, loss = _progress(entry, [] if live is None else live.gang.generation(_generation(entry)))
    return {
        "id": entry.id,
        "name": entry.spec.name,
        "phase": entry.phase.value,
        "instances": entry.job.instances,
        "gpus": entry.job.gpus,
        "pool": entry.job.pool,
        "priority": entry.job.priority,
        "movable": entry.job.movable,
        "nodes": list(entry.nodes),
        "submitted": entry.submitted,
        "started": entry.first_started,
        "ended": entry.ended,
        "step": step,
        "total": total,
        "loss": loss,
        "restarts": entry.restarts,
        "migrations": sum(past.outcome.value == "done" for past in entry.past),
        "reason": why_waiting(c, entry) if entry.phase is JobPhase.QUEUED else entry.why,
        "migration": None
        if migration is None
        else {
            "id": migration.id,
            "phase": migration.phase.value,
            "targets": list(migration.targets),
            "sources": list(migration.sources),
            "cause": migration.cause,
        },
    }


def _generation(entry: JobEntry) -> int:
    return (entry.migration.generation if entry.migration is not None else 0) or entry.generation


def _progress(entry: JobEntry, views: list[View]) -> tuple[int, int, float | None]:
    said = [view.progress for view in views if view.progress is not None]
    step = max((progress.step for progress in said), default=entry.furthest)
    total = max((progress.total for progress in said), default=0)
    loss = next((progress.loss for progress in said if progress.loss is not None), None)
    return max(step, entry.furthest if entry.over else 0), total, loss


def why_waiting(c: Controller, entry: JobEntry) -> str:
    """What keeps a job waiting, in words."""
    if entry.id in c.pool_of(entry).admitted:
        nodes = ", ".join(dict.fromkeys(c.pool_of(entry).target(entry.id)))
        return f"admitted to {nodes}; waits for GPUs there to become free"
    if entry.id in c.pool_of(entry).oversize:
        held = _could_hold(c.pool_of(entry), entry, len(c.pool_of(entry).state.nodes))
        return f"capacity: {entry.job.total_gpus} GPUs wanted{held}; others go before it until there are more nodes"
    reason = c.pool_of(entry).reasons.get(entry.id)
    if reason is not None:
        return str(reason) + _could_hold(c.pool_of(entry), entry, c.pool_of(entry).state.available_nodes)
    head = c.pool_of(entry).queue.head()
    if head is not None and head.id != entry.id:
        return f"behind {head.id} in the queue"
    return entry.why or "about to be tried"


def _could_hold(pool: Pool, entry: JobEntry, nodes: int) -> str:
    """What to add for a job that so many nodes could not hold if they were empty."""
    most = nodes * (pool.state.capacity // entry.job.gpus)
    if entry.job.instances <= most:
        return ""
    return f"; the {nodes} nodes could hold {most} of its {entry.job.instances} instances if they were empty"


def job_detail(c: Controller, entry: JobEntry) -> dict[str, Any]:
    """Everything about a job."""
    live = c.live.get(entry.id)
    runs = [] if live is None else [_run(view) for view in sorted(live.gang, key=lambda view: view.run)]
    return {
        **job_summary(c, entry),
        "spec": entry.spec.model_dump(mode="json"),
        "generation": entry.generation,
        "retries": entry.retries,
        "lost_steps": entry.lost_steps,
        "lost_seconds": entry.lost_seconds,
        "checkpoints": [{"step": each.step, "path": each.path} for each in entry.checkpoints],
        "runs": runs,
        "history": [migration_view(entry.id, past) for past in entry.past],
    }


def _run(view: View) -> dict[str, Any]:
    report = view.report
    end = report.end if report is not None else None
    return {
        "instance": view.run.number,
        "generation": view.run.generation,
        "node": view.node,
        "phase": view.phase.value,
        "gpus": list(report.gpus) if report is not None else [],
        "handle": report.handle if report is not None else "",
        "end": None if end is None else {"cause": end.cause.value, "code": end.code, "detail": end.detail},
        "step": view.progress.step if view.progress is not None else None,
    }


def migration_view(job_id: str, past: MigrationPast) -> dict[str, Any]:
    """A migration that is over."""
    return {
        "id": past.id,
        "job": job_id,
        "cause": past.cause,
        "began": past.began,
        "ended": past.ended,
        "sources": list(past.sources),
        "targets": list(past.targets),
        "outcome": past.outcome.value,
        "why": past.why,
        "seconds": past.seconds,
        "lost_seconds": past.lost_seconds,
    }


def node_view(c: Controller, name: str) -> dict[str, Any]:
    """A node and what is on it."""
    node = c.book.nodes[name]
    report = c.health.get(name)
    return {
        "name": name,
        "pool": node.pool,
        "gpus": node.gpus,
        "free": c.occupancy.free(name) if c.node_alive(name) else 0,
        "status": effective_status(c, name).value,
        "detail": report.detail if report is not None else "",
        "slots": _slots(c, name),
    }


def _slots(c: Controller, name: str) -> list[dict[str, Any]]:
    """Who holds which GPUs, in order; by index where the engine tells."""
    found = []
    for run, gpus in sorted(c.occupancy.on(name).items()):
        live = c.live.get(run.job_id)
        view = live.gang.views.get(run) if live is not None else None
        report = view.report if view is not None else None
        entry = c.book.jobs.get(run.job_id)
        phase = report.phase if report is not None else RunPhase.PENDING
        migrating = entry is not None and entry.phase is JobPhase.MIGRATING
        state = ("arriving" if phase is RunPhase.PENDING else "leaving") if migrating else phase.value
        if migrating and entry is not None and entry.migration is not None:
            same = entry.migration.sources[run.number] == entry.migration.targets[run.number]
            state = "staying" if same else state
        found.append(
            {
                "job": run.job_id,
                "instance": run.number,
                "generation": run.generation,
                "gpus": gpus,
                "indices": list(report.gpus) if report is not None else [],
                "state": state,
            }
        )
    return found


def drain_view(c: Controller, name: str) -> dict[str, Any]:
    """A node with the jobs that are still on it."""
    return {**node_view(c, name), "still_on": still_on(c, name)}


def pool_view(pool: Pool) -> dict[str, Any]:
    """A pool in numbers."""
    state = pool.state
    total = state.available_nodes * state.capacity
    return {
        "name": pool.name,
        "capacity": state.capacity,
        "nodes": state.available_nodes,
        "gpus": total,
        "free": state.free_gpus,
        "utilisation": (total - state.free_gpus) / total if total else 0.0,
        "sif": sif(state) if total else 0.0,
        "partial_nodes": state.partial_nodes,
        "avoidable_partial_nodes": avoidable_partial_nodes(state) if total else 0,
        "empty_nodes": state.empty_nodes,
        "wcc_margin": wcc_margin(state.demand, state.capacity) if total else 0,
        "waiting": len(pool.queue) + len(pool.oversize),
        "scheduler": pool.scheduler.name,
    }


def overview(c: Controller) -> dict[str, Any]:
    """The whole cluster, as the dashboard shows it."""
    active = [entry for entry in c.book.open_jobs.values() if entry.phase is not JobPhase.QUEUED]
    waiting = [job.id for pool in c.pools.values() for job in (*pool.admitted.values(), *pool.waiting)]
    shown = waiting[:_QUEUE_SHOWN]
    ended = [entry for entry in list(c.book.jobs.values())[-2000:] if entry.over]
    ended.sort(key=lambda entry: -(entry.ended or 0.0))
    return {
        "version": c.book.records,
        "time": c.clock.wall(),
        "ready": c.ready,
        "engine": c.engine.name,
        "mode": c.config.conduct.value,
        "migrations": c.book.settings.get("migrations", "on"),
        "queue": c.config.queue,
        "counts": {phase.value: count for phase, count in c.book.counts.items()},
        "pools": [pool_view(pool) for pool in c.pools.values()],
        "nodes": [node_view(c, name) for name in c.book.nodes],
        "jobs": [job_summary(c, entry) for entry in active],
        "waiting": [job_summary(c, c.book.jobs[job_id]) for job_id in shown],
        "waiting_total": len(waiting),
        "proposals": proposals_view(c),
        "recent": [job_summary(c, entry) for entry in ended[:_RECENT_SHOWN]],
    }


def plan_view(c: Controller) -> dict[str, Any]:
    """What is being moved, what would be, and why."""
    moves: list[dict[str, Any]] = []
    for pool in c.pools.values():
        for move in pool.moves.values():
            moves.append(
                {
                    "job": move.job_id,
                    "from": list(c.book.jobs[move.job_id].nodes),
                    "to": list(move.nodes),
                    "cause": move.cause,
                    "state": "decided",
                }
            )
    for entry in c.book.open_jobs.values():
        if entry.migration is not None:
            moves.append(
                {
                    "job": entry.id,
                    "from": list(entry.migration.sources),
                    "to": list(entry.migration.targets),
                    "cause": entry.migration.cause,
                    "state": entry.migration.phase.value,
                }
            )
    return {"migrates": c.migrates, "moves": moves, "proposals": proposals_view(c)}


def explain_job(c: Controller, entry: JobEntry) -> dict[str, Any]:
    """Why a job waits, and the cheapest moves that would let it start."""
    from compass_abs.planner.allowance import Allowance
    from compass_abs.planner.explain import explain
    from compass_abs.planner.ledger import Ledger
    from compass_abs.planner.policy import Policy
    from compass_abs.planner.request import Room
    from compass_abs.schedulers.jit import CompassJit

    answer: dict[str, Any] = {"job": entry.id, "phase": entry.phase.value}
    if entry.phase is not JobPhase.QUEUED:
        where = f"on {' '.join(dict.fromkeys(entry.nodes))}; " if entry.nodes else ""
        return {**answer, "text": f"{where}it does not wait"}
    pool = c.pool_of(entry)
    if isinstance(pool.scheduler, CompassJit):
        # Its own policy: nothing is promised that a budget or a window forbids.
        allowance = pool.scheduler.allowance(pool.situation)
    else:
        policy = Policy.from_mapping({"objective": "disruption", "pause": 8.0})
        allowance = Allowance(policy, Ledger(), 0.0, {}, {})
    room = Room(entry.job.instances, entry.job.gpus)
    explanation = explain(pool.state, room, allowance, allowance.policy.pause, allowance.moves())
    return {**answer, "text": why_waiting(c, entry), "now": explanation.as_dict()}
