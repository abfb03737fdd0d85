"""First in, first out, with head-of-line blocking: the paper's queue."""

from typing import ClassVar

from compass_abs.queues.arrival_order import ArrivalOrder
from compass_abs.queues.base import Attempts
from compass_abs.schedulers.base import Situation


class Fifo(ArrivalOrder):
    """Strictly in the order of submission: while the first can't start, nobody does."""

    name: ClassVar[str] = "fifo"

    def attempts(self, situation: Situation) -> Attempts:
        """The head, and the next one whenever a head was admitted."""
        while (job := self.head()) is not None:
            if not (yield job):
                return
            self.remove(job.id)
