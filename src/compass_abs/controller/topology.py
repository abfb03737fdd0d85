"""Nodes: which there are, who may use them, and emptying those that an operator wants empty."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compass_abs.controller.book import JobPhase
from compass_abs.controller.pool import Pool
from compass_abs.controller.records import NodeSeen
from compass_abs.engines.protocol import NodeHealth, NodeReport
from compass_abs.model import CAPACITIES, Cause, Migration, Node, NodeStatus

if TYPE_CHECKING:
    from compass_abs.controller.reconcile import Controller


def on_nodes(c: "Controller", reports: Sequence[NodeReport]) -> None:
    """All nodes of the engine; one that is missing is lost."""
    for report in reports:
        on_node(c, report)
    present = {report.name for report in reports}
    for node in list(c.book.nodes.values()):
        if node.name not in present:
            on_node(c, NodeReport(node.name, node.gpus, node.pool, NodeHealth.LOST, "the engine no longer has it"))


def on_node(c: "Controller", report: NodeReport) -> None:
    """One node, as the engine sees it."""
    if c.health.get(report.name) == report:
        return
    known = c.book.nodes.get(report.name)
    if known is None or (known.gpus, known.pool) != (report.gpus, report.pool):
        if report.gpus not in CAPACITIES or (known is not None and known.gpus != report.gpus):
            # No slot structure exists for it, or it changed under running jobs: leave it alone.
            c.unfit_nodes[report.name] = report.gpus
            return
        c.note(NodeSeen(report.name, c.clock.wall(), report.gpus, report.pool))
    c.health[report.name] = report
    c.occupancy.set_capacity(report.name, report.gpus)
    refresh(c, report.name)


def refresh(c: "Controller", name: str) -> None:
    """Lets the scheduler know what a node is good for now."""
    node = c.book.nodes[name]
    pool = _pool(c, node.pool, node.gpus)
    if pool is None:
        return
    wanted = effective_status(c, name)
    if not c.ready:
        # Nothing is decided before everything was seen once; the scheduler is rebuilt after that, not for each node.
        if name not in pool.state.index_of:
            pool.state.add_node(name)
        pool.state.set_status(name, wanted)
        return
    if name not in pool.state.index_of:
        pool.add_node(name)
    present = pool.state.node(name).status
    if present is wanted:
        return
    if present is NodeStatus.LOST:
        pool.add_node(name)
    if wanted is not NodeStatus.UP or present is not NodeStatus.LOST:
        decision = pool.set_status(name, wanted)
        c.take_moves(pool, decision, f"node {name} {wanted}")
    c.unsettle(pool)
    for job_id in touched_by(c, name):
        c.touch(job_id)


def effective_status(c: "Controller", name: str) -> NodeStatus:
    """What a node is good for: the worse of what the engine says and what an operator wants."""
    report, wanted = c.health.get(name), c.book.nodes[name].wanted
    if report is None or report.health is NodeHealth.LOST:
        return NodeStatus.LOST
    if wanted is NodeStatus.UP and report.health is NodeHealth.CORDONED:
        return NodeStatus.CORDONED
    return wanted


def touched_by(c: "Controller", name: str) -> list[str]:
    """Jobs that are, or are to be, on a node; or of which something may be left there."""
    found = []
    for entry in c.book.open_jobs.values():
        nodes = entry.nodes + (entry.migration.targets if entry.migration is not None else ())
        if name in nodes:
            found.append(entry.id)
    found += [run.job_id for run in c.occupancy.on(name)]
    return list(dict.fromkeys(found))


def _pool(c: "Controller", name: str, gpus: int) -> Pool | None:
    pool = c.pools.get(name)
    if pool is None:
        config = c.config
        pool = c.pools[name] = Pool(name, gpus, config.scheduler, config.queue, dict(config.parameters))
        pool.situation.now = c.clock.wall()
    # Nodes of a pool are interchangeable: one of another size takes no part.
    return pool if pool.state.capacity == gpus else None


def plan_drains(c: "Controller", pool: Pool) -> None:
    """Finds new places for what is still on nodes that are to be empty."""
    draining = [node for node in pool.state.nodes if node.status is NodeStatus.DRAINING and node.contents]
    if not draining:
        return
    for node in draining:
        moves = _moves_off(pool, node)
        if not moves:
            continue
        if not c.migrates:
            pool.propose(f"drain {node.name}", moves)
            continue
        # In order, or all at once where gangs have to change places and nothing is free beside them.
        pool.state.move_all(moves)
        pool.scheduler.restore(())
        for job_id in dict.fromkeys(move.instance.job_id for move in moves):
            c.retarget(pool, job_id, Cause.DRAIN)


def _moves_off(pool: Pool, node: Node) -> tuple[Migration, ...]:
    """The cheapest moves that empty a node; where nothing can, those of whoever fits elsewhere as things are."""
    from compass_abs.planner import Drain, Plan, plan

    answer = plan(pool.state, Drain((node.index,)))
    if isinstance(answer, Plan):
        return answer.moves
    free = {other.index: other.free for other in pool.state.nodes if other.status is NodeStatus.UP}
    moves = []
    for instance, gpus in sorted(node.contents.items(), key=lambda item: (-item[1], item[0])):
        fitting = [index for index, room in free.items() if room >= gpus]
        if pool.state.gangs[instance.job_id].job.movable and fitting:
            target = min(fitting, key=lambda index: (free[index], index))
            free[target] -= gpus
            moves.append(Migration(instance, node.index, target, gpus, Cause.DRAIN))
    return tuple(moves)


def still_on(c: "Controller", name: str) -> list[str]:
    """Jobs with an instance on a node, or on their way off it."""
    return [
        job_id
        for job_id in touched_by(c, name)
        if job_id in c.book.open_jobs
        and name in c.book.jobs[job_id].nodes
        and c.book.open_jobs[job_id].phase is not JobPhase.QUEUED
    ]
