"""`compass audit`: a read-only look at a running cluster."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from compass_abs.audit import Audit, Observation, PoolAudit
    from compass_abs.audit.kubernetes import KubernetesOptions

Files = Annotated[
    list[str] | None,
    typer.Argument(
        help="kubectl's or Slurm's JSON, or a snapshot (docs/snapshots.md); - for standard input.",
        metavar="FILE",
    ),
]
Kubernetes = Annotated[bool, typer.Option("--kubernetes", help="Ask the cluster of kubectl's current context.")]
Context = Annotated[str, typer.Option(metavar="NAME", help="With --kubernetes: another context.")]
Slurm = Annotated[bool, typer.Option("--slurm", help="Ask the Slurm cluster that this machine belongs to.")]
GpuResource = Annotated[
    list[str] | None, typer.Option(help="Kubernetes: a resource that counts whole GPUs (repeatable).")
]
GpuLabel = Annotated[
    list[str] | None, typer.Option(help="Kubernetes: a node label that names the GPU model (repeatable).")
]
PoolLabel = Annotated[
    list[str] | None, typer.Option(help="Kubernetes: a node label that keeps nodes apart (repeatable).")
]
#: Longer than a day nobody would call it a pause; and infinity is no number in JSON.
Pause = Annotated[
    float,
    typer.Option(
        min=0.0, max=86400.0, metavar="SECONDS", help="Seconds that a move pauses a job, where it doesn't say itself."
    ),
]
Every = Annotated[
    float, typer.Option(min=1.0, max=86400.0, metavar="SECONDS", help="Seconds between two looks at a live cluster.")
]
AssumeMovable = Annotated[
    bool, typer.Option("--assume-movable", help="Plan as if all could be moved that isn't fixed, declared or not.")
]
_COLOURS = {"fits": "green", "fragmentation": "yellow", "capacity": "red", "policy": "magenta"}
_MOST_ROWS = 40
_MOST_MOVES = 12


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("audit")(audit)


def audit(
    files: Files = None,
    kubernetes: Kubernetes = False,
    context: Context = "",
    slurm: Slurm = False,
    assume_movable: AssumeMovable = False,
    pause: Pause = 8.0,
    plans: Annotated[
        int | None, typer.Option(min=0, help="How often to look for moves; by the cluster's size if not given.")
    ] = None,
    tidy: Annotated[bool, typer.Option("--tidy", help="Look for the moves that tidy up in large pools, too.")] = False,
    gpu_resource: GpuResource = None,
    gpu_label: GpuLabel = None,
    pool_label: PoolLabel = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a self-contained page as well.")] = None,
) -> None:
    """Say what is fragmented, who waits because of it, and the cheapest moves that would help. Changes nothing."""
    from compass_abs.audit import audit as look
    from compass_abs.audit.audit import AuditOptions, Movability

    observation = observe(files, kubernetes, context, slurm, (gpu_resource or [], gpu_label or [], pool_label or []))
    movability = Movability.ASSUMED if assume_movable else Movability.DECLARED
    found = look(observation, AuditOptions(movability, pause, plans, tidy))
    if html is not None:
        from compass_abs.audit.page import write_page

        write_page(found, html)
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    _show(console, found)
    if html is not None:
        console.print(f"Page: {html}", markup=False)


def observe(
    files: list[str] | None,
    kubernetes: bool,
    context: str,
    slurm: bool,
    names: tuple[list[str], list[str], list[str]],
) -> "Observation":
    """The cluster that the command line means."""
    import time

    from compass_abs.audit import AuditError, load_observation
    from compass_abs.audit.live import ask_slurm

    options = kubernetes_options(*names)
    if kubernetes + slurm + bool(files) > 1:
        raise AuditError("give files, or --kubernetes, or --slurm: one of them")
    if context and not kubernetes:
        raise AuditError("--context goes with --kubernetes")
    if kubernetes:
        return look_at_kubernetes(context, options, time.time())
    if slurm:
        return ask_slurm(time.time())
    if not files and sys.stdin.isatty():
        raise AuditError("give files, or --kubernetes, or --slurm, or pipe something in")
    return load_observation(files or ["-"], options)


def look_at_kubernetes(context: str, options: "KubernetesOptions", now: float) -> "Observation":
    """Through kubectl, which knows every way in; without one, by asking the API server itself."""
    import shutil
    from contextlib import closing

    from compass_abs.audit.live import ask_kubernetes

    if shutil.which("kubectl") is not None:
        return ask_kubernetes(context or None, options, now)
    from compass_abs.engines.kubernetes.client import Client
    from compass_abs.engines.kubernetes.looking import look

    with closing(Client.connect(context or None)) as client:
        return look(client, options, now)


def kubernetes_options(resources: list[str], gpu_labels: list[str], pool_labels: list[str]) -> "KubernetesOptions":
    """What differs between clusters, where the command line says so."""
    from compass_abs.audit.kubernetes import KubernetesOptions

    usual = KubernetesOptions()
    return KubernetesOptions(
        tuple(resources) or usual.resources, tuple(gpu_labels) or usual.gpu_labels, tuple(pool_labels)
    )


def _show(console: "Console", found: "Audit") -> None:
    from rich.text import Text

    from compass_abs.audit.words import verdict_in_words, waiting_in_words

    console.print(Text(verdict_in_words(found), style="bold"))
    console.print(Text(waiting_in_words(found)))
    for pool in found.pools:
        console.print()
        _show_pool(console, pool)
    if found.verdicts:
        console.print()
        _show_waiting(console, found)
    for title, remarks in (("Held where it is", found.fixed), ("Left out", found.left_out)):
        for remark in remarks:
            console.print(Text(f"{title}: {remark}", style="dim"))
    if found.untried:
        console.print(Text(f"No moves were sought for {len(found.untried)} waiting jobs (--plans)", style="dim"))


def _show_pool(console: "Console", pool: "PoolAudit") -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from compass_abs.audit.words import blame_in_words, gangs_of_interest, plan_in_words, plural

    seen = pool.survey
    away = f", {seen.nodes_not_up} more not up" if seen.nodes_not_up else ""
    console.print(
        Text.assemble(
            ("Pool ", "bold"),
            (pool.name, "bold cyan"),
            f": {plural(seen.nodes, 'node')} of {seen.capacity} GPUs{away}; "
            f"{seen.free_gpus:,} of {seen.gpus:,} GPUs free",
        )
    )
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in ("partly filled nodes", "number", "share"):
        table.add_column(header, justify="left" if header.startswith("partly") else "right")
    table.add_column("whose doing", style="dim")
    table.add_row("all (F)", f"{seen.partial_nodes:,}", f"{seen.gross:.4f}", "", style="bold")
    marks = {"sizes": " (F*)", "placement": " (SIF)" if pool.blame.placement == seen.avoidable_partial_nodes else ""}
    for name, nodes, meaning in blame_in_words(pool):
        share = nodes / seen.nodes if seen.nodes else 0.0
        style = "yellow" if name == "placement" and nodes else ""
        table.add_row(f"  {name}{marks.get(name, '')}", f"{nodes:,}", f"{share:.4f}", meaning, style=style)
    console.print(table)
    gangs = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in ("largest gang of", "fits now", "after moves", "best packing"):
        gangs.add_column(header, justify="right")
    for gang in gangs_of_interest(pool):
        row = (f"{gang.now:,}", f"{gang.repacked_around_pinned:,}", f"{gang.repacked:,}")
        gangs.add_row(f"{gang.gpus}-GPU instances", *row, style="bold" if gang.repacked > gang.now else "")
    console.print(gangs)
    console.print(
        Text(
            f"SIF {seen.sif:.4f}; used nodes {seen.used_nodes:,}, of which a better packing would free "
            f"{seen.avoidable_used_nodes:,}; {pool.fixed_gpus:,} GPUs are fixed, {pool.undeclared_gpus:,} not "
            "declared movable",
            style="dim",
        )
    )
    # The moves that are listed are those of the first sentence; tidying up comes second where jobs can be helped.
    for number, line in enumerate(plan_in_words(pool)):
        console.print(Text(line))
        if number == 0:
            _show_moves(console, pool)


def _show_moves(console: "Console", pool: "PoolAudit") -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from compass_abs.audit.words import moves_in_words

    moves = moves_in_words(pool)
    if not moves:
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in ("move", "GPUs", "from", "to"):
        table.add_column(header, justify="right" if header == "GPUs" else "left", overflow="fold")
    for move in moves[:_MOST_MOVES]:
        table.add_row(*(Text(word) for word in move))
    console.print(table)
    if len(moves) > _MOST_MOVES:
        console.print(Text(f"{len(moves) - _MOST_MOVES} more moves: --json", style="dim"))


def _show_waiting(console: "Console", found: "Audit") -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from compass_abs.audit.words import because_in_words

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in ("waiting job", "wants", "waits for"):
        table.add_column(header, justify="right" if header == "wants" else "left")
    table.add_column("because", overflow="fold")
    table.add_column("GPU-s", justify="right")
    for verdict in found.verdicts[:_MOST_ROWS]:
        job = verdict.job
        answer = str(verdict.answer)
        cost = f"{verdict.fit.gpu_seconds:,.0f}" if verdict.fit is not None and verdict.fit.moves else ""
        name = job.id + (f" ×{job.copies}" if job.copies > 1 else "")
        because = because_in_words(found, verdict)
        shapes = " + ".join(str(shape) for shape in job.shapes)
        table.add_row(Text(name), shapes, Text(answer, style=_COLOURS[answer]), Text(because), cost)
    console.print(table)
    if len(found.verdicts) > _MOST_ROWS:
        console.print(Text(f"{len(found.verdicts) - _MOST_ROWS} more: --json", style="dim"))
