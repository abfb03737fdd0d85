"""Who is next, independent of where it goes."""

from compass_abs.queues.backfill import Backfill
from compass_abs.queues.base import Attempts, Priorities, Queue, QueueError
from compass_abs.queues.bounded_backfill import BoundedBackfill
from compass_abs.queues.fifo import Fifo
from compass_abs.queues.gfs_artifact import GfsArtifact
from compass_abs.queues.nominated import Nominated
from compass_abs.queues.registry import QUEUES, make_queue
from compass_abs.queues.sjf import ShortestFirst
from compass_abs.queues.smallest import SmallestFirst

__all__ = [
    "QUEUES",
    "Attempts",
    "Backfill",
    "BoundedBackfill",
    "Fifo",
    "GfsArtifact",
    "Nominated",
    "Priorities",
    "Queue",
    "QueueError",
    "ShortestFirst",
    "SmallestFirst",
    "make_queue",
]
