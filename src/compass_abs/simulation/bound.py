"""The bound that every result can be read against: no cluster of this size does better with this queue."""

from collections.abc import Iterable, Mapping
from typing import Any

from compass_abs.model import Job
from compass_abs.queues.fifo import Fifo
from compass_abs.schedulers.base import Nominating
from compass_abs.schedulers.registry import scheduler_class
from compass_abs.simulation.setup import Setup, replay
from compass_abs.simulation.summary import Summary

#: Metrics that grow with waiting, and so can be read as a multiple of the bound's.
RATIOS = ("ajct", "jct_p50", "jct_p95", "jct_p99", "queueing_mean", "makespan")


def has_bound(setup: Setup) -> bool:
    """Whether the setup has one: with node events only in FIFO order, and not where nodes make domains."""
    if not setup.node_changes:
        return True
    reorders = issubclass(scheduler_class(setup.scheduler), Nominating)
    return setup.queue == Fifo.name and not reorders and setup.topology is None


def bound(jobs: Iterable[Job], setup: Setup, **options: Any) -> Summary:
    """What the setup's queue gives where a job starts as soon as U* of it and all that runs is at most N.

    Moves are free and instant there, and a node that is lost takes no gang along. It bounds a scheduler for the same
    FIFO queue; a queue that reorders can still be unlucky with a better cluster, as every list scheduling can.
    """
    return replay(jobs, setup.bound(), **options)


def ratios(summary: Summary, limit: Summary) -> Mapping[str, float]:
    """The summary's times as multiples of the bound's, where the bound's aren't 0."""
    found = {}
    for name in RATIOS:
        least = getattr(limit, name)
        if least > 0:
            found[name] = getattr(summary, name) / least
    return found
