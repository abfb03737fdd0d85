"""The protocol that every queue keeps: it says who is tried next, and is told what came of it."""

from abc import abstractmethod
from collections.abc import Generator, Iterator, Sequence
from enum import Enum, auto
from itertools import islice
from typing import ClassVar, overload

from compass_abs.model import CompassError, DuplicateJobError, Job, UnknownJobError
from compass_abs.schedulers.base import Situation

#: Yields a job to try and is sent whether it was admitted.
Attempts = Generator[Job, bool, None]


class Priorities(Enum):
    """Whether `Job.priority` decides who is first."""

    IGNORED = auto()
    RESPECTED = auto()


class QueueError(CompassError):
    """A queue that doesn't exist, or a parameter that it doesn't take."""


class Queue(Sequence[Job]):
    """Waiting jobs, in the order of the queue.

    A driver calls `push` when a job is submitted, `requeue` when a running gang comes back (its node was lost, its
    start failed), `remove` when a waiting job is cancelled, and runs `attempts` after every event. An admitted job
    leaves the queue by itself. Nothing else may change the queue while `attempts` runs.
    """

    #: Name in the registry.
    name: ClassVar[str]

    @abstractmethod
    def push(self, job: Job) -> None:
        """A job joins the queue."""

    @abstractmethod
    def requeue(self, job: Job) -> None:
        """A job that had left comes back, ahead of those that it was ahead of before."""

    @abstractmethod
    def remove(self, job_id: str) -> Job:
        """Takes a waiting job out, and returns it."""

    @abstractmethod
    def head(self) -> Job | None:
        """The job that would be tried first; None when nobody waits."""

    @abstractmethod
    def attempts(self, situation: Situation) -> Attempts:
        """The jobs to try now, one after the other; whether each was admitted decides who is next."""

    @abstractmethod
    def __iter__(self) -> Iterator[Job]: ...

    @abstractmethod
    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | Sequence[Job]:
        """Positions are reached by walking: prefer `head`, or iterate."""
        if isinstance(index, slice):
            return list(self)[index]
        if index < 0:
            index += len(self)
        if index >= 0:
            for job in islice(self, index, index + 1):
                return job
        raise IndexError(index)


def absent(job_id: str) -> UnknownJobError:
    """The error for a job that doesn't wait."""
    return UnknownJobError(f"job {job_id!r} is not waiting")


def present(job_id: str) -> DuplicateJobError:
    """The error for a job that waits already."""
    return DuplicateJobError(f"job {job_id!r} is waiting already; job ids must be unique")
