"""Unrestricted backfilling among the first few: whoever of them fits, starts."""

from itertools import islice
from typing import ClassVar

from compass_abs.queues.arrival_order import ArrivalOrder
from compass_abs.queues.base import Attempts, Priorities, QueueError
from compass_abs.schedulers.base import Situation


class BoundedBackfill(ArrivalOrder):
    """Tries the first `depth` jobs in order and skips those that can't start; a large job may starve behind it."""

    name: ClassVar[str] = "backfill16"

    def __init__(self, depth: int = 16, priorities: Priorities = Priorities.IGNORED) -> None:
        if depth < 1:
            raise QueueError(f"queue backfill: depth is {depth}, expected a whole number ≥ 1")
        super().__init__(priorities)
        self.depth = depth

    def attempts(self, situation: Situation) -> Attempts:
        """The first `depth` jobs, those that take the place of admitted ones included."""
        skipped = 0
        while skipped < self.depth:
            job = next(islice(self, skipped, None), None)
            if job is None:
                return
            if (yield job):
                self.remove(job.id)
            else:
                skipped += 1
