"""Who is next, independent of where it goes."""

from compass_abs.queues.base import Attempts, Queue, QueueError
from compass_abs.queues.fifo import Fifo

__all__ = ["Attempts", "Fifo", "Queue", "QueueError"]
