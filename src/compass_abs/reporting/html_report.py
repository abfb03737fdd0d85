"""One self-contained HTML page of a comparison: works offline, on a phone, and on paper."""

import json
import os
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

from compass_abs import __version__
from compass_abs.reporting.comparison import SERIES, Comparison, ReportError, RunView, StepSeries
from compass_abs.reporting.encoding import TICK, encode_events, encode_jobs, encode_series, ticks
from compass_abs.reporting.metrics import BOUNDS, METRICS, best, with_ratios, written
from compass_abs.reporting.palette import looks
from compass_abs.reporting.verdict import sentences
from compass_abs.topology import Topology

#: What people still mail and browsers still open at once.
SIZE_LIMIT = 5_000_000
_SCRIPTS = ("codec.js", "replay.js", "cluster.js", "chart.js", "app.js")
_VISIBLE_AT_FIRST = 4
_MARGIN = 4_000


def write_report(
    comparison: Comparison,
    path: str | os.PathLike[str],
    size_limit: int = SIZE_LIMIT,
    progress: Callable[[int], None] | None = None,
) -> Path:
    """Writes the page, all of it or nothing, and says where; `progress` is that of `render_report`."""
    target = Path(path)
    text = render_report(comparison, size_limit, progress)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(target.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(target)
    return target


def render_report(
    comparison: Comparison, size_limit: int = SIZE_LIMIT, progress: Callable[[int], None] | None = None
) -> str:
    """The page as text. Placements that would make it larger than the limit are left out, and a note says so.

    `progress` is called with how many encodings are done, of the two that each run has.
    """
    parts = count(1)

    def tell() -> None:
        if progress is not None:
            progress(next(parts))

    left, right = _sides(comparison.runs)
    payload = _payload(comparison, (left, right), tell)
    notes = list(comparison.notes)
    # What the page takes without any placements, and a little for what they add to it besides themselves.
    room = size_limit - len(_page(comparison, payload, notes).encode("utf-8")) - _MARGIN
    hidden = _add_placements(comparison, payload, (left, right), room, tell)
    if hidden:
        names = ", ".join(comparison.runs[i].title for i in hidden)
        notes.append(f"To keep this page small it has no pictures of the cluster under {names}.")
    return _page(comparison, payload, notes)


def _sides(runs: Sequence[RunView]) -> tuple[int, int]:
    """Whom to put side by side: who is kept waiting by fragmentation the longest, and who completes jobs soonest."""
    drawn = [i for i, run in enumerate(runs) if run.events]
    if not drawn:
        return (0, 0)
    able = [i for i in drawn if runs[i].scheduler not in BOUNDS] or drawn
    fastest = min(able, key=lambda i: (runs[i].summary.get("ajct", 0.0), i))
    others = [i for i in able if i != fastest] or [fastest]
    return max(others, key=lambda i: (runs[i].summary.get("blocked_fragmentation", 0.0), -i)), fastest


def _payload(comparison: Comparison, sides: tuple[int, int], tell: Callable[[], None]) -> dict[str, Any]:
    """What the page's script reads, without the placements."""
    origin, end = comparison.span
    quanta = {key: _quantum(comparison.runs, key) for key in SERIES}
    known = looks([run.scheduler for run in comparison.runs])
    runs: list[dict[str, Any]] = []
    for run in comparison.runs:
        look = known[run.scheduler]
        series = {
            key: encode_series(run.series[key], origin, quanta[key]) for key in SERIES if key in run.series
        }  # fmt: skip
        runs.append(
            {"title": run.title, "color": look.color, "dash": look.dash, "series": series, "events": None},
        )
        tell()
    return {
        "capacity": comparison.capacity,
        "nodes": comparison.nodes,
        "rack": 1 if comparison.topology is None else comparison.topology.levels[0].usable,
        "names": _names(comparison.topology),
        "epoch": None if comparison.epoch is None else comparison.epoch + origin,
        "tick": TICK,
        "span": [0, ticks(end, origin)],
        "jobs": {
            "ids": [job.id for job in comparison.jobs],
            "packed": encode_jobs(comparison.jobs, origin),
            "panels": [job.panels for job in comparison.jobs] if comparison.topology is not None else None,
        },
        "quanta": quanta,
        "series": [
            {"key": key, "title": title, "meaning": meaning, "share": key == "utilisation"}
            for key, (title, meaning) in SERIES.items()
            if any(key in run.series for run in comparison.runs)
        ],
        "sides": sides,
        "visible": _visible_at_first(comparison.runs, sides),
        "start": ticks(_moment(comparison, *sides), origin),
        "view": [ticks(t, origin) for t in _view(comparison)],
        "runs": runs,
    }


def _names(topology: Topology | None) -> dict[str, Any]:
    """What a node and a domain of nodes are called; and all levels, with the members of each."""
    if topology is None or topology.levels[0].usable == 1:
        return {"node": "node", "rack": "", "levels": []}
    levels = [(level.name, level.usable) for level in topology.levels]
    return {"node": topology.panel_name, "rack": topology.levels[0].name, "levels": levels}


def _add_placements(
    comparison: Comparison, payload: dict[str, Any], sides: tuple[int, int], room: int, tell: Callable[[], None]
) -> list[int]:
    """Puts the placements of as many runs as fit into the payload; says whose had to stay out."""
    origin, runs = comparison.span[0], payload["runs"]
    order = sorted(range(len(runs)), key=lambda i: (i not in sides, i))
    hidden = []
    for i in order:
        run = comparison.runs[i]
        tell()
        if not run.events:
            continue
        _check_events(comparison, run)
        text = encode_events(run.events, origin)
        if len(text) > room:
            hidden.append(i)
            continue
        runs[i]["events"] = text
        room -= len(text)
    drawn = [i for i in order if runs[i]["events"] is not None]
    if drawn:
        payload["sides"] = [side if side in drawn else drawn[0] for side in sides]
    return sorted(hidden)


def _check_events(comparison: Comparison, run: RunView) -> None:
    """Raises unless every event speaks of a job and a node that exist."""
    for event in run.events:
        job = getattr(event, "job", 0)
        nodes = getattr(event, "nodes", ()) or (getattr(event, "target", getattr(event, "node", 0)),)
        if not 0 <= job < len(comparison.jobs) or not all(0 <= node < comparison.nodes for node in nodes):
            raise ReportError(
                f"run {run.title!r}: {event} names a job or node that the comparison of "
                f"{len(comparison.jobs)} jobs and {comparison.nodes} nodes doesn't have"
            )


def _quantum(runs: Sequence[RunView], key: str) -> float:
    """The step in which a series is stored: whole numbers where all are whole, else thousandths."""
    whole = all(float(v).is_integer() for run in runs if key in run.series for v in run.series[key].values)
    return 1.0 if whole and key != "utilisation" else 0.001


def _visible_at_first(runs: Sequence[RunView], sides: Sequence[int]) -> list[int]:
    """A few lines to begin with; more would hide one another."""
    drawn = [i for i, run in enumerate(runs) if run.series]
    wanted = [i for i in sides if i in drawn]
    wanted += [i for i in drawn if runs[i].scheduler in ("compass-abs", "fft")]
    return list(dict.fromkeys(wanted or drawn))[:_VISIBLE_AT_FIRST]


def _view(comparison: Comparison) -> tuple[float, float]:
    """What the charts show at first: all but the tail in which nobody waits any more."""
    start, end = comparison.span
    last = start
    for run in comparison.runs:
        queue = run.series.get("queue")
        if queue is not None:
            last = max([last, *(t for t, v in zip(queue.times[1:], queue.values, strict=False) if v > 0)])
    return (start, min(end, start + (last - start) * 1.05)) if last > start else (start, end)


def _moment(comparison: Comparison, left: int, right: int) -> float:
    """When to open the page: while somebody waits on the left, where it is more fragmented than the right by most."""
    ours, theirs = comparison.runs[left].series, comparison.runs[right].series
    if any(key not in series for key in ("n_sif", "queue") for series in (ours, theirs)):
        return comparison.span[0]
    start, moment, most = comparison.span[0], comparison.span[0], 0.0
    for time, value in zip(ours["n_sif"].times, ours["n_sif"].values, strict=True):
        if value > most and _value_at(ours["queue"], time) > 0:
            more = value - _value_at(theirs["n_sif"], time)
            if more > most:
                moment, most = time, more
    return max(start, moment)


def _value_at(series: StepSeries, time: float) -> float:
    i = bisect_right(series.times, time) - 1
    return series.values[i] if i >= 0 else 0.0


def _page(comparison: Comparison, payload: dict[str, Any], notes: Sequence[str]) -> str:
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    source = files("compass_abs.reporting") / "templates"
    style = (source / "report.css").read_text(encoding="utf-8")
    parts = [(source / name).read_text(encoding="utf-8") for name in _SCRIPTS]
    script = "'use strict';\n(() => {\n" + "\n".join(parts) + "})();\n"
    rows = with_ratios(comparison.runs)
    judged = sentences(comparison.runs)
    metrics = [metric for metric in METRICS if any(metric.key in row for row in rows)]
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        (source / "report.html").read_text(encoding="utf-8")
    )
    return template.render(
        version=__version__,
        title=comparison.title,
        subtitle=comparison.subtitle,
        verdict=judged[0],
        verdict_more=" ".join(judged[1:]),
        notes=notes,
        metrics=metrics,
        rows=_rows(comparison.runs, rows, metrics),
        job_count=f"{len(comparison.jobs):,}",
        cluster=comparison.cluster,
        names=payload["names"],
        has_racks=payload["rack"] > 1,
        has_pictures=any(run["events"] is not None for run in payload["runs"]),
        has_series=bool(payload["series"]),
        settings=list(comparison.settings.items()),
        run_settings=[
            (run.title, ", ".join(f"{k} {v}" for k, v in run.settings.items()))
            for run in comparison.runs
            if run.settings
        ],
        dropped=comparison.dropped,
        series_words=[(spec["title"], spec["meaning"]) for spec in payload["series"]],
        style=Markup(style),  # ours, not a user's
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        payload=Markup(_script_safe(payload)),
    )


def _rows(runs: Sequence[RunView], rows: Sequence[dict[str, float]], metrics: Sequence[Any]) -> list[dict[str, Any]]:
    """The lines of the comparison table."""
    known = looks([run.scheduler for run in runs])
    winners = {metric.key: best(metric, runs, rows) for metric in metrics}
    return [
        {
            "title": run.title,
            "color": known[run.scheduler].color,
            "dash": " ".join(f"{d * 2:g}" for d in known[run.scheduler].dash),
            "bound": run.scheduler in BOUNDS,
            "cells": [
                {"text": written(metric, rows[i].get(metric.key)), "best": i in winners[metric.key]}
                for metric in metrics
            ],
        }
        for i, run in enumerate(runs)
    ]


def _script_safe(payload: dict[str, Any]) -> str:
    """JSON that can't end the script element it stands in, whatever the names in it."""
    text = json.dumps(payload, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    """The one script and style that the page's security policy lets run."""
    return "sha256-" + b64encode(sha256(text.encode("utf-8")).digest()).decode("ascii")
