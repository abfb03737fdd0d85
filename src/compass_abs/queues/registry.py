"""Queues by name."""

import re

from compass_abs.queues.backfill import Backfill
from compass_abs.queues.base import Priorities, Queue, QueueError
from compass_abs.queues.bounded_backfill import BoundedBackfill
from compass_abs.queues.fifo import Fifo
from compass_abs.queues.fluid_backfill import FluidBackfill
from compass_abs.queues.gfs_artifact import GfsArtifact
from compass_abs.queues.nominated import Nominated
from compass_abs.queues.sjf import ShortestFirst
from compass_abs.queues.smallest import SmallestFirst
from compass_abs.schedulers.base import Nominating, Scheduler

#: What each does, in a line.
QUEUES: dict[str, str] = {
    "fifo": "in the order of submission; while the first can't start, nobody does (the paper's)",
    "sjf": "shortest planned duration first, head-of-line blocking",
    "smallest": "fewest GPUs first, head-of-line blocking",
    "backfill": "FIFO with a reservation for the head; others pass if they don't delay it (EASY)",
    "backfill16": "whoever of the first 16 fits, starts (backfillN: of the first N)",
    "gfs_artifact": "largest instances first; once a size fails only smaller ones are tried",
}
#: Appended to a name, it lets `Job.priority` decide first.
PRIORITY_SUFFIX = "+priority"


def make_queue(name: str, scheduler: Scheduler) -> Queue:
    """The queue of this name, such as `fifo`, `backfill32` or `sjf+priority`.

    Under `fifo`, a scheduler whose method includes a reordering (MCG) gets to nominate who is tried; its own
    starvation guard bounds what that does to the others.
    """
    base = name.removesuffix(PRIORITY_SUFFIX)
    priorities = Priorities.IGNORED if base == name else Priorities.RESPECTED
    bounded = re.fullmatch(r"backfill([1-9]\d*)", base)
    if bounded:
        return BoundedBackfill(int(bounded[1]), priorities)
    if base == Fifo.name:
        return Nominated(scheduler, priorities) if isinstance(scheduler, Nominating) else Fifo(priorities)
    if base == ShortestFirst.name:
        return ShortestFirst(priorities)
    if base == SmallestFirst.name:
        return SmallestFirst(priorities)
    if base == Backfill.name:
        if scheduler.repacks():
            return FluidBackfill(scheduler.state, priorities=priorities)
        return Backfill(scheduler.state, priorities=priorities)
    if base == GfsArtifact.name and priorities is Priorities.IGNORED:
        return GfsArtifact()
    raise QueueError(f"there is no queue {name!r}; known: {', '.join(QUEUES)}, most also with {PRIORITY_SUFFIX!r}")
