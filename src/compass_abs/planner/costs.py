"""What it costs to move: a charge for each job, in any unit as long as it is one."""

from dataclasses import dataclass
from math import inf
from typing import NamedTuple, Protocol

from compass_abs.model import Job


class Charge(NamedTuple):
    """What a plan pays for one job: `gang` once if any of its instances moves, and `instance` for each that does."""

    gang: float
    instance: float


#: A job that a plan must leave where it is.
FORBIDDEN = Charge(inf, inf)


class Costs(Protocol):
    """Says what moving a job costs; `FORBIDDEN` for never. Jobs that are not movable are never asked about."""

    def charge(self, job: Job) -> Charge:
        """The charge for this job."""
        ...


@dataclass(frozen=True, slots=True)
class FewestMoves:
    """Every instance that moves costs one: the plan with the fewest moves."""

    def charge(self, job: Job) -> Charge:
        """One for each instance."""
        return _ONE_EACH


@dataclass(frozen=True, slots=True)
class Disruption:
    """GPU-seconds: the whole gang pauses once, however many of its instances move."""

    #: Seconds from the start of the checkpoint to the first step after the restore, where a job names none.
    pause: float = 8.0

    def charge(self, job: Job) -> Charge:
        """GPUs of the gang times its pause."""
        return Charge(job.total_gpus * (self.pause if job.pause is None else job.pause), 0.0)


_ONE_EACH = Charge(0.0, 1.0)
