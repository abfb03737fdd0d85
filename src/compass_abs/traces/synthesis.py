"""Seeded generators of jobs: a model says how many, when, how large and how long; a seed picks one trace of it.

Only `random.Random.random` is used, whose sequence Python guarantees for a seed, and times are whole seconds, so that
a seed gives the same bytes on every machine.
"""

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from statistics import NormalDist

from compass_abs.model import Job
from compass_abs.traces.composition import SizeClass, class_of
from compass_abs.traces.errors import TraceError
from compass_abs.traces.trace import DAY, MOST_JOBS, Trace
from compass_abs.traces.values import MOST_GPUS, MOST_SECONDS

HOUR = 3_600.0
#: The next number of a seeded sequence, uniform in [0, 1).
Draw = Callable[[], float]
#: A century; more is a typing error.
MOST_DAYS = 36_525


@dataclass(frozen=True, slots=True)
class Shape:
    """A demand, w instances of g GPUs, and how common it is among jobs."""

    instances: int
    gpus: int
    weight: float


@dataclass(frozen=True, slots=True)
class Durations:
    """A law of service times, by the quantiles it goes through; straight lines in (probability, log seconds)."""

    #: Jobs of up to this many GPUs in all follow this law, unless a law before it took them.
    up_to_gpus: int
    #: (probability, seconds), from probability 0 to 1.
    knots: tuple[tuple[float, float], ...]

    def quantile(self, probability: float) -> float:
        """The service time that this share of jobs does not exceed."""
        at = min(bisect_right(self.knots, (probability, math.inf)), len(self.knots) - 1)
        (p0, x0), (p1, x1) = self.knots[at - 1], self.knots[at]
        share = (probability - p0) / (p1 - p0) if p1 > p0 else 1.0
        return math.exp(math.log(x0) + share * (math.log(x1) - math.log(x0)))

    def mean(self) -> float:
        """The mean service time: the exact integral of the quantile function."""
        total = 0.0
        for (p0, x0), (p1, x1) in pairwise(self.knots):
            slope = math.log(x1 / x0)
            total += (p1 - p0) * (x0 if abs(slope) < 1e-12 else (x1 - x0) / slope)
        return total


@dataclass(frozen=True, slots=True)
class WorkloadModel:
    """What a synthetic trace is drawn from; every number can be replaced (`dataclasses.replace`)."""

    name: str
    #: Where the numbers come from, in words.
    calibrated_to: str
    jobs_per_day: float
    #: Spread of the number of jobs between days: the standard deviation of its logarithm.
    day_spread: float
    #: Relative rate of submission in each hour of the day.
    hourly: tuple[float, ...]
    shapes: tuple[Shape, ...]
    durations: tuple[Durations, ...]
    #: Mean number of equal one-instance jobs submitted together.
    batch: float = 1.0
    #: Mean seconds between the jobs of a batch.
    batch_gap: float = 20.0
    capacity: int = 8
    #: Kinds of task, by the sizes of instances they come in; job ids start with them.
    families: tuple[tuple[str, tuple[int, ...]], ...] = ()

    def __post_init__(self) -> None:
        _positive(self.jobs_per_day, "jobs_per_day")
        if len(self.hourly) != 24 or not min(self.hourly) >= 0 or not 0 < sum(self.hourly) < math.inf:
            raise TraceError(f"hourly is {self.hourly}, expected 24 finite rates ≥ 0, not all 0")
        _within(self.day_spread, "day_spread", 0, 5)
        _within(self.batch, "batch", 1, MOST_JOBS)
        _within(self.batch_gap, "batch_gap", 0, DAY)
        _within(self.capacity, "capacity", 1, MOST_GPUS)
        if not self.shapes or not self.durations:
            raise TraceError(f"model {self.name!r} has no shapes or no durations")
        for shape in self.shapes:
            if not (shape.weight >= 0 and 1 <= shape.instances <= MOST_GPUS and 1 <= shape.gpus <= self.capacity):
                raise TraceError(f"shape {shape}: expected w ≥ 1, g from 1 to {self.capacity}, a weight ≥ 0")
        if not 0 < sum(shape.weight for shape in self.shapes) < math.inf:
            raise TraceError(f"model {self.name!r}: the weights of its shapes have no finite sum above 0")
        _check_probability_knots(self.durations)

    # ---- knobs

    def with_load(self, factor: float) -> "WorkloadModel":
        """The same with this many times the jobs."""
        return replace(self, jobs_per_day=self.jobs_per_day * _positive(factor, "load"))

    def with_mix(self, shares: Sequence[float]) -> "WorkloadModel":
        """The same with these shares of instances: 1 GPU, friendly (2, 4), unfriendly (3, 5, 6, 7), whole nodes."""
        if len(shares) != len(SizeClass) or min(shares) < 0 or not 0.98 <= math.fsum(shares) <= 1.02:
            raise TraceError(f"mix is {list(shares)}, expected four shares of 1, FF, FUF and 8 GPUs that sum to 1")
        now = dict.fromkeys(SizeClass, 0.0)
        for shape in self.shapes:
            now[class_of(shape.gpus, self.capacity)] += shape.weight * shape.instances
        factors = {}
        for kind, share in zip(SizeClass, shares, strict=True):
            if share and not now[kind]:
                raise TraceError(f"mix asks for {share:.0%} of {kind.value}, of which model {self.name!r} has no shape")
            factors[kind] = share / now[kind] if now[kind] else 0.0
        return self._reweighted([factors[class_of(s.gpus, self.capacity)] for s in self.shapes])

    def with_sizes(self, shares: Mapping[int, float]) -> "WorkloadModel":
        """The same with these shares of instances by size; sizes that aren't named don't occur."""
        if not shares or min(shares.values()) < 0 or not 0.98 <= math.fsum(shares.values()) <= 1.02:
            raise TraceError(f"sizes is {dict(shares)}, expected shares of instances that sum to 1")
        now = dict.fromkeys(shares, 0.0)
        for shape in self.shapes:
            if shape.gpus in now:
                now[shape.gpus] += shape.weight * shape.instances
        for size, share in shares.items():
            if share and not now[size]:
                known = ", ".join(str(gpus) for gpus in sorted({shape.gpus for shape in self.shapes}))
                raise TraceError(
                    f"sizes asks for {size} GPUs, of which model {self.name!r} has no shape; it has {known}"
                )
        factor = {size: share / now[size] for size, share in shares.items() if now[size]}
        return self._reweighted([factor.get(shape.gpus, 0.0) for shape in self.shapes])

    def with_gangs(self, factor: float, largest: int | None = None) -> "WorkloadModel":
        """The same with gangs of several instances this many times as common, and none larger than `largest`."""
        if factor < 0 or not math.isfinite(factor):
            raise TraceError(f"gangs is {factor}, expected a factor ≥ 0")
        return self._reweighted(
            [
                0.0 if largest is not None and s.instances > largest else factor if s.instances > 1 else 1.0
                for s in self.shapes
            ]
        )

    def with_durations(self, factor: float, longest: float | None = None) -> "WorkloadModel":
        """The same with service times this many times as long, and none longer than `longest` seconds."""
        _positive(factor, "durations")
        limit = math.inf if longest is None else _positive(longest, "longest")
        return replace(
            self,
            durations=tuple(
                replace(law, knots=tuple((p, max(1.0, min(x * factor, limit))) for p, x in law.knots))
                for law in self.durations
            ),
        )

    def with_diurnal(self, amplitude: float) -> "WorkloadModel":
        """The same with the daily rhythm flattened (0), as calibrated (1) or exaggerated (above 1)."""
        if amplitude < 0 or not math.isfinite(amplitude):
            raise TraceError(f"diurnal is {amplitude}, expected an amplitude ≥ 0")
        mean = math.fsum(self.hourly) / len(self.hourly)
        return replace(self, hourly=tuple(max(0.0, mean + amplitude * (x - mean)) for x in self.hourly))

    def _reweighted(self, factors: Sequence[float]) -> "WorkloadModel":
        shapes = [replace(s, weight=s.weight * f) for s, f in zip(self.shapes, factors, strict=True)]
        kept = tuple(s for s in shapes if s.weight > 0)
        if not kept:
            raise TraceError(f"model {self.name!r}: nothing is left to submit")
        return replace(self, shapes=kept)


def synthesize(
    model: WorkloadModel, days: int = 1, seed: int = 0, progress: Callable[[int], None] | None = None
) -> Trace:
    """A trace of the model, labelled synthetic; `progress` is called with the days done."""
    if not 1 <= days <= MOST_DAYS:
        raise TraceError(f"days is {days}, expected a whole number from 1 to {MOST_DAYS:,}")
    draw = random.Random(seed).random
    meant = model.jobs_per_day * days
    # Looked at before anything is drawn: a typing error in --days or --load would otherwise fill the memory.
    per_day = [_jobs_of_day(model, draw()) for _ in range(days)] if meant <= 2 * MOST_JOBS else []
    total = sum(per_day)
    if not 0 < total <= MOST_JOBS:
        raise TraceError(f"{total or meant:.3g} jobs over {days} days, expected 1 to {MOST_JOBS:,}")
    left = _allocated(model.shapes, total)
    rows: list[tuple[float, int, int, float, str]] = []
    for number, amount in enumerate(per_day):
        for submitted, shape in _day(model, amount, left, draw):
            law = next(
                (d for d in model.durations if shape.instances * shape.gpus <= d.up_to_gpus), model.durations[-1]
            )
            service = max(1.0, float(round(law.quantile(draw()))))
            family = _family(model, shape, draw) if model.families else "s"
            rows.append((number * DAY + submitted, shape.instances, shape.gpus, service, family))
        if progress is not None:
            progress(number + 1)
    rows.sort(key=lambda row: row[0])
    width = len(str(total))
    jobs = tuple(
        Job(f"{family}-{k:0{width}d}", instances, gpus, submitted, service)
        for k, (submitted, instances, gpus, service, family) in enumerate(rows, start=1)
    )
    return Trace(
        jobs,
        name=model.name,
        capacity=model.capacity,
        notes=(f"synthetic, seed {seed}: {model.calibrated_to}",),
        synthetic=True,
        source=f"synthesize({model.name!r}, days={days}, seed={seed})",
    )


def _jobs_of_day(model: WorkloadModel, uniform: float) -> int:
    if not model.day_spread:
        return round(model.jobs_per_day)
    normal = NormalDist().inv_cdf(min(max(uniform, 1e-6), 1 - 1e-6))
    # The mean of a log-normal is e^(σ²/2) above its median: taken off, so that the mean is jobs_per_day.
    return round(model.jobs_per_day * math.exp(model.day_spread * normal - model.day_spread**2 / 2))


def _allocated(shapes: Sequence[Shape], total: int) -> list[tuple[Shape, int]]:
    """How many jobs of each shape: every seed gets the model's mix, and rare large gangs their share of instances.

    Systematic sampling along the shapes by size: a class whose shapes are each rarer than one job is stood for by
    evenly spread members instead of being rounded away.
    """
    ordered = sorted(shapes, key=lambda s: (s.gpus, s.instances))
    step = total / math.fsum(s.weight for s in ordered)
    allocated, reached, before = [], 0.0, 0
    for shape in ordered[:-1]:
        reached += shape.weight * step
        upto = min(math.floor(reached + 0.5), total)
        allocated.append((shape, upto - before))
        before = upto
    return [*allocated, (ordered[-1], total - before)]


def _day(model: WorkloadModel, amount: int, left: list[tuple[Shape, int]], draw: Draw) -> list[tuple[float, Shape]]:
    """The submissions of one day, taken out of what is left to submit."""
    cumulative = [0.0, *accumulate(model.hourly)]
    submitted: list[tuple[float, Shape]] = []
    while len(submitted) < amount:
        # A batch takes several of its shape at once, so it has to be as many times rarer.
        index = _pick([n if s.instances > 1 else n / model.batch for s, n in left], draw())
        shape, available = left[index]
        size = 1 if shape.instances > 1 else _geometric(model.batch, draw())
        size = min(size, available, amount - len(submitted))
        left[index] = (shape, available - size)
        at = _time_of_day(cumulative, draw())
        for k in range(size):
            if k:
                at -= model.batch_gap * math.log(1 - draw())
            submitted.append((min(math.floor(at), DAY - 1), shape))
    return submitted


def _pick(weights: Sequence[float], uniform: float) -> int:
    target = uniform * sum(weights)
    for i, weight in enumerate(weights):
        target -= weight
        if target < 0:
            return i
    return max(i for i, weight in enumerate(weights) if weight)


def _geometric(mean: float, uniform: float) -> int:
    """1, 2, ... with this mean."""
    return 1 if mean <= 1 else 1 + int(math.log(1 - uniform) / math.log(1 - 1 / mean))


def _time_of_day(cumulative: Sequence[float], uniform: float) -> float:
    target = uniform * cumulative[-1]
    hour = min(bisect_right(cumulative, target), len(cumulative) - 1) - 1
    rate = cumulative[hour + 1] - cumulative[hour]
    return (hour + (target - cumulative[hour]) / rate) * HOUR if rate else hour * HOUR


def _family(model: WorkloadModel, shape: Shape, draw: Draw) -> str:
    fitting = [name for name, sizes in model.families if shape.gpus in sizes] or ["task"]
    return fitting[int(draw() * len(fitting))]


def _check_probability_knots(laws: Sequence[Durations]) -> None:
    for law in laws:
        knots = law.knots
        rising = all(a[0] <= b[0] and a[1] <= b[1] for a, b in pairwise(knots))
        if len(knots) < 2 or knots[0][0] != 0 or knots[-1][0] != 1 or knots[0][1] <= 0 or not rising:
            raise TraceError(f"durations {knots}: expected rising (probability, seconds) from probability 0 to 1")
        if knots[-1][1] > MOST_SECONDS:
            raise TraceError(f"durations {knots}: expected at most {MOST_SECONDS:,.0f} s (a century)")


def _within(value: float, what: str, least: float, most: float) -> None:
    if not least <= value <= most:
        raise TraceError(f"{what} is {value}, expected a number from {least} to {most:,}")


def _positive(value: float, what: str) -> float:
    if not (value > 0 and math.isfinite(value)):
        raise TraceError(f"{what} is {value}, expected a number > 0")
    return value
