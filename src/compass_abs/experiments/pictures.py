"""The figures of a study."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compass_abs.experiments.cell import Cell
from compass_abs.experiments.columns import BOUND, RATIOS
from compass_abs.experiments.errors import StudyError
from compass_abs.experiments.frames import having, means
from compass_abs.experiments.markdown import heading, is_share
from compass_abs.experiments.rankings import HIGHER_IS_BETTER
from compass_abs.experiments.study import FigureSpec
from compass_abs.reporting.figures import FigureData, Panel, Point

if TYPE_CHECKING:
    import polars

#: What bars from zero on would show as equal.
_NEAR_ONE = ("agu", "utilisation", "wcc_coverage", "ajct_ratio")
_SERIES_TITLES = {
    "n_sif": "Avoidable partial nodes (N·SIF)",
    "utilisation": "GPU utilisation",
    "empty_nodes": "Empty nodes",
}


def figure_data(frame: "polars.DataFrame", spec: FigureSpec) -> FigureData:
    """What a study's figure shows: means over days, with the standard error where there are several."""
    draw = _scatter if spec.kind == "points" else _panel
    chosen = _where(frame, spec)
    panels = [draw(part, spec, metric, title) for title, part in _split(chosen, spec.panels) for metric in spec.y]
    # A row for each part, where a row holds its metrics.
    count = len(spec.y)
    return FigureData(spec.kind, panels, columns=2 if count == 4 else count if count > 1 else 3, caption=spec.title)


def _where(frame: "polars.DataFrame", spec: FigureSpec) -> "polars.DataFrame":
    found = having(frame, spec.where)
    if found.is_empty():
        raise StudyError(f"figure {spec.name!r}: no run has {dict(spec.where)}")
    return found


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
        if row[metric] is None or (row["scheduler"] == BOUND and metric in RATIOS):
            continue
        x = "" if spec.x == "scheduler" else row[spec.x]
        series.setdefault(row["scheduler"], []).append(Point(x, row[metric], row[f"{metric}_error"]))
    return Panel(
        _title(title, metric),
        series,
        heading(spec.x),
        from_zero=spec.kind == "bars" and metric not in _NEAR_ONE,
        log_x=spec.log_x,
        share=is_share(metric),
        x_share=is_share(spec.x),
    )


def _scatter(part: "polars.DataFrame", spec: FigureSpec, metric: str, title: str) -> Panel:
    """Each scheduler is a point: the metric `x` against one of `y`."""
    found = means(part, ["scheduler"], [spec.x, metric])
    series = {
        row["scheduler"]: [Point(row[spec.x], row[metric], row[f"{metric}_error"])]
        for row in found.iter_rows(named=True)
        if row[metric] is not None
    }
    return Panel(
        _title(title, metric),
        series,
        heading(spec.x),
        log_x=spec.log_x,
        share=is_share(metric),
        x_share=is_share(spec.x),
        better="higher" if metric in HIGHER_IS_BETTER else "lower",
        bounds=(BOUND,),
    )


def _title(part: str, metric: str) -> str:
    return f"{part}: {heading(metric)}" if part else heading(metric)


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
        panels.append(Panel(title, series, "time of the day", share=is_share(key)))
    return FigureData("steps", panels, columns=3)


def _thinned(points: list[Point], most: int) -> list[Point]:
    """Without steps that change nothing; of what is left, evenly as many as a figure can show."""
    kept = [p for i, p in enumerate(points) if i in (0, len(points) - 1) or p.y != points[i - 1].y]
    stride = max(1, -(-len(kept) // most))
    return kept[::stride]
