"""How `compass trace info` looks."""

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from compass_abs.traces.composition import DayLine, Summary

_BLOCKS = " ▁▂▃▄▅▆▇█"


def summary_tables(summary: "Summary") -> "Iterator[RenderableType]":
    """The parts of the page, top to bottom."""
    label = "  SYNTHETIC" if summary.synthetic else ""
    yield Text.assemble((summary.name, "bold cyan"), (label, "bold yellow"), f"  {summary.source}", overflow="fold")
    yield _facts(summary)
    yield _shares(summary)
    for note in summary.notes:
        yield Text(f"note: {note}", style="yellow")
    if summary.dropped:
        yield _dropped(summary)
    if summary.fleet:
        nodes = "; ".join(f"{n:,} × {gpus} {model}" for model, gpus, n in summary.fleet)
        yield Text(f"cluster of the publisher: {nodes}")


def day_table(lines: "Sequence[DayLine]") -> Table:
    """A row for each day."""
    # N at one η and no frame, so that the table fits 80 columns; --json has all three.
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for title in ("day", "date", "jobs", "GPUs", *lines[0].instance_shares, "N(0.90)", "WCC"):
        table.add_column(title, justify="right", no_wrap=True)
    for line in lines:
        shares = (_share(share) for share in line.instance_shares.values())
        size = f"{line.nodes['0.90']:,}"
        table.add_row(
            str(line.day), line.date, f"{line.jobs:,}", f"{line.gpus:,}", *shares, size, _share(line.wcc_coverage)
        )
    return table


def _share(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0%}" if value in (0.0, 1.0) else f"{value:.1%}"


def _facts(summary: "Summary") -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    per_day = summary.jobs_per_day
    quantiles = ", ".join(f"{name} {_seconds(value)}" for name, value in summary.duration_quantiles.items())
    first = f" from {summary.origin[:10]}" if summary.origin else ""
    for name, value in (
        ("jobs", f"{summary.jobs:,} of {summary.instances:,} instances, {summary.gpus:,} GPUs asked for"),
        (
            "gangs",
            f"{summary.gang_share_of_jobs:.1%} of jobs, the largest of {summary.largest_gang_instances} instances",
        ),
        ("days", f"{summary.days_with_jobs} with jobs, {summary.first_day} to {summary.last_day}{first}"),
        (
            "per day",
            f"{per_day['min']:,.0f} to {per_day['max']:,.0f} jobs, median {per_day['median']:,.0f}, "
            f"mean {per_day['mean']:,.1f}",
        ),
        ("by hour", f"{_sparkline(summary.arrivals_by_hour)}  (0 h to 23 h)"),
        ("durations", f"mean {_seconds(summary.duration_mean)}; {quantiles}"),
        ("GPU hours", f"{summary.gpu_hours:,.0f}" if summary.gpu_hours >= 10 else f"{summary.gpu_hours:.2g}"),
        ("demand", f"mean {summary.demand_mean_gpus:,.1f} GPUs, peak {summary.demand_peak_gpus:,} (nobody waits)"),
        ("N(η)", ", ".join(f"{n:,} at {eta}" for eta, n in summary.nodes.items()) + f" (nodes of {summary.capacity})"),
        ("WCC", _condition(summary)),
    ):
        table.add_row(Text(name, style="bold"), value)
    return table


def _condition(summary: "Summary") -> str:
    if summary.wcc_coverage is None:
        return f"says nothing of nodes of {summary.capacity}; a topology divides them (compass simulate --topology)"
    return (
        f"held {summary.wcc_coverage:.2%} of the time, throughout on {summary.days_wcc_throughout} of "
        f"{summary.days_with_jobs} days (nobody waits)"
    )


def _shares(summary: "Summary") -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, title_justify="left")
    table.add_column("instances of")
    whole = str(summary.capacity)
    titles = {"1": "1 GPU", "FF": "FF", "FUF": "FUF", "whole": f"{whole} GPUs"}
    for kind in summary.instance_shares:
        table.add_column(titles[kind], justify="right")
    table.add_row("share", *(f"{share:.2%}" for share in summary.instance_shares.values()))
    return table


def _dropped(summary: "Summary") -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("rows left out", justify="right")
    table.add_column("because")
    for reason, number in summary.dropped.items():
        table.add_row(f"{number:,}", reason)
    return table


def _sparkline(values: tuple[float, ...]) -> str:
    top = max(values) or 1.0
    return "".join(_BLOCKS[round(value / top * (len(_BLOCKS) - 1))] for value in values)


def _seconds(value: float) -> str:
    for limit, unit, name in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if value < limit:
            return f"{value / unit:.3g} {name}"
    return f"{value / 86_400:.3g} d"
