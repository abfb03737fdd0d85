"""The metrics that tables show: what each is called, which way is better, and how it is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from compass_abs.reporting.comparison import RunView

#: Schedulers that stand for what is possible, not for what a cluster can do; they win nothing.
BOUNDS = ("bound", "sif-opt", "hierarchical-opt")


class Better(StrEnum):
    """Which way a metric is good."""

    LOWER = "lower"
    HIGHER = "higher"
    NEITHER = "neither"


@dataclass(frozen=True, slots=True)
class Metric:
    """A column of the comparison table."""

    key: str
    label: str
    better: Better
    #: "seconds", "share", "number" or "count".
    kind: str
    meaning: str


METRICS: tuple[Metric, ...] = (
    Metric(
        "ajct", "Completion", Better.LOWER, "seconds",
        "Average job completion time (AJCT): from submission to end, waiting and migration pauses included.",
    ),
    Metric(
        "ajct_ratio", "Over bound", Better.LOWER, "excess",
        "AJCT above that of a cluster which fragmentation cannot hurt: the same queue, every packing free and instant.",
    ),
    Metric("queueing_mean", "Waiting", Better.LOWER, "seconds", "Average time between submission and start."),
    Metric(
        "afr", "AFR", Better.LOWER, "number",
        "Average fragmentation rate: SIF, the share of nodes that are avoidably partial, averaged over the time "
        "in which somebody waits.",
    ),
    Metric(
        "agu", "AGU", Better.HIGHER, "share",
        "Average GPU utilisation over the time in which somebody waits.",
    ),
    Metric(
        "blocked_fragmentation", "Blocked by fragmentation", Better.LOWER, "seconds",
        "Time during which the head of the queue waits although enough GPUs are free: they are scattered.",
    ),
    Metric(
        "blocked_capacity", "Blocked by capacity", Better.NEITHER, "seconds",
        "Time during which the head of the queue waits because too few GPUs are free.",
    ),
    Metric(
        "migrations_per_job", "Moves a job", Better.LOWER, "number",
        "Instances moved from one node to another, divided by the number of jobs.",
    ),
    Metric("jct_p99", "p99 completion", Better.LOWER, "seconds", "99 of 100 jobs complete within this time."),
    Metric("max_n_sif", "Worst N·SIF", Better.LOWER, "count", "The most avoidable partial nodes at any moment."),
)  # fmt: skip


def with_ratios(runs: Sequence[RunView]) -> list[dict[str, float]]:
    """Each run's metrics, with its AJCT as a ratio to the bound's where a bound was run."""
    bound = next((run.summary["ajct"] for run in runs if run.scheduler in BOUNDS and "ajct" in run.summary), None)
    rows = []
    for run in runs:
        row = dict(run.summary)
        if bound and "ajct" in row:
            row.setdefault("ajct_ratio", row["ajct"] / bound)
        rows.append(row)
    return rows


def best(metric: Metric, runs: Sequence[RunView], rows: Sequence[Mapping[str, float]]) -> frozenset[int]:
    """Positions of the runs that no other run beats in this metric as it is written; bounds aside."""
    if metric.better is Better.NEITHER:
        return frozenset()
    field = {
        i: row[metric.key]
        for i, (run, row) in enumerate(zip(runs, rows, strict=True))
        if run.scheduler not in BOUNDS and metric.key in row and row[metric.key] == row[metric.key]
    }
    if len(field) < 2:
        return frozenset()
    top = min(field.values()) if metric.better is Better.LOWER else max(field.values())
    shown = written(metric, top)
    winners = frozenset(i for i, value in field.items() if written(metric, value) == shown)
    return frozenset() if len(winners) == len(field) else winners


def written(metric: Metric, value: float | None) -> str:
    """A value as tables write it."""
    if value is None or value != value:
        return "–"
    if metric.kind == "seconds":
        return duration(value)
    if metric.kind == "excess":
        return percent(value - 1)
    if metric.kind == "share":
        return percent(value, signed="")
    if metric.kind == "count":
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) < 0.1 else f"{value:.3f}"


def percent(value: float, signed: str = "+") -> str:
    """A share in per cent, with as many digits as it takes to see something."""
    digits = 1 if abs(value) >= 0.0995 else 2 if abs(value) >= 0.000995 else 3
    return f"{value * 100:{signed}.{digits}f} %"


def duration(seconds: float) -> str:
    """A time span for people: 41.3 s, 12 min 05 s, 3 h 06 min, 2 d 04 h."""
    sign, seconds = ("−", -seconds) if seconds < 0 else ("", seconds)
    if seconds < 59.95:
        return f"{sign}{seconds:.1f} s" if seconds else "0 s"
    whole = round(seconds)
    if whole < 3600:
        return f"{sign}{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{sign}{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{sign}{hours // 24} d {hours % 24:02d} h"
