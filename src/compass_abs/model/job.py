"""What users submit: a gang of identical instances, each on one node."""

from dataclasses import dataclass
from typing import NamedTuple

from compass_abs.model.errors import InvalidJobError


@dataclass(frozen=True, slots=True)
class Job:
    """A gang of `instances` (w) instances of `gpus` (g) GPUs each, admitted all or not at all."""

    id: str
    instances: int
    gpus: int
    submitted: float = 0.0
    #: Planned service time in seconds; None when nobody knows.
    duration: float | None = None
    #: Nodes of one pool are interchangeable (same GPU model and capacity); a job names the pool it runs in.
    pool: str = ""
    #: Larger is more important: moved last.
    priority: int = 0
    #: False pins every instance to the node it starts on.
    movable: bool = True
    #: Latest acceptable end, in the clock of `submitted`; None when there is none.
    deadline: float | None = None
    #: Seconds that a migration pauses this job; None for the default of the run.
    pause: float | None = None

    def __post_init__(self) -> None:
        if type(self.instances) is not int or self.instances < 1:
            raise InvalidJobError(f"job {self.id!r}: instances is {self.instances!r}, expected a whole number ≥ 1")
        if type(self.gpus) is not int or self.gpus < 1:
            raise InvalidJobError(f"job {self.id!r}: gpus is {self.gpus!r}, expected a whole number ≥ 1")

    @property
    def total_gpus(self) -> int:
        """GPUs of the whole gang."""
        return self.instances * self.gpus


class Instance(NamedTuple):
    """One member of a gang; ordered by job id, then number."""

    job_id: str
    number: int
