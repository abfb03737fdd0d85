"""Tables as Markdown."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from compass_abs.experiments.rankings import BucketRow
from compass_abs.reporting.palette import name_of

if TYPE_CHECKING:
    import polars

_SHARES = (
    "agu",
    "utilisation",
    "window_utilisation",
    "window_fragmentation_share",
    "window_heads_of_8",
    "wcc_coverage",
)
_NAMES = {
    "ajct": "AJCT (s)", "ajct_ratio": "AJCT / bound", "ajct_above_bound": "AJCT above bound", "afr": "AFR",
    "agu": "AGU", "migrations_per_job": "moves per job", "pauses_per_job": "pauses per job", "max_n_sif": "max N·SIF",
    "blocked_fragmentation": "blocked by fragmentation (s)", "blocked_capacity": "blocked by capacity (s)",
    "queueing_mean": "waiting (s)", "wcc_coverage": "ρ", "eta": "η", "cost": "c (s)", "nodes": "N",
    "disrupted_gpu_seconds": "disrupted GPU-seconds", "delay_mean": "delay per job (s)", "pinned": "pinned jobs",
    "window_n_sif": "N·SIF", "window_max_n_sif": "max N·SIF", "window_blocked": "blocked (s)",
    "window_blocked_fragmentation": "by fragmentation (s)", "window_blocked_capacity": "by capacity (s)",
    "window_fragmentation_share": "share by fragmentation", "window_heads_of_8": "blocked heads of whole nodes",
}  # fmt: skip


def is_share(column: str) -> bool:
    """Whether a column is written in per cent."""
    return column in _SHARES or column in ("ajct_above_bound", "pinned")


def heading(column: str) -> str:
    """How people read a column's name."""
    return _NAMES.get(column, column.replace("window_", "").replace("_", " "))


def written(column: str, value: Any) -> str:
    """A value of that column as a table writes it."""
    if value is None:
        return "–"
    if column == "scheduler":
        return name_of(str(value))
    if not isinstance(value, float):
        return str(value)
    if value != value:
        return "–"
    if column == "ajct_above_bound":
        return f"{value:.3%}"
    if column in _SHARES or column == "pinned":
        return f"{value:.1%}"
    if column in ("eta", "cost"):
        return f"{value:g}"
    if column in ("afr", "migrations_per_job", "pauses_per_job", "ajct_ratio"):
        return f"{value:.4f}"
    return f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def markdown_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with its first column to the left and the others to the right."""
    lines = ["| " + " | ".join(headings) + " |", "|---|" + "---:|" * (len(headings) - 1)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def frame_as_markdown(frame: "polars.DataFrame") -> str:
    """All rows of a table of means."""
    columns = frame.columns
    rows = [[written(column, value) for column, value in zip(columns, row, strict=True)] for row in frame.iter_rows()]
    return markdown_table([heading(column) for column in columns], rows)


def ranking_as_markdown(rows: Sequence[BucketRow]) -> str:
    """Firsts by bucket, in the layout of the paper's Table 3; how many of them alone in brackets."""
    metrics = list(rows[0].first) if rows else []
    headings = ["trace", "ρ", "pairs", *(heading(metric).removesuffix(" (s)") for metric in metrics)]
    lines = []
    for row in rows:
        cells = [
            f"{row.first[metric]} ({row.share(metric):.1%}; {row.alone[metric]} alone)" for metric in metrics
        ]  # fmt: skip
        lines.append([row.trace, row.bucket, str(row.pairs), *cells])
    return markdown_table(headings, lines)
