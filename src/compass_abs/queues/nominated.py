"""Who is tried next is the scheduler's choice: for those whose method includes a reordering of the queue (MCG)."""

from typing import ClassVar

from compass_abs.queues.arrival_order import ArrivalOrder
from compass_abs.queues.base import Attempts, Priorities
from compass_abs.schedulers.base import Nominating, Situation


class Nominated(ArrivalOrder):
    """Tries whom the scheduler nominates of those that wait, until one is refused or it nominates nobody."""

    name: ClassVar[str] = "nominated"

    def __init__(self, scheduler: Nominating, priorities: Priorities = Priorities.IGNORED) -> None:
        super().__init__(priorities)
        self._scheduler = scheduler

    def attempts(self, situation: Situation) -> Attempts:
        """The nominated job, and the next one whenever one was admitted."""
        while self._holder:
            job = self._scheduler.nominate(situation)
            if job is None or not (yield job):
                return
            self.remove(job.id)
