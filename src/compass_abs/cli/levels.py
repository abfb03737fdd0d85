"""What each level of a topology looked like, as tables: under one scheduler, or under several."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compass_abs.simulation import LevelSummary

_HEADINGS = ("AFR", "most N·SIF", "worst domain", "empty, mean", "condition held")


def print_levels(levels: "Sequence[LevelSummary]") -> None:
    """Prints a line for each level."""
    _print("level", ("nodes", *_HEADINGS), {level.name: (f"{level.nodes:,}", *_figures(level)) for level in levels})


def print_levels_side_by_side(found: "Mapping[str, Sequence[LevelSummary]]") -> None:
    """Prints a table for each level, with a line for each scheduler."""
    for levels in zip(*found.values(), strict=True):
        rows = {title: _figures(level) for title, level in zip(found, levels, strict=True)}
        _print(f"{levels[0].nodes:,} {levels[0].name}s", _HEADINGS, rows)


def _figures(level: "LevelSummary") -> tuple[str, ...]:
    from compass_abs.reporting.metrics import percent

    afr = "–" if level.afr is None else f"{level.afr:.4f}"
    worst = "" if level.max_domain_sif is None else f"{level.max_domain_sif:.3f}"
    return (afr, f"{level.max_n_sif}", worst, f"{level.empty:.1f}", percent(level.condition, ""))


def _print(first: str, headings: Sequence[str], rows: Mapping[str, Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    table.add_column(first, no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right")
    for name, figures in rows.items():
        table.add_row(name, *figures)
    console = Console(highlight=False)
    console.print()
    console.print(table)
