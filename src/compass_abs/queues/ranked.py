"""Waiting jobs by a key other than their arrival, with head-of-line blocking."""

from abc import abstractmethod
from collections.abc import Iterator
from heapq import heapify, heappop, heappush

from compass_abs.model import Job
from compass_abs.queues.base import Attempts, Priorities, Queue, absent, present
from compass_abs.schedulers.base import Situation

Rank = tuple[float, float, float, int]


class Ranked(Queue):
    """The lowest `measure` is tried first, then the earliest submitted; while it can't start, nobody does."""

    def __init__(self, priorities: Priorities = Priorities.IGNORED) -> None:
        self._priorities = priorities
        self._jobs: dict[str, tuple[Rank, Job]] = {}
        #: Entries of jobs that have left stay until they come to the top.
        self._heap: list[tuple[Rank, str]] = []
        self._pushed = 0

    @abstractmethod
    def measure(self, job: Job) -> float:
        """What the order goes by; the lowest first."""

    def push(self, job: Job) -> None:
        """A job takes its place in the order."""
        self._pushed += 1
        self._insert(job, self._pushed)

    def requeue(self, job: Job) -> None:
        """Goes before its equals."""
        self._pushed += 1
        self._insert(job, -self._pushed)

    def _insert(self, job: Job, sequence: int) -> None:
        if job.id in self._jobs:
            raise present(job.id)
        rank = -job.priority if self._priorities is Priorities.RESPECTED else 0
        key = (rank, self.measure(job), job.submitted, sequence)
        self._jobs[job.id] = (key, job)
        heappush(self._heap, (key, job.id))

    def remove(self, job_id: str) -> Job:
        """Takes a waiting job out."""
        entry = self._jobs.pop(job_id, None)
        if entry is None:
            raise absent(job_id)
        # Cancelling most of a long queue must not leave the heap full of the dead.
        if len(self._heap) > 2 * len(self._jobs) + 16:
            self._heap = [(key, job.id) for key, job in self._jobs.values()]
            heapify(self._heap)
        return entry[1]

    def head(self) -> Job | None:
        """The job of the lowest rank."""
        heap, jobs = self._heap, self._jobs
        while heap:
            key, job_id = heap[0]
            entry = jobs.get(job_id)
            if entry is not None and entry[0] == key:
                return entry[1]
            heappop(heap)
        return None

    def attempts(self, situation: Situation) -> Attempts:
        """The head, and the next one whenever a head was admitted."""
        while (job := self.head()) is not None:
            if not (yield job):
                return
            self.remove(job.id)

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[Job]:
        """Sorted on demand."""
        return (job for _, job in sorted(self._jobs.values(), key=lambda entry: entry[0]))
