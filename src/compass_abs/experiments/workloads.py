"""The jobs of a day, and the cluster they get."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from compass_abs.experiments.errors import StudyError
from compass_abs.experiments.fingerprint import file_version
from compass_abs.experiments.study import Sample, Workload
from compass_abs.model import Job

if TYPE_CHECKING:
    from compass_abs.traces import Trace

#: How much of the past a scheduler that learns the demand may know before a day begins: FGD's window.
HISTORY_DAYS = 7


@dataclass(frozen=True, slots=True)
class DayOfWork:
    """What is replayed: the jobs of a day, and what was submitted in the week before."""

    trace: "Trace"
    history: tuple[Job, ...]


def load_trace(workload: Workload) -> "Trace":
    """The whole trace behind a workload."""
    return _load(workload.model_dump_json())


@lru_cache(maxsize=4)
def _load(workload_json: str) -> "Trace":
    from compass_abs.traces import Tail, read_trace

    workload = Workload.model_validate_json(workload_json)
    if workload.trace is not None:
        return read_trace(workload.trace, tail=Tail(workload.tail), seed=workload.seed)
    return _synthesise(workload)


def _synthesise(workload: Workload) -> "Trace":
    raise StudyError(f"workload {workload.name!r}: there is no synthesis yet")


def source_version(workload: Workload) -> dict[str, Any]:
    """What the jobs depend on besides the code: the bytes of the file, or the knobs of the generator."""
    if workload.trace is None:
        return {"synth": workload.synth, "knobs": dict(workload.knobs), "seed": workload.seed}
    from compass_abs.traces.catalog import locate

    path, _ = locate(workload.trace)
    version: dict[str, Any] = {"file": file_version(path), "tail": workload.tail}
    if workload.tail != "as-published":
        version["seed"] = workload.seed
    return version


def chosen_days(workload: Workload) -> tuple[int, ...]:
    """The days that a workload replays, of those that have jobs."""
    known = load_trace(workload).days()
    if workload.days == "all":
        return known
    if isinstance(workload.days, Sample):
        return tuple(day for day in known if day >= workload.days.start)[:: workload.days.every]
    missing = [day for day in workload.days if day not in known]
    if missing:
        raise StudyError(f"workload {workload.name!r}: day {missing[0]} has no jobs; days go to {max(known)}")
    return tuple(workload.days)


def day_of_work(workload: Workload, number: int) -> DayOfWork:
    """One day of a workload with its history."""
    return _day(workload.model_dump_json(), number)


@lru_cache(maxsize=8)
def _day(workload_json: str, number: int) -> DayOfWork:
    from compass_abs.traces import DAY, day, window

    trace = _load(workload_json)
    start = (number - 1) * DAY
    before = window(trace, start - HISTORY_DAYS * DAY, start).jobs
    return DayOfWork(day(trace, number), before)


def cluster_nodes(workload: Workload, number: int, eta: float) -> int:
    """N(η) of a day."""
    return _nodes(workload.model_dump_json(), number, eta)


@lru_cache(maxsize=64)
def _nodes(workload_json: str, number: int, eta: float) -> int:
    from compass_abs.traces import cluster_size

    part = _day(workload_json, number).trace
    return cluster_size(part.jobs, eta, part.capacity)


def pin(jobs: Iterable[Job], share: float, seed: int) -> list[Job]:
    """The jobs, a share of them not movable; a larger share pins the same jobs and more."""
    if share <= 0:
        return list(jobs)
    return [replace(job, movable=job.movable and _draw(job.id, seed) >= share) for job in jobs]


def _draw(job_id: str, seed: int) -> float:
    """A number from 0 to 1 that depends on nothing but the job and the seed."""
    digest = sha256(f"{seed}:{job_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
