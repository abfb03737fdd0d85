"""`compass shadow`: what a scheduler would have done with a cluster's jobs, against what really happened."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compass_abs.cli.audit import (
    Context,
    Every,
    GpuLabel,
    GpuResource,
    Kubernetes,
    Pause,
    PoolLabel,
    Slurm,
    kubernetes_options,
    look_at_kubernetes,
)

if TYPE_CHECKING:
    from compass_abs.audit import Observation
    from compass_abs.audit.shadow import ShadowReport

_MOST_ROWS = 10


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("shadow")(shadow)


def shadow(
    state: Annotated[
        Path, typer.Argument(metavar="STATE", help="File that keeps what was seen; an existing one is continued.")
    ],
    kubernetes: Kubernetes = False,
    context: Context = "",
    slurm: Slurm = False,
    recorded: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="PATH",
            help="Recorded observations instead: a folder of files named by time, or JSON lines.",
        ),
    ] = None,
    every: Every = 60.0,
    hours: Annotated[
        float,
        typer.Option(min=0.0, max=8784.0, help="How long to watch a live cluster, from the first look in STATE on."),
    ] = 24.0,
    scheduler: Annotated[
        str, typer.Option(help="Who is in charge in the shadow, as NAME[:KEY=VALUE,...].")
    ] = "compass-jit",
    queue: Annotated[
        str, typer.Option(help="In which order it takes waiting jobs (compass simulate --help).")
    ] = "fifo",
    assume_movable: Annotated[
        bool, typer.Option("--assume-movable", help="Let it move all that isn't fixed, declared or not.")
    ] = False,
    pause: Pause = 8.0,
    gpu_resource: GpuResource = None,
    gpu_label: GpuLabel = None,
    pool_label: PoolLabel = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Follow a cluster without touching it, and report what another scheduler would have done better or worse.

    With none of --kubernetes, --slurm and --from, reports on what STATE holds so far.
    """
    from compass_abs.audit.journal import Journal
    from compass_abs.audit.shadow import ShadowOptions, compare
    from compass_abs.model import CompassError
    from compass_abs.schedulers.registry import parse_choice

    name, parameters = parse_choice(scheduler)
    options = kubernetes_options(gpu_resource or [], gpu_label or [], pool_label or [])
    if kubernetes + slurm + (recorded is not None) > 1:
        raise CompassError("give --kubernetes, --slurm or --from: one of them")
    if context and not kubernetes:
        raise CompassError("--context goes with --kubernetes")
    if recorded is not None:
        from compass_abs.audit.recording import observations_of

        _note(state, observations_of(recorded, options), str(recorded))
        history = Journal.read(state)
    elif kubernetes or slurm:
        from compass_abs.audit.live import ask_slurm

        def look(now: float) -> "Observation":
            return look_at_kubernetes(context, options, now) if kubernetes else ask_slurm(now)

        _watch(state, look, every, hours * 3600)
        history = Journal.read(state)
    elif not state.exists():
        raise CompassError(f"{state}: there is nothing to report on yet; give --kubernetes, --slurm or --from")
    else:
        history = Journal.read(state)
    settings = ShadowOptions(name, tuple(parameters.items()), queue, assume_movable, pause)
    report = compare(history, settings)
    if as_json:
        typer.echo(json.dumps(report.as_dict(), indent=2, ensure_ascii=False))
    else:
        _show(report)


def _note(state: Path, observations: "Iterable[tuple[float, Observation]]", source: str) -> None:
    """Notes what is newer than what the file holds."""
    from contextlib import closing

    from compass_abs.audit.journal import Journal

    with closing(Journal(state, source)) as journal:
        for time, observation in observations:
            if not journal.history.times or time > journal.history.times[-1]:
                journal.observe(observation, time)


def _watch(state: Path, look: "Callable[[float], Observation]", every: float, seconds: float) -> None:
    """Looks again and again; a look that fails is reported and not the end, unless it is the first of all."""
    import time
    from contextlib import closing

    from compass_abs.audit.journal import Journal
    from compass_abs.model import CompassError

    with closing(Journal(state, "live")) as journal:
        seen = journal.history.times
        # A watch that was interrupted goes on, and ends when it would have ended.
        left = seconds - (max(0.0, time.time() - seen[0]) if seen else 0.0)
        until = time.monotonic() + left
        end = time.strftime("%Y-%m-%d %H:%M", time.localtime(time.time() + max(0.0, left)))
        typer.echo(f"compass: watching until {end}, every {every:g} s; Ctrl-C ends it with a report", err=True)
        try:
            while True:
                begun = time.monotonic()
                try:
                    now = time.time()
                    journal.observe(look(now), now)
                except CompassError as error:
                    if not seen:
                        raise
                    typer.echo(f"compass: {error}; trying again in {every:g} s", err=True)
                wait = max(0.0, begun + every - time.monotonic())
                if time.monotonic() + wait > until:
                    return
                time.sleep(wait)
        except KeyboardInterrupt:
            typer.echo("compass: stopped watching; the report so far:", err=True)


def _show(report: "ShadowReport") -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    hours = (report.end - report.begin) / 3600
    console.print(
        Text.assemble(
            (report.options.scheduler, "bold cyan"),
            f" in charge for {hours:,.1f} h ({report.observations:,} observations), against what really happened",
        )
    )
    really, shadow = report.waits()
    console.print(
        Text(
            f"{len(report.jobs):,} jobs came or waited: {len(report.earlier):,} would have started earlier, "
            f"{len(report.later):,} later, {len(report.only_shadow):,} only in the shadow, "
            f"{len(report.only_really):,} only really. Mean wait {_span(really)} really, {_span(shadow)} in the shadow."
        )
    )
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in ("pool", "partly filled nodes", "avoidable (N·SIF)", "moves", "of jobs", "GPU-seconds", "requeued"):
        table.add_column(header, justify="left" if header == "pool" else "right")
    for pool in report.pools:
        table.add_row(
            Text(pool.pool),
            f"{pool.really_partial:.2f} → {pool.shadow_partial:.2f}",
            f"{pool.really_avoidable:.2f} → {pool.shadow_avoidable:.2f}",
            f"{pool.moves:,}",
            f"{pool.jobs_moved:,}",
            f"{pool.gpu_seconds:,.0f}",
            f"{pool.requeued:,}",
        )
    console.print(table)
    for title, jobs in (("earlier", report.earlier), ("later", report.later)):
        if not jobs:
            continue
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for header in (f"started {title}", "wants", "waited really", "in the shadow"):
            table.add_column(header, justify="left" if header.startswith("started") else "right")
        for job in jobs[:_MOST_ROWS]:
            waits = (_span((job.really or 0.0) - job.submitted), _span((job.shadow or 0.0) - job.submitted))
            table.add_row(Text(job.job), f"{job.instances} × {job.gpus}", *waits)
        console.print(table)
    for caveat in report.caveats:
        console.print(Text(caveat, style="dim"))


def _span(seconds: float) -> str:
    if abs(seconds) < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if abs(seconds) < 7200 else f"{seconds / 3600:.1f} h"
