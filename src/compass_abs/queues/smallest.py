"""Smallest job first."""

from typing import ClassVar

from compass_abs.model import Job
from compass_abs.queues.ranked import Ranked


class SmallestFirst(Ranked):
    """The fewest GPUs of the whole gang first."""

    name: ClassVar[str] = "smallest"

    def measure(self, job: Job) -> float:
        """Its GPUs."""
        return job.total_gpus
