"""Phys-Mix on real processes: the synthetic trace's demands, turned into training jobs that take as long.

trace = synthesize(workload("phys-mix"), seed=1)                  # compass_abs.traces: who comes when, how large
for task in tasks(trace.jobs, size="tiny", speed=60, seed=1): ...  # what each runs
"""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from compass_abs.model import CompassError, Job
from compass_abs.training.workloads import SIZES, WORKLOADS

#: Programs of each family of the paper's section 5.1; a job's id begins with its family.
FAMILIES: dict[str, tuple[str, ...]] = {
    "cv": ("resnet", "vit"),
    "nlp": ("bert",),
    "llm": ("gpt2",),
    "rec": ("deepfm",),
    "multimodal": ("clip",),
}
#: Seconds of a paced step: short against a migration, long against what a tiny model computes.
PACE = 0.1
#: A job that ends before it has begun to train would measure nothing but start-up.
_FEWEST_STEPS = 5


@dataclass(frozen=True, slots=True)
class Task:
    """A job of the trace and the program that it runs."""

    #: Arrival and demand; times are those of the real run, already sped up.
    job: Job
    workload: str
    size: str
    steps: int
    pace: float
    seed: int

    @property
    def command(self) -> tuple[str, ...]:
        """What each instance runs; `python` is the interpreter of the node's environment."""
        words = ["python", "-m", "compass_abs.training.workloads", self.workload]
        words += ["--size", self.size, "--steps", str(self.steps), "--seed", str(self.seed)]
        return (*words, "--pace", f"{self.pace:g}") if self.pace else tuple(words)

    def spec(self) -> dict[str, Any]:
        """The fields of a job file that `compass submit` takes."""
        return {
            "name": self.job.id,
            "instances": self.job.instances,
            "gpus_per_instance": self.job.gpus,
            "command": list(self.command),
            "movable": self.job.movable,
            "expected_duration": self.job.duration,
        }


def tasks(
    jobs: Iterable[Job], *, size: str = "tiny", speed: float = 1.0, seed: int = 0, seconds_per_step: float | None = None
) -> Iterator[Task]:
    """A task for each job, in order; arrivals and service times `speed` times as fast as in the trace.

    A step takes `seconds_per_step` where that was measured (`full` on a GPU); without it steps are paced to `PACE`,
    so that a job of n seconds takes n seconds whatever the machine. The same jobs and seed give the same tasks.
    """
    if size not in SIZES:
        raise CompassError(f"size is {size!r}, expected one of {', '.join(SIZES)}")
    if not speed > 0 or not (seconds_per_step is None or seconds_per_step > 0):
        raise CompassError(f"speed is {speed} and seconds_per_step {seconds_per_step}, expected numbers > 0")
    draw = random.Random(seed)
    for number, job in enumerate(jobs):
        if job.duration is None:
            raise CompassError(f"job {job.id!r} has no duration; Phys-Mix needs one to know how many steps to train")
        family = job.id.partition("-")[0]
        programs = FAMILIES.get(family, WORKLOADS)
        duration = job.duration / speed
        yield Task(
            job=replace(job, submitted=job.submitted / speed, duration=duration),
            workload=programs[int(draw.random() * len(programs))],
            size=size,
            steps=max(_FEWEST_STEPS, round(duration / (seconds_per_step or PACE))),
            pace=0.0 if seconds_per_step else PACE,
            seed=seed * 100_003 + number,
        )
