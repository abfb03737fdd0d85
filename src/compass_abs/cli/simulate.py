"""`compass simulate`: one scheduler on one trace."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compass_abs.cli import simulation_options as options

if TYPE_CHECKING:
    from compass_abs.model import ClusterState
    from compass_abs.simulation import Setup, Summary
    from compass_abs.simulation.workload import Workload


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("simulate")(simulate)


def simulate(
    trace: options.TraceArgument,
    scheduler: Annotated[str, typer.Option(help="compass schedulers lists them; parameters as in fft:period=600.")]
    = "compass-abs",
    day: options.DayOption = None,
    window: options.WindowOption = None,
    eta: options.EtaOption = 0.9,
    nodes: options.NodesOption = None,
    topology: options.TopologyOption = None,
    queue: options.QueueOption = "fifo",
    cost: options.CostOption = 8.0,
    cost_model: options.CostModelOption = "paper",
    checkpoint: options.CheckpointOption = None,
    restore: options.RestoreOption = None,
    checkpoint_period: options.PeriodOption = 3600.0,
    node_events: options.NodeEventsOption = None,
    settings: options.SetOption = None,
    out: Annotated[Path | None, typer.Option(help="Write the run directory there.")] = None,
    force: options.ForceOption = False,
    format_name: options.FormatOption = None,
    skip_bad_rows: options.SkipOption = False,
    any_order: options.AnyOrderOption = False,
    capacity: options.CapacityOption = None,
    refill_tail: options.TailOption = False,
    seed: options.SeedOption = 0,
    check: options.CheckOption = False,
    as_json: options.JsonOption = False,
    quiet: options.QuietOption = False,
) -> None:  # fmt: skip
    """Replay a trace under one scheduler and print the paper's metrics, and what people ask besides."""
    from compass_abs.cli.levels import print_levels
    from compass_abs.cli.progress import progress_bar, saving_bar
    from compass_abs.schedulers.registry import parse_choice
    from compass_abs.simulation import Checks, Existing, LevelMeter, bound, has_bound, ratios, record, replay
    from compass_abs.simulation.results import check_target
    from compass_abs.simulation.setup import DOMAIN_BOUND

    existing = Existing.REPLACE if force else Existing.REFUSE
    if out is not None:
        check_target(out, existing)
    name, parameters = parse_choice(scheduler)
    parameters |= options.parse_settings(settings, [name])[name]
    domains = options.load_topology(topology)
    workload = options.load_workload(
        trace, format_name, skip_bad_rows, refill_tail, seed, day, window, domains, quiet or as_json, any_order,
        capacity,
    )  # fmt: skip
    setup = options.make_setup(
        workload, name, parameters, topology=domains, nodes=nodes, eta=eta, queue=queue, cost=cost,
        cost_model=cost_model, checkpoint=checkpoint, restore=restore,
        checkpoint_period=checkpoint_period, node_events=node_events,
    )  # fmt: skip
    checks = Checks.EVERY_EVENT if check else Checks.NEVER
    meters: list[LevelMeter] = []

    def watch(state: "ClusterState") -> LevelMeter:
        meters.append(LevelMeter(state))
        return meters[0]

    # The oracle places nothing anywhere, so its levels look like nothing in particular.
    observe = watch if domains is not None and name != DOMAIN_BOUND else None
    with progress_bar(name, len(workload.jobs), quiet or as_json) as progress:
        if out is None:
            summary = replay(
                workload.jobs, setup, history=workload.history, observe=observe, checks=checks, progress=progress
            )
        else:
            result = record(
                workload.jobs, setup, history=workload.history, about=workload.about, observe=observe, checks=checks,
                progress=progress,
            )  # fmt: skip
            summary = result.summary
    if out is not None:
        with saving_bar(result, name, quiet or as_json) as progress:
            result.save(out, existing, progress)
    over: dict[str, float] = {}
    if has_bound(setup):
        with progress_bar("bound", len(workload.jobs), quiet or as_json) as progress:
            over = dict(ratios(summary, bound(workload.jobs, setup, progress=progress)))
    if as_json:
        shown = {
            "trace": dict(workload.about),
            "setup": setup.as_dict(),
            "summary": summary.as_dict(),
            "ratio_to_bound": over,
            **({"levels": [level.as_dict() for level in meters[0].summary()]} if meters else {}),
        }
        typer.echo(json.dumps(shown, indent=2, ensure_ascii=False, default=str))
        return
    _print(workload, setup, summary, over)
    if meters:
        print_levels(meters[0].summary())
    if out is not None and not quiet:
        typer.echo(
            f"\nwritten to {out}: config.yaml, summary.json, jobs, events and timeseries.parquet, trace.perfetto.json"
        )


def _print(workload: "Workload", setup: "Setup", summary: "Summary", over: dict[str, float]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from compass_abs.reporting.metrics import duration, percent

    console = Console(highlight=False)
    console.print(Text(f"{setup.scheduler} on {workload.trace.name}", "bold"))
    console.print(f"{summary.jobs:,} jobs, {setup.cluster}, queue {setup.queue}, cost {setup.cost.model}")
    for note in options.caveats(workload):
        console.print(Text(f"note: {note}", "yellow"))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, show_header=False, padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")

    def ratio(name: str) -> str:
        return f"{over[name]:.4f} × the bound" if name in over else ""

    s = summary
    afr = "–" if s.afr is None else f"{s.afr:.4f}"
    waited = f"in {duration(s.peak_seconds)} of somebody waiting" if s.peak_seconds else "nobody waits"
    agu = "–" if s.agu is None else percent(s.agu, "")
    rows = [
        ("AJCT, average completion", f"{s.ajct:,.1f} s", ratio("ajct")),
        ("completion p50", duration(s.jct_p50), ratio("jct_p50")),
        ("completion p95", duration(s.jct_p95), ratio("jct_p95")),
        ("completion p99", duration(s.jct_p99), ratio("jct_p99")),
        ("waiting, mean", f"{s.queueing_mean:,.1f} s", ratio("queueing_mean")),
        ("waiting p95", duration(s.queueing_p95), ""),
        ("waiting p99", duration(s.queueing_p99), ""),
        ("AFR, average fragmentation", afr, f"most avoidable partial nodes: {s.max_n_sif}"),
        ("AGU, average GPU use", agu, waited),
        ("blocked by fragmentation", duration(s.blocked_fragmentation), "enough GPUs free, but scattered"),
        ("blocked by capacity", duration(s.blocked_capacity), ""),
        ("WCC coverage (ρ)", percent(s.wcc_coverage, ""), "composition condition held"),
        ("moves per job", f"{s.migrations_per_job:.3f}", f"{s.migrations:,} instances, {s.pauses:,} pauses"),
        ("disrupted GPU time", duration(s.disrupted_gpu_seconds), "pause × all GPUs of the gang"),
        ("makespan", duration(s.makespan), ratio("makespan")),
    ]
    if s.blocked_policy:
        rows.append(("held by the scheduler", duration(s.blocked_policy), ""))
    if s.requeues or s.redone_gpu_seconds:
        rows.append(("lost with a node", f"{s.requeues:,}", f"{duration(s.redone_gpu_seconds)} GPU time redone"))
    for row in rows:
        table.add_row(*row)
    console.print(table)
