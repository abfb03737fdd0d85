"""What must hold of the controller after every step, as code."""

from typing import TYPE_CHECKING

from compass_abs.controller.book import JobEntry, JobPhase
from compass_abs.controller.pool import Pool
from compass_abs.model import InvariantError

if TYPE_CHECKING:
    from compass_abs.controller.reconcile import Controller

_PLACED = (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.MIGRATING)


def check_controller(c: "Controller") -> None:
    """Raises unless every job is in exactly one place, and the scheduler's targets agree with what is under way."""
    for pool in c.pools.values():
        pool.scheduler.check_invariants()
    if not c.ready:
        return
    waiting = {pool.name: {job.id for job in pool.waiting} for pool in c.pools.values()}
    for entry in c.book.jobs.values():
        pool = c.pool_of(entry)
        queued = entry.id in waiting[pool.name]
        if entry.over:
            _require(not queued and entry.id not in pool.admitted, entry, "is over and still waits")
            _require(entry.id not in pool.state.gangs, entry, "is over and still placed")
        elif entry.phase is JobPhase.QUEUED:
            _require(queued != (entry.id in pool.admitted), entry, "is queued, and not in exactly one of two places")
        else:
            _require(not queued and entry.id not in pool.admitted, entry, f"is {entry.phase} and waits as well")
            _check_target(pool, entry)
    for name in pool_nodes(c):
        if c.node_alive(name):
            held = sum(c.occupancy.on(name).values())
            _require_node(held >= 0, name, f"{held} GPUs held")


def pool_nodes(c: "Controller") -> list[str]:
    """Names of all nodes that take part."""
    return [node.name for pool in c.pools.values() for node in pool.state.nodes]


def _check_target(pool: Pool, entry: JobEntry) -> None:
    if entry.phase not in _PLACED:
        return
    target = pool.target(entry.id)
    if not target:
        # Only a gang whose node is lost, or that is about to be called off, has none.
        return
    bound = entry.migration.targets if entry.migration is not None else entry.nodes
    _require(
        target == bound or entry.id in pool.moves, entry, f"is bound for {bound}, but its scheduler has it on {target}"
    )


def _require(holds: bool, entry: JobEntry, what: str) -> None:
    if not holds:
        past = ", ".join(f"{item.id}: {item.outcome} ({item.why})" for item in entry.past)
        raise InvariantError(
            f"job {entry.id!r} {what}; generation {entry.generation}, {entry.phase} on {entry.nodes}, "
            f"migration {entry.migration}, past migrations: {past or 'none'}"
        )


def _require_node(holds: bool, name: str, what: str) -> None:
    if not holds:
        raise InvariantError(f"node {name!r}: {what}")
