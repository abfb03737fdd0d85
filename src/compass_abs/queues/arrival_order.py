"""Waiting jobs in the order in which they were submitted, with constant-time access to both ends and by id."""

from collections import OrderedDict
from collections.abc import Iterator

from compass_abs.model import Job
from compass_abs.queues.base import Queue, absent, present


class ArrivalOrder(Queue):
    """What every queue that looks at submission times only is built on."""

    def __init__(self) -> None:
        self._jobs: OrderedDict[str, Job] = OrderedDict()

    def push(self, job: Job) -> None:
        """A job joins at the end."""
        if job.id in self._jobs:
            raise present(job.id)
        self._jobs[job.id] = job

    def requeue(self, job: Job) -> None:
        """Goes before everyone who was submitted at its time or later."""
        if job.id in self._jobs:
            raise present(job.id)
        # Rare (a node was lost), so a walk over those that were submitted before it will do.
        ahead = []
        for other in self._jobs.values():
            if other.submitted >= job.submitted:
                break
            ahead.append(other.id)
        self._jobs[job.id] = job
        self._jobs.move_to_end(job.id, last=False)
        for other_id in reversed(ahead):
            self._jobs.move_to_end(other_id, last=False)

    def remove(self, job_id: str) -> Job:
        """Takes a waiting job out."""
        job = self._jobs.pop(job_id, None)
        if job is None:
            raise absent(job_id)
        return job

    def head(self) -> Job | None:
        """The job that was submitted first."""
        for job in self._jobs.values():
            return job
        return None

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        return iter(self._jobs.values())
