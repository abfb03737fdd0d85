"""The figures of a study."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compass_abs.experiments.cell import Cell
from compass_abs.experiments.errors import StudyError
from compass_abs.experiments.frames import BOUND, means
from compass_abs.experiments.markdown import heading
from compass_abs.experiments.study import FigureSpec
from compass_abs.reporting.figures import FigureData, Panel, Point

if TYPE_CHECKING:
    import polars

_SERIES_TITLES = {
    "n_sif": "Avoidable partial nodes (N·SIF)",
    "utilisation": "GPU utilisation",
    "empty_nodes": "Empty nodes",
}


def figure_data(frame: "polars.DataFrame", spec: FigureSpec) -> FigureData:
    """What a study's figure shows: means over days, with the standard error where there are several."""
    chosen = _where(frame, spec)
    panels = []
    for title, part in _split(chosen, spec.panels):
        if spec.kind == "points":
            panels.append(_scatter(part, spec, title))
        else:
            panels += [_panel(part, spec, metric, title) for metric in spec.y]
    columns = len(spec.y) if spec.kind != "points" and len(spec.y) > 1 else 3
    return FigureData(spec.kind, panels, columns=columns, caption=spec.title)


def _where(frame: "polars.DataFrame", spec: FigureSpec) -> "polars.DataFrame":
    import polars as pl

    for column, value in spec.where.items():
        if column not in frame.columns:
            raise StudyError(f"figure {spec.name!r}: `where` names {column!r}, which is no column")
        wanted = value if isinstance(value, list) else [value]
        frame = frame.filter(pl.col(column).is_in(wanted))
    if frame.is_empty():
        raise StudyError(f"figure {spec.name!r}: no run has {dict(spec.where)}")
    return frame


def _split(frame: "polars.DataFrame", column: str | None) -> Iterator[tuple[str, "polars.DataFrame"]]:
    import polars as pl

    if column is None:
        yield "", frame
        return
    for value in dict.fromkeys(frame[column]):
        shown = value if isinstance(value, str) else f"{heading(column)} = {value:g}"
        yield shown, frame.filter(pl.col(column) == value)


def _panel(part: "polars.DataFrame", spec: FigureSpec, metric: str, title: str) -> Panel:
    by = ["scheduler"] if spec.x == "scheduler" else ["scheduler", spec.x]
    found = means(part, by, [metric])
    series: dict[str, list[Point]] = {}
    for row in found.iter_rows(named=True):
        if row[metric] is None or (row["scheduler"] == BOUND and metric in ("ajct_ratio", "ajct_above_bound")):
            continue
        x = "" if spec.x == "scheduler" else row[spec.x]
        series.setdefault(row["scheduler"], []).append(Point(x, row[metric], row[f"{metric}_error"]))
    name = f"{title}: {heading(metric)}" if title else heading(metric)
    return Panel(name, series, heading(spec.x), from_zero=spec.kind == "bars" and metric != "agu", log_x=spec.log_x)


def _scatter(part: "polars.DataFrame", spec: FigureSpec, title: str) -> Panel:
    """Each scheduler is a point: the metric `x` against the first of `y`."""
    found = means(part, ["scheduler"], [spec.x, spec.y[0]])
    series = {
        row["scheduler"]: [Point(row[spec.x], row[spec.y[0]], row[f"{spec.y[0]}_error"])]
        for row in found.iter_rows(named=True)
        if row[spec.y[0]] is not None
    }
    name = f"{title}: {heading(spec.y[0])}" if title else heading(spec.y[0])
    return Panel(name, series, heading(spec.x), log_x=spec.log_x)


def window_figure(cells: Sequence[Cell], results: Sequence[Mapping[str, Any]], most: int = 600) -> FigureData:
    """The case study: each scheduler's steps through the window, hours of the day below."""
    panels = []
    for key, title in _SERIES_TITLES.items():
        series: dict[str, list[Point]] = {}
        for cell, result in zip(cells, results, strict=True):
            steps = result["series"]
            hours = [time % 86_400 / 3600 for time in steps["times"]]
            points = [Point(x, y) for x, y in zip(hours, steps[key], strict=True)]
            series.setdefault(cell.scheduler, []).extend(_thinned(points, most))
        panels.append(Panel(title, series, "hour of the day"))
    return FigureData("steps", panels, columns=3)


def _thinned(points: list[Point], most: int) -> list[Point]:
    """Without steps that change nothing; of what is left, evenly as many as a figure can show."""
    kept = [p for i, p in enumerate(points) if i in (0, len(points) - 1) or p.y != points[i - 1].y]
    stride = max(1, -(-len(kept) // most))
    return kept[::stride]
