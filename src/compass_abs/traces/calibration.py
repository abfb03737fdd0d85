"""A workload model from a trace: aggregates only, none of its rows."""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from compass_abs.model import Job
from compass_abs.traces.errors import TraceError
from compass_abs.traces.synthesis import Durations, Shape, WorkloadModel
from compass_abs.traces.trace import DAY, Trace

#: Probabilities at which the law of service times is pinned.
_KNOTS = (0.0, 0.05, 0.10, 0.25, 0.40, 0.50, 0.60, 0.75, 0.85, 0.90, 0.95, 0.98, 0.99, 1.0)
#: Fewer jobs than this have no law of their own.
_FEWEST = 200
#: Days with less than this share of the median day's jobs are the thin ends of a recording.
_THIN = 0.1
#: Batches above this are one user's campaign, not a habit of the cluster.
_LARGEST_BATCH = 10.0


def calibrate(trace: Trace, name: str | None = None) -> WorkloadModel:
    """The model whose shares, service times, rhythm and burstiness are those of the trace."""
    jobs = _typical_days(trace.jobs)
    if len(jobs) < _FEWEST:
        raise TraceError(f"trace {trace.name!r} has {len(jobs)} jobs on ordinary days; a model needs {_FEWEST}")
    per_day = Counter(int(job.submitted // DAY) for job in jobs)
    logs = [math.log(n) for n in per_day.values()]
    mean_log = math.fsum(logs) / len(logs)
    hours = Counter(int(job.submitted % DAY // 3600) for job in jobs)
    hourly = tuple(round(24 * hours[h] / len(jobs), 2) for h in range(24))
    shapes = Counter((job.instances, job.gpus) for job in jobs)
    return WorkloadModel(
        name=name or trace.name,
        calibrated_to=f"calibrated to {len(jobs):,} jobs of {trace.name} on {len(per_day)} days",
        jobs_per_day=float(round(len(jobs) / len(per_day))),
        day_spread=round(math.sqrt(math.fsum((x - mean_log) ** 2 for x in logs) / len(logs)), 2),
        hourly=hourly,
        shapes=tuple(Shape(w, g, round(1e5 * n / len(jobs), 1)) for (w, g), n in sorted(shapes.items())),
        durations=_laws(jobs, trace.capacity),
        batch=_batch(jobs, hourly, per_day),
        capacity=trace.capacity,
    )


def _typical_days(jobs: Sequence[Job]) -> list[Job]:
    per_day = Counter(int(job.submitted // DAY) for job in jobs)
    if not per_day:
        return []
    median = sorted(per_day.values())[len(per_day) // 2]
    return [job for job in jobs if per_day[int(job.submitted // DAY)] >= _THIN * median]


def _laws(jobs: Sequence[Job], capacity: int) -> tuple[Durations, ...]:
    """A law each for 1 GPU, part of a node, a node, up to 4 nodes, and more."""
    limits = [1, capacity - 1, capacity, 4 * capacity, 10**9]
    laws = []
    lowest = 0
    for limit in limits:
        durations = sorted(
            job.duration for job in jobs if lowest < job.total_gpus <= limit and job.duration is not None
        )
        if len(durations) >= _FEWEST:
            laws.append(Durations(limit, _knots(durations)))
            lowest = limit
    if not laws:
        laws = [Durations(10**9, _knots(sorted(j.duration for j in jobs if j.duration is not None)))]
    return tuple(laws)


def _knots(durations: Sequence[float]) -> tuple[tuple[float, float], ...]:
    """The quantiles, to three digits; where they reach the maximum early (a cut), the rest of the law is flat."""
    most = durations[-1]
    reached = round(sum(d < most for d in durations) / len(durations), 4)
    places = sorted({p for p in _KNOTS if p < reached} | {reached, 1.0})
    knots = []
    for p in places:
        at = durations[min(len(durations) - 1, int(p * len(durations)))]
        knots.append((p, most if p >= reached else max(1.0, float(f"{at:.3g}"))))
    return tuple(knots)


def _batch(jobs: Sequence[Job], hourly: Sequence[float], per_day: Counter[int]) -> float:
    """Mean batch m from how much hourly arrivals vary around the day's rhythm.

    Batches of geometric size that arrive at random give a ratio of variance to mean of 2m - 1.
    """
    seen = Counter(int(job.submitted // 3600) for job in jobs)
    excess, slots = 0.0, 0
    for day, number in per_day.items():
        for hour, rate in enumerate(hourly):
            expected = number * rate / 24
            if expected >= 1:
                excess += (seen[day * 24 + hour] - expected) ** 2 / expected
                slots += 1
    return round(min(_LARGEST_BATCH, max(1.0, (excess / slots + 1) / 2)), 1) if slots else 1.0


def model_as_json(model: WorkloadModel) -> str:
    """The model as text that `model_from_json` reads back."""
    fields = asdict(model)
    fields["shapes"] = [[s.instances, s.gpus, s.weight] for s in model.shapes]
    fields["durations"] = [[law.up_to_gpus, [list(knot) for knot in law.knots]] for law in model.durations]
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def model_from_json(path: Path) -> WorkloadModel:
    """A model that `model_as_json` wrote, or that a user wrote by hand."""
    try:
        fields: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return _model(fields)
    except OSError as error:
        raise TraceError(f"{path}: {error.strerror}") from None
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise TraceError(f"{path}: no workload model ({type(error).__name__}: {error})") from None


def _model(fields: dict[str, Any]) -> WorkloadModel:
    given = dict(fields)
    for key in ("name", "calibrated_to"):
        given[key] = _text(given[key])
    for key in ("jobs_per_day", "day_spread", "batch", "batch_gap"):
        if key in given:
            given[key] = float(given[key])
    given["capacity"] = _whole(given.get("capacity", 8))
    given["hourly"] = tuple(float(x) for x in given["hourly"])
    given["shapes"] = tuple(Shape(_whole(w), _whole(g), float(x)) for w, g, x in given["shapes"])
    given["durations"] = tuple(
        Durations(_whole(limit), tuple((float(p), float(x)) for p, x in knots)) for limit, knots in given["durations"]
    )
    given["families"] = tuple((_text(name), tuple(map(_whole, sizes))) for name, sizes in given.get("families", []))
    return WorkloadModel(**given)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int | float) or value != int(value):
        raise TypeError(f"{value!r} is no whole number")
    return int(value)
