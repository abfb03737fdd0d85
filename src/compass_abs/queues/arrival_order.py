"""Waiting jobs in the order in which they were submitted, with constant-time access to the first, and by id."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain

from compass_abs.model import Job
from compass_abs.queues.base import Priorities, Queue, absent, present


class ArrivalOrder(Queue):
    """What every queue that looks at submission times is built on; with priorities, the more important go first."""

    def __init__(self, priorities: Priorities = Priorities.IGNORED) -> None:
        self._priorities = priorities
        self._level_of: dict[int, OrderedDict[str, Job]] = {}
        #: The jobs of each priority, the most important first.
        self._levels: list[OrderedDict[str, Job]] = []
        #: The level that holds each waiting job.
        self._holder: dict[str, OrderedDict[str, Job]] = {}

    def push(self, job: Job) -> None:
        """A job joins at the end of its priority."""
        if job.id in self._holder:
            raise present(job.id)
        level = self._level(job)
        self._holder[job.id] = level
        level[job.id] = job

    def _level(self, job: Job) -> OrderedDict[str, Job]:
        rank = job.priority if self._priorities is Priorities.RESPECTED else 0
        level = self._level_of.get(rank)
        if level is None:
            level = self._level_of[rank] = OrderedDict()
            self._levels = [self._level_of[r] for r in sorted(self._level_of, reverse=True)]
        return level

    def requeue(self, job: Job) -> None:
        """Goes before everyone of its priority who was submitted at its time or later."""
        self.push(job)
        level = self._holder[job.id]
        # Rare (a node was lost), so a walk over those that were submitted before it will do.
        ahead = []
        for other in level.values():
            if other.submitted >= job.submitted:
                break
            ahead.append(other.id)
        level.move_to_end(job.id, last=False)
        for other_id in reversed(ahead):
            level.move_to_end(other_id, last=False)

    def remove(self, job_id: str) -> Job:
        """Takes a waiting job out."""
        level = self._holder.pop(job_id, None)
        if level is None:
            raise absent(job_id)
        return level.pop(job_id)

    def head(self) -> Job | None:
        """The job that was submitted first."""
        for level in self._levels:
            for job in level.values():
                return job
        return None

    def __len__(self) -> int:
        return len(self._holder)

    def __iter__(self) -> Iterator[Job]:
        return chain.from_iterable(level.values() for level in self._levels)
