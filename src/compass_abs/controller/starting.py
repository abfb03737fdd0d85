"""A new generation of a gang: where it is to run and to meet, and the order for each of its instances."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from compass_abs.controller.book import JobEntry, MigrationEntry
from compass_abs.controller.live import Live
from compass_abs.controller.pool import Pool
from compass_abs.controller.records import Placed
from compass_abs.engines.protocol import EngineRefusalError, EngineUnavailableError, RunId, StartOrder

if TYPE_CHECKING:
    from compass_abs.controller.reconcile import Controller


def rendezvous(c: "Controller", entry: JobEntry, nodes: Sequence[str], generation: int) -> tuple[str, int] | None:
    """Where a new generation is to meet; None when the engine can't say now."""
    try:
        return c.engine.rendezvous(entry.id, generation, nodes)
    except (EngineRefusalError, EngineUnavailableError):
        return None


def place(c: "Controller", pool: Pool, entry: JobEntry, nodes: tuple[str, ...]) -> bool:
    """Writes down that a gang is to start here; False when the engine isn't able to now."""
    generation = entry.generation + 1
    meeting = rendezvous(c, entry, nodes, generation)
    if meeting is None:
        return False
    best = entry.best_checkpoint()
    path, step = (best.path, best.step) if best else ("", 0)
    wall = c.clock.wall()
    c.note(Placed(entry.id, wall, generation, nodes, *meeting, path, step))
    for number, node in enumerate(nodes):
        c.occupancy.hold(RunId(entry.id, number, generation), node, entry.job.gpus)
    live = c.live.setdefault(entry.id, Live())
    live.run_began = c.now
    if entry.job.duration is not None:
        pool.situation.ends[entry.id] = wall + entry.job.duration
    pool.situation.progress[entry.id] = wall
    c.touch(entry.id)
    return True


def order(c: "Controller", entry: JobEntry, number: int, migration: MigrationEntry | None = None) -> StartOrder:
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
