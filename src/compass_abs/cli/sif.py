"""`compass sif`: how fragmented a cluster is, and how much of that could be avoided."""

import json
import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from compass_abs.fragmentation import Survey


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("sif")(sif)


def sif(
    snapshot: str = typer.Argument("-", help="JSON or CSV (docs/snapshots.md); - for standard input.", metavar="FILE"),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """Measure the fragmentation of a cluster, split into what its scheduler could avoid and what it could not."""
    from compass_abs.fragmentation import survey
    from compass_abs.snapshots import load_snapshot

    if snapshot == "-" and sys.stdin.isatty():
        typer.echo("compass: reading a snapshot from the terminal; Ctrl-D ends it", err=True)
    surveys = [survey(state) for state in load_snapshot(snapshot).values()]
    if as_json:
        typer.echo(json.dumps({"pools": [each.as_dict() for each in surveys]}, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for number, each in enumerate(surveys):
        if number:
            console.print()
        for part in _shown(each):
            console.print(part)


def _shown(pool: "Survey") -> list["RenderableType"]:
    from rich.text import Text

    out = f", {pool.nodes_not_up} more not up" if pool.nodes_not_up else ""
    title = Text.assemble(
        ("Pool ", "bold"),
        (pool.pool, "bold cyan"),
        f": {_nodes(pool.nodes)} of {pool.capacity} GPUs{out}; {pool.free_gpus} of {pool.gpus} GPUs free",
    )
    return [title, _measures(pool), _gangs(pool)]


def _measures(pool: "Survey") -> "RenderableType":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in ("", "nodes", "share"):
        table.add_column(header, justify="left" if not header else "right")
    table.add_column("what it means", style="dim")
    table.add_row(
        "partial (F)", str(pool.partial_nodes), f"{pool.gross:.4f}", "hold something, but are not full", style="bold"
    )
    table.add_row(
        "  unavoidable (F*)",
        str(pool.unavoidable_partial_nodes),
        f"{pool.inherent:.4f}",
        "partial in the best packing of what runs",
    )
    table.add_row(
        "  avoidable (SIF)",
        str(pool.avoidable_partial_nodes),
        f"{pool.sif:.4f}",
        "the scheduler's doing",
        style="bold yellow" if pool.avoidable_partial_nodes else "bold green",
    )
    if pool.pinned_instances:
        table.add_row(
            "  reclaimable",
            str(pool.reclaimable_partial_nodes),
            f"{pool.reclaimable_sif:.4f}",
            f"by moves around the {_plural(pool.pinned_instances, 'pinned instance')}",
        )
    table.add_row("used", str(pool.used_nodes), "", f"the best packing uses {pool.fewest_used_nodes}")
    holds = "holds" if pool.wcc_holds else "does not hold"
    table.add_row("WCC margin", f"{pool.wcc_margin:+d}", "", f"1-GPU instances to spare: it {holds}")
    return table


def _gangs(pool: "Survey") -> "RenderableType":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    headers = ["largest gang of", "fits now", "after moves", "best packing", "free GPUs it can't use now"]
    if not pool.pinned_instances:
        headers.remove("after moves")
    for header in headers:
        table.add_column(header, justify="right")
    for gang in pool.largest_gangs:
        cells = [f"{gang.gpus}-GPU instances", str(gang.now), str(gang.repacked)]
        if pool.pinned_instances:
            cells.insert(2, str(gang.repacked_around_pinned))
        table.add_row(*cells, f"{gang.unusable_free_ratio:.0%}", style="bold" if gang.repacked > gang.now else "")
    return table


def _nodes(count: int) -> str:
    return _plural(count, "node")


def _plural(count: int, thing: str) -> str:
    return f"{count} {thing}" + ("" if count == 1 else "s")
