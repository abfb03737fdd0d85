"""The queue of GFS's public artifact: the largest instances first, and a bar on sizes that failed."""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import chain
from typing import ClassVar

from compass_abs.model import Job
from compass_abs.queues.arrival_order import ArrivalOrder
from compass_abs.queues.base import Attempts, Queue, absent, present
from compass_abs.schedulers.base import Situation


class GfsArtifact(Queue):
    """Jobs by GPUs of an instance, descending, then by submission; once one fails, only smaller sizes are tried.

    Transcribed from `policy/gfs.py:simulate` of Xu-Sheng-lin/GFS-asplos-26, which sorts by (-g, submit_time) and skips
    every job with g at least that of one that failed in the same pass.
    """

    name: ClassVar[str] = "gfs_artifact"

    def __init__(self) -> None:
        #: For each size, those that wait, in the order of submission.
        self._sizes: OrderedDict[int, ArrivalOrder] = OrderedDict()
        self._size_of: dict[str, int] = {}

    def push(self, job: Job) -> None:
        """A job joins those of its size."""
        self._class_of(job).push(job)

    def requeue(self, job: Job) -> None:
        """Goes before everyone of its size who was submitted at its time or later."""
        self._class_of(job).requeue(job)

    def _class_of(self, job: Job) -> ArrivalOrder:
        if job.id in self._size_of:
            raise present(job.id)
        self._size_of[job.id] = job.gpus
        if job.gpus not in self._sizes:
            self._sizes[job.gpus] = _OneSize()
            self._sizes = OrderedDict(sorted(self._sizes.items(), reverse=True))
        return self._sizes[job.gpus]

    def remove(self, job_id: str) -> Job:
        """Takes a waiting job out."""
        size = self._size_of.pop(job_id, None)
        if size is None:
            raise absent(job_id)
        return self._sizes[size].remove(job_id)

    def head(self) -> Job | None:
        """The first of the largest size."""
        return next((job for same in self._sizes.values() if (job := same.head()) is not None), None)

    def attempts(self, situation: Situation) -> Attempts:
        """In each size from the largest, jobs until one fails."""
        for same in tuple(self._sizes.values()):
            while (job := same.head()) is not None:
                if not (yield job):
                    break
                self.remove(job.id)

    def __len__(self) -> int:
        return len(self._size_of)

    def __iter__(self) -> Iterator[Job]:
        return chain.from_iterable(self._sizes.values())


class _OneSize(ArrivalOrder):
    """Jobs whose instances have the same number of GPUs."""

    name: ClassVar[str] = "one-size"

    def attempts(self, situation: Situation) -> Attempts:
        """Never used: the queue that owns it tries its jobs."""
        yield from ()
