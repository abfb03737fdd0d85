"""How each number beside the paper's is computed from our runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compass_abs.experiments.errors import StudyError
from compass_abs.experiments.frames import means
from compass_abs.experiments.rankings import BucketRow

if TYPE_CHECKING:
    import polars

    from compass_abs.experiments.output import StudyResult

Row = Mapping[str, Any]


def measure(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    """Our number for a row of the paper's table, as the page writes it."""
    kind = row["measure"]
    if kind not in _MEASURES:
        raise StudyError(f"the paper's table asks for measure {kind!r}; there are: {', '.join(_MEASURES)}")
    return _MEASURES[kind](row, known, content)


def _runs(row: Row, known: "Mapping[str, StudyResult]") -> "polars.DataFrame":
    """The runs that a row speaks of."""
    import polars as pl

    frame = known[row["study"]].runs.filter(pl.col("trace") == row["trace"])
    for column, value in row.get("where", {}).items():
        frame = frame.filter(pl.col(column).is_in(value if isinstance(value, list) else [value]))
    if frame.is_empty():
        raise StudyError(f"the paper's table: study {row['study']!r} has no run for {row['what']!r}")
    return frame


def _mean_of(frame: "polars.DataFrame", scheduler: str, metric: str) -> float:
    import polars as pl

    own = frame.filter(pl.col("scheduler") == scheduler)
    if own.is_empty():
        raise StudyError(f"the paper's table: {scheduler!r} did not run")
    value = means(own, ["scheduler"], [metric])[metric][0]
    return float("nan") if value is None else float(value)


def _field(row: Row, content: Mapping[str, Any]) -> list[str]:
    return [name for name in content["field"] if name not in row.get("without", ())]


def _lead(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    """The strongest baseline less the subject; AGU the other way round."""
    frame, metric = _runs(row, known), row["metric"]
    ours = _mean_of(frame, content["subject"], metric)
    theirs = {name: _mean_of(frame, name, metric) for name in _field(row, content)}
    best = max if metric == "agu" else min
    strongest = best(theirs, key=lambda name: theirs[name])
    lead = ours - theirs[strongest] if metric == "agu" else theirs[strongest] - ours
    return f"{_signed(lead, row['kind'])} ({strongest})"


def _band(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    """The subject's mean, or its range over some columns."""
    values = _values(row, known, content)
    low, high = _number(min(values), row["kind"]), _number(max(values), row["kind"])
    return low if low == high else f"{low} to {high}"


def _lowest(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    return _number(min(_values(row, known, content)), row["kind"])


def _spread(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    values = _values(row, known, content)
    return f"{max(values) / min(values) - 1:.3%} between the extremes"


def _values(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> list[float]:
    import polars as pl

    frame = _runs(row, known).filter(pl.col("scheduler") == row.get("scheduler", content["subject"]))
    found = means(frame, ["scheduler", *row["over"]], [row["metric"]])[row["metric"]].drop_nulls().to_list()
    return found or [float("nan")]


def _field_band(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    """The range of the baselines' means."""
    frame = _runs(row, known)
    values = {name: _mean_of(frame, name, row["metric"]) for name in _field(row, content)}
    there = {name: value for name, value in values.items() if value == value}
    if not there:
        return "–"
    low, high = min(there, key=lambda name: there[name]), max(there, key=lambda name: there[name])
    return f"{_number(there[low], row['kind'])} ({low}) to {_number(there[high], row['kind'])} ({high})"


def _below_bound(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    import polars as pl

    # Without anybody waiting there is no AFR.
    frame = _runs(row, known).filter(pl.col("scheduler") == content["subject"], pl.col("afr").is_not_null())
    kept = frame.filter(pl.col("afr") < 2 / pl.col("nodes"))
    return f"{len(kept)} of {len(frame)}"


def _buckets(row: Row, known: "Mapping[str, StudyResult]") -> tuple[Sequence[BucketRow], BucketRow]:
    rows = [each for each in known[row["study"]].rankings[row["ranking"]] if each.trace == row["trace"]]
    return rows, rows[-1]


def _pairs(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    rows, total = _buckets(row, known)
    count = sum(each.pairs for each in rows if each.bucket in row["buckets"])
    return f"{count} of {total.pairs} ({count / total.pairs:.1%})"


def _first(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    _, total = _buckets(row, known)
    return f"{total.share(row['metric']):.1%} of {total.pairs} ({total.alone[row['metric']]} alone)"


def _instance_share(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    """Shares of instance sizes, of the whole trace or a day of it."""
    from compass_abs.traces import day, read_trace
    from compass_abs.traces.composition import SizeClass, instance_shares

    trace = read_trace(row["trace"])
    part = day(trace, row["day"]) if "day" in row else trace
    shares = instance_shares(part.jobs, part.capacity)
    if row["size"] == "2-7":
        share = shares[SizeClass.FRIENDLY] + shares[SizeClass.UNFRIENDLY]
    else:
        share = shares[SizeClass(row["size"])]
    return f"{share:.3f}" if row.get("kind") == "number" else f"{share * 100:.2f} %"


def _signed(value: float, kind: str) -> str:
    if kind == "points":
        return f"{value * 100:+.2f} points"
    return f"{value:+,.0f} s" if abs(value) >= 10 else f"{value:+,.1f} s"


def _number(value: float, kind: str) -> str:
    if value != value:
        return "–"
    if kind == "seconds":
        return f"{value:,.0f} s" if value >= 100 else f"{value:.2f} s"
    if kind == "share":
        return f"{value:.1%}"
    if kind == "count":
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) < 0.1 else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


_MEASURES: dict[str, Callable[[Row, "Mapping[str, StudyResult]", Mapping[str, Any]], str]] = {
    "lead": _lead,
    "band": _band,
    "lowest": _lowest,
    "spread": _spread,
    "field_band": _field_band,
    "below_bound": _below_bound,
    "pairs": _pairs,
    "first": _first,
    "instance_share": _instance_share,
}
