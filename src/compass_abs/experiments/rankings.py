"""How often a scheduler is first, by how much of the day the workload composition condition held (Table 3).

A (day, η) pair counts for a scheduler in a metric when nobody in the field is better. Ties count for all who tie:
values are equal when they differ by less than a part in a billion. `alone` counts the pairs without a tie. Nothing is
better in AFR and AGU than that nobody ever waits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

from compass_abs.experiments.columns import BOUND
from compass_abs.experiments.errors import StudyError
from compass_abs.experiments.study import RankingSpec

if TYPE_CHECKING:
    import polars

HIGHER_IS_BETTER = ("agu", "utilisation", "wcc_coverage")
_EQUAL = 1e-9


@dataclass(frozen=True, slots=True)
class BucketRow:
    """A line of the ranking."""

    trace: str
    bucket: str
    pairs: int
    #: By metric: on how many pairs the subject is first, and first alone.
    first: Mapping[str, int]
    alone: Mapping[str, int]

    def share(self, metric: str) -> float:
        """Of the pairs, how many it leads."""
        return self.first[metric] / self.pairs if self.pairs else 0.0


def ranking(frame: "polars.DataFrame", spec: RankingSpec) -> list[BucketRow]:
    """The lines of the ranking: for each trace its buckets from ρ = 1 down, then all of it."""
    pairs = _pairs(frame, spec)
    rows = []
    for trace in dict.fromkeys(pair.trace for pair in pairs):
        own = [pair for pair in pairs if pair.trace == trace]
        for name, low, high in _buckets(spec.buckets):
            members = [pair for pair in own if low <= pair.coverage < high]
            if members:
                rows.append(_row(trace, name, members, spec.metrics))
        rows.append(_row(trace, "total", own, spec.metrics))
    return rows


@dataclass(frozen=True, slots=True)
class _Pair:
    trace: str
    coverage: float
    #: By metric: 0 behind, 1 tied for first, 2 first alone.
    place: Mapping[str, int]


def _pairs(frame: "polars.DataFrame", spec: RankingSpec) -> list[_Pair]:
    """Each (day, η) pair on which the subject and the whole field ran."""
    field = _field(frame, spec)
    runs: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = {}
    for row in frame.iter_rows(named=True):
        at = (row["trace"], row["day"], row["eta"], row["nodes"], row["queue"], row["cost"], row["pinned"])
        runs.setdefault(at, {})[row["scheduler"]] = row
    pairs = []
    for at, by_scheduler in runs.items():
        if any(name not in by_scheduler for name in (spec.subject, *field)):
            continue
        own = by_scheduler[spec.subject]
        place = {metric: _place(metric, own, [by_scheduler[name] for name in field]) for metric in spec.metrics}
        pairs.append(_Pair(at[0], own["wcc_coverage"], place))
    if not pairs:
        raise StudyError(f"ranking {spec.name!r}: {spec.subject} and its field never ran on the same day")
    return pairs


def _field(frame: "polars.DataFrame", spec: RankingSpec) -> list[str]:
    known = list(dict.fromkeys(frame["scheduler"]))
    for name in (spec.subject, *spec.field):
        if name not in known:
            raise StudyError(f"ranking {spec.name!r}: {name!r} did not run; these did: {', '.join(known)}")
    return [name for name in (spec.field or known) if name not in (spec.subject, BOUND)]


def _place(metric: str, own: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> int:
    mine = _badness(metric, own)
    best = min((_badness(metric, other) for other in others), default=inf)
    margin = _EQUAL * max(abs(mine), 1e-6) if isfinite(mine) else 0.0
    return 2 if mine < best - margin else 1 if mine <= best + margin else 0


def _badness(metric: str, run: Mapping[str, Any]) -> float:
    """The metric, such that less is better."""
    value = run[metric]
    if value is None:
        return -inf
    return -value if metric in HIGHER_IS_BETTER else float(value)


def _buckets(lower_ends: Sequence[float]) -> list[tuple[str, float, float]]:
    """ρ = 1, then the ranges below it. A coverage within rounding of 1 is 1."""
    ends = sorted(lower_ends, reverse=True)
    whole = 1 - 1e-12
    found = [("1.0", whole, float("inf"))]
    high, shown = whole, "1"
    for low in ends:
        found.append((f"[{low:g}, {shown})", low, high))
        high, shown = low, f"{low:g}"
    return found


def _row(trace: str, bucket: str, members: Sequence[_Pair], metrics: Sequence[str]) -> BucketRow:
    return BucketRow(
        trace,
        bucket,
        len(members),
        {metric: sum(pair.place[metric] > 0 for pair in members) for metric in metrics},
        {metric: sum(pair.place[metric] == 2 for pair in members) for metric in metrics},
    )
