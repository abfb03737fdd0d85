"""How each number beside the paper's is computed from our runs."""

from collections.abc import Callable, Mapping, Sequence
from math import sqrt
from statistics import stdev
from typing import TYPE_CHECKING, Any

from compass_abs.experiments.errors import StudyError
from compass_abs.experiments.frames import having, means
from compass_abs.experiments.rankings import HIGHER_IS_BETTER, BucketRow
from compass_abs.experiments.workloads import chosen_days, day_of_work, load_trace
from compass_abs.reporting.palette import name_of
from compass_abs.traces.composition import SizeClass, instance_shares

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
    where = {"trace": row["trace"]} if "trace" in row else {}
    frame = having(known[row["study"]].runs, {**where, **row.get("where", {})})
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
    """The strongest baseline less the subject, AGU the other way round, and the standard error over days."""
    frame, metric, ours = _runs(row, known), row["metric"], content["subject"]
    theirs = {name: _mean_of(frame, name, metric) for name in _field(row, content)}
    strongest = (max if metric in HIGHER_IS_BETTER else min)(theirs, key=lambda name: theirs[name])
    lead = theirs[strongest] - _mean_of(frame, ours, metric)
    return f"{_signed(_oriented(lead, metric), row['kind'])}{_give_or_take(frame, row, (ours, strongest))}" + (
        f" ({name_of(strongest)})"
    )


def _oriented(lead: float, metric: str) -> float:
    """Positive where the subject is ahead."""
    return -lead if metric in HIGHER_IS_BETTER else lead


def _give_or_take(frame: "polars.DataFrame", row: Row, pair: tuple[str, str]) -> str:
    """The standard error of the mean of the days' differences; nothing for a single day."""
    metric = row["metric"]
    days: dict[tuple[Any, ...], dict[str, float]] = {}
    for run in frame.iter_rows(named=True):
        if run["scheduler"] in pair and run[metric] is not None:
            at = (run["trace"], run["day"], run["eta"], run["queue"], run["cost"])
            days.setdefault(at, {})[run["scheduler"]] = run[metric]
    gaps = [by_name[pair[0]] - by_name[pair[1]] for by_name in days.values() if len(by_name) == 2]
    if len(gaps) < 2:
        return ""
    error = stdev(gaps) / sqrt(len(gaps))
    return (
        f" ± {error * 100:.2f}"
        if row["kind"] == "points"
        else f" ± {error:,.0f}"
        if error >= 10
        else f" ± {error:,.1f}"
    )


def _leads(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    """In how many panels of a figure, a trace or setting by a metric each, the subject's mean is the best."""
    frame, field = _runs(row, known), _field(row, content)
    panels = won = 0
    for _, part in frame.group_by(row["over"], maintain_order=True):
        for metric in row["metrics"]:
            ours = _mean_of(part, content["subject"], metric)
            leads = [_oriented(_mean_of(part, name, metric) - ours, metric) for name in field]
            panels += 1
            won += not any(lead < 0 for lead in leads)
    return f"{won} of {panels}"


def _band(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    """The subject's mean, or its range over some columns."""
    values = _values(row, known, content)
    low, high = _number(min(values), row["kind"]), _number(max(values), row["kind"])
    return low if low == high else f"{low} to {high}"


def _lowest(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    return _number(min(_values(row, known, content)), row["kind"])


def _spread(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    values = _values(row, known, content)
    return f"{_percent(max(values) / min(values) - 1, 3)} between the extremes"


def _values(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> list[float]:
    import polars as pl

    frame = _runs(row, known).filter(pl.col("scheduler") == row.get("scheduler", content["subject"]))
    found = means(frame, ["scheduler", *row["over"]], [row["metric"]])[row["metric"]].drop_nulls().to_list()
    return found or [float("nan")]


def _field_band(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    """The range of the baselines' means, in each part of the runs by itself."""
    frame = _runs(row, known)
    parts = [part for _, part in frame.group_by(row["over"], maintain_order=True)] if row.get("over") else [frame]
    values = [(_mean_of(part, name, row["metric"]), name) for part in parts for name in _field(row, content)]
    there = [(value, name) for value, name in values if value == value]
    if not there:
        return "–"
    low, high = min(there), max(there)
    if _number(low[0], row["kind"]) == _number(high[0], row["kind"]):
        return _number(low[0], row["kind"])
    return " to ".join(f"{_number(value, row['kind'])} ({name_of(name)})" for value, name in (low, high))


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
    return f"{count} of {total.pairs} ({_percent(count / total.pairs)})"


def _first(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    _, total = _buckets(row, known)
    return f"{_percent(total.share(row['metric']))} of {total.pairs} ({total.alone[row['metric']]} alone)"


def _instance_share(row: Row, known: "Mapping[str, StudyResult]", content: Mapping[str, Any]) -> str:
    """Shares of instance sizes among the jobs that a study replays."""
    workload = next(each for each in known[row["study"]].study.workloads if each.name == row["trace"])
    trace = load_trace(workload)
    jobs = [job for day in chosen_days(workload) for job in day_of_work(workload, day).jobs]
    shares = instance_shares(jobs, trace.capacity)
    if row["size"] == "2-7":
        share = shares[SizeClass.FRIENDLY] + shares[SizeClass.UNFRIENDLY]
    else:
        share = shares[SizeClass(row["size"])]
    return f"{share:.3f}" if row.get("kind") == "number" else _percent(share, 2)


def bucket_cells(
    row: Row, known: "Mapping[str, StudyResult]", metrics: Sequence[str]
) -> tuple[str, Mapping[str, str]] | None:
    """Of a bucket of Table 3: our pairs, and on how many of them the subject is first; None where it is empty."""
    rows, _ = _buckets(row, known)
    found = next((each for each in rows if each.bucket == row["bucket"]), None)
    if found is None:
        return None
    return str(found.pairs), {metric: f"{found.first[metric]} ({_percent(found.share(metric))})" for metric in metrics}


def _signed(value: float, kind: str) -> str:
    if kind == "points":
        return f"{value * 100:+.2f} points"
    return f"{value:+,.0f} s" if abs(value) >= 10 else f"{value:+,.1f} s"


def _percent(share: float, digits: int = 1) -> str:
    """As the paper writes it, so that both stand side by side alike."""
    return f"{share * 100:.{digits}f} %"


def _number(value: float, kind: str) -> str:
    if value != value:
        return "–"
    if kind == "seconds":
        return f"{value:,.0f} s" if value >= 100 else f"{value:.2f} s"
    if kind == "share":
        return _percent(value)
    if kind == "count":
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) < 0.1 else f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


_MEASURES: dict[str, Callable[[Row, "Mapping[str, StudyResult]", Mapping[str, Any]], str]] = {
    "lead": _lead,
    "leads": _leads,
    "band": _band,
    "lowest": _lowest,
    "spread": _spread,
    "field_band": _field_band,
    "below_bound": _below_bound,
    "pairs": _pairs,
    "first": _first,
    "instance_share": _instance_share,
}
