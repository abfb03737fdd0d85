"""The jobs of a day, and the cluster they get."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cache, lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from compass_abs.experiments.errors import StudyError
from compass_abs.experiments.fingerprint import file_version
from compass_abs.experiments.study import Sample, Workload
from compass_abs.model import Job

if TYPE_CHECKING:
    from compass_abs.simulation.workload import Workload as DayOfWork
    from compass_abs.traces import Trace


def load_trace(workload: Workload) -> "Trace":
    """The whole trace behind a workload."""
    return _load(workload.model_dump_json())


# More than any study has: reading one anew for every run would take longer than the run.
@lru_cache(maxsize=32)
def _load(workload_json: str) -> "Trace":
    from compass_abs.traces import Tail, read_trace

    workload = Workload.model_validate_json(workload_json)
    if workload.trace is not None:
        return read_trace(workload.trace, tail=Tail(workload.tail), seed=workload.seed)
    return _synthesise(workload)


def _synthesise(workload: Workload) -> "Trace":
    from compass_abs.traces.synthesis import synthesize
    from compass_abs.traces.workloads import workload as named

    assert workload.synth is not None
    knobs = workload.knobs
    model = named(workload.synth)
    if knobs.mix is not None:
        model = model.with_mix(knobs.mix)
    if knobs.gangs != 1 or knobs.largest_gang is not None:
        model = model.with_gangs(knobs.gangs, knobs.largest_gang)
    if knobs.durations != 1 or knobs.longest is not None:
        model = model.with_durations(knobs.durations, knobs.longest)
    model = model.with_load(knobs.load).with_diurnal(knobs.diurnal)
    return synthesize(model, workload.length, workload.seed)


def source_version(workload: Workload) -> dict[str, Any]:
    """What the jobs depend on besides the code: the bytes of the file, or the knobs of the generator."""
    if workload.trace is None:
        knobs = workload.knobs.model_dump()
        return {"synth": workload.synth, "length": workload.length, "knobs": knobs, "seed": workload.seed}
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


def day_of_work(workload: Workload, number: int) -> "DayOfWork":
    """One day of a workload, with the days before for schedulers that learn from them."""
    return _day(workload.model_dump_json(), number)


@lru_cache(maxsize=8)
def _day(workload_json: str, number: int) -> "DayOfWork":
    from compass_abs.simulation.workload import day_workload

    return day_workload(_load(workload_json), number)


@cache
def job_count(workload: Workload, number: int) -> int:
    """How many jobs a day has."""
    return len(day_of_work(workload, number).jobs)


def cluster_nodes(workload: Workload, number: int, eta: float) -> int:
    """N(η) of a day."""
    return _nodes(workload.model_dump_json(), number, eta)


@lru_cache(maxsize=64)
def _nodes(workload_json: str, number: int, eta: float) -> int:
    return _day(workload_json, number).nodes(eta)


def pin(jobs: Iterable[Job], share: float, seed: int) -> list[Job]:
    """The jobs, a share of them not movable; a larger share pins the same jobs and more."""
    if share <= 0:
        return list(jobs)
    return [replace(job, movable=job.movable and _draw(job.id, seed) >= share) for job in jobs]


def _draw(job_id: str, seed: int) -> float:
    """A number from 0 to 1 that depends on nothing but the job and the seed."""
    digest = sha256(f"{seed}:{job_id}".encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64
