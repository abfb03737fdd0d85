"""The scheduler brought back to what is true: after a restart, and whenever something it wanted can't be."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compass_abs.controller import moving
from compass_abs.controller.book import JobEntry, JobPhase
from compass_abs.controller.live import Live
from compass_abs.controller.migration import Phase
from compass_abs.controller.pool import Committed, Firmness, Pool
from compass_abs.controller.runs import View
from compass_abs.engines.protocol import RunId

if TYPE_CHECKING:
    from compass_abs.controller.reconcile import Controller


def committed(c: "Controller", pool: Pool) -> list[Committed]:
    """Where every gang of a pool is, or is bound to be."""
    found = []
    for entry in c.book.open_jobs.values():
        if c.pool_of(entry) is not pool:
            continue
        if entry.phase in (JobPhase.RUNNING, JobPhase.STARTING):
            found.append(Committed(entry.job, entry.nodes, Firmness.RUNNING))
        elif entry.phase is JobPhase.MIGRATING and entry.migration is not None:
            found.append(Committed(entry.job, entry.migration.targets, Firmness.MOVING))
        elif entry.phase is JobPhase.CLEARING and pool.target(entry.id):
            found.append(Committed(entry.job, pool.target(entry.id), Firmness.LEAVING))
    return found


def settle(c: "Controller", pool: Pool) -> None:
    """Puts the scheduler of a pool back to what is true; migrations whose new place is taken by that are called off."""
    for job_id in pool.settle(committed(c, pool)):
        entry = c.book.jobs[job_id]
        if entry.phase is JobPhase.MIGRATING:
            c.live[job_id].call_off = "its new place is taken"
        c.touch(job_id)


def restore(c: "Controller") -> None:
    """After the first observation: puts running gangs and waiting jobs back to where they were."""
    for entry in c.book.jobs.values():
        if not entry.over:
            pool = c.pool_of(entry)
            pool.scheduler.submitted(entry.job, pool.situation)
            _restore_job(c, entry, pool)
        if not entry.over or entry.id in c.live:
            c.touch(entry.id)
    for pool in c.pools.values():
        c.unsettle(pool)
    c.wants_observation = True


def _restore_job(c: "Controller", entry: JobEntry, pool: Pool) -> None:
    if entry.phase is JobPhase.QUEUED:
        pool.requeue(entry.job)
        return
    live = c.live.setdefault(entry.id, Live())
    if entry.placed_at is not None:
        if entry.job.duration is not None:
            pool.situation.ends[entry.id] = entry.placed_at + entry.job.duration
        pool.situation.progress[entry.id] = entry.placed_at
        live.ran_before = max(0.0, c.clock.wall() - entry.placed_at)
    if entry.phase in (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.CLEARING, JobPhase.MIGRATING) and entry.nodes:
        _expect(c, live, entry, entry.generation, entry.nodes, entry.launched)
    if entry.migration is not None:
        c.begin_moving(entry.id)
        moving.reserve(c, entry, entry.migration)
        if entry.migration.generation:
            started = entry.migration.phase is Phase.RESUMING
            _expect(c, live, entry, entry.migration.generation, entry.migration.targets, started)


def _expect(
    c: "Controller", live: Live, entry: JobEntry, generation: int, nodes: Sequence[str], accepted: bool
) -> None:
    """Runs that the journal says were ordered: alive until an observation made after now says otherwise."""
    for number, node in enumerate(nodes):
        run = RunId(entry.id, number, generation)
        if run not in live.gang.views:
            live.gang.views[run] = View(run, node, ticket=c.ticket, accepted=accepted)
            c.occupancy.hold(run, node, entry.job.gpus)
