"""Shortest job first."""

import math
from typing import ClassVar

from compass_abs.model import Job
from compass_abs.queues.ranked import Ranked


class ShortestFirst(Ranked):
    """The shortest planned service time first; jobs of unknown duration last."""

    name: ClassVar[str] = "sjf"

    def measure(self, job: Job) -> float:
        """Its duration."""
        return math.inf if job.duration is None else job.duration
