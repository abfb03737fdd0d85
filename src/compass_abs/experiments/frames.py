"""Results as tables: a row a run, then means over days."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from compass_abs.experiments.cell import Cell
from compass_abs.experiments.columns import BOUND
from compass_abs.experiments.errors import StudyError
from compass_abs.experiments.study import TableSpec

if TYPE_CHECKING:
    import polars


def runs_frame(cells: Sequence[Cell], results: Sequence[Mapping[str, Any]]) -> "polars.DataFrame":
    """A row for each run: what it was, its metrics, and its AJCT as a multiple of the bound's. No measured times."""
    import polars as pl

    bounds = {
        _cluster(cell, result): result["summary"]["ajct"]
        for cell, result in zip(cells, results, strict=True)
        if cell.scheduler == BOUND
    }
    rows = []
    for cell, result in zip(cells, results, strict=True):
        summary = dict(result["summary"])
        least = bounds.get(_cluster(cell, result))
        row = cell.columns() | {"nodes": result["nodes"]} | summary | dict(result.get("window", {}))
        row["ajct_ratio"] = summary["ajct"] / least if least else None
        row["ajct_above_bound"] = summary["ajct"] / least - 1 if least else None
        row["pauses_per_job"] = summary["pauses"] / summary["finished"] if summary["finished"] else 0.0
        rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


def _cluster(cell: Cell, result: Mapping[str, Any]) -> tuple[Any, ...]:
    """What the bound depends on."""
    return (cell.workload.name, cell.day, result["nodes"], cell.queue)


def having(frame: "polars.DataFrame", where: Mapping[str, Any]) -> "polars.DataFrame":
    """The rows whose columns have these values; a list stands for any of its members, 8 for 8.0."""
    import polars as pl

    for column, value in where.items():
        if column not in frame.columns:
            raise StudyError(f"`where` names {column!r}, which is no column")
        wanted = pl.Series(value if isinstance(value, list) else [value]).cast(frame.schema[column])
        frame = frame.filter(pl.col(column).is_in(wanted.implode()))
    return frame


def means(frame: "polars.DataFrame", by: Sequence[str], values: Sequence[str]) -> "polars.DataFrame":
    """Means over everything that `by` doesn't name, each day weighing the same, and their standard errors."""
    import polars as pl

    for column in (*by, *values):
        if column not in frame.columns:
            raise StudyError(f"there is no column {column!r}; there are: {', '.join(frame.columns)}")
    spread = [
        (pl.col(value).std() / pl.col(value).count().cast(pl.Float64).sqrt()).fill_null(0.0).alias(f"{value}_error")
        for value in values
    ]
    averages = [pl.col(value).cast(pl.Float64).mean() for value in values]
    return frame.group_by(by, maintain_order=True).agg(pl.len().alias("runs"), *averages, *spread)


def table(frame: "polars.DataFrame", spec: TableSpec) -> "polars.DataFrame":
    """The table that a study asks for."""
    found = means(frame, spec.by, spec.values)
    return found.select(*spec.by, "runs", *spec.values)
