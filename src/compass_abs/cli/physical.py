"""`compass experiment physical`: the paper's physical deployment, on this machine."""

import json
from pathlib import Path

import typer

_OUT = typer.Option(Path("runs/physical"), help="Where the results go.")
_FORCE = typer.Option(False, "--force", help="Replace an earlier experiment that is there already.")
_SCHEDULERS = typer.Option(
    ["compass-abs", "gfs", "fgd", "cafgd", "mcg", "drr", "fft"], "--scheduler", "-s", help="Once for each."
)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    experiment = typer.Typer(help="Experiments on the live system.", no_args_is_help=True)
    experiment.callback()(_experiment)
    experiment.command("physical")(physical)
    app.add_typer(experiment, name="experiment")


def _experiment() -> None:
    """Experiments on the live system."""


def physical(
    scheduler: list[str] = _SCHEDULERS,
    jobs: int = typer.Option(75, min=1, help="Only the first so many of the trace."),
    speed: float = typer.Option(30.0, min=0.1, help="How many times as fast as in the trace jobs arrive and train."),
    seed: int = typer.Option(1, min=0, help="Seed of the trace and of the training."),
    cold: bool = typer.Option(False, help="Start every process anew instead of forking a warm one."),
    out: Path = _OUT,
    force: bool = _FORCE,
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of tables."),
) -> None:
    """Train Phys-Mix on 4 × 8 slots under each scheduler, the same arrivals for all, and replay it in the simulator."""
    from compass_abs.controller.demonstration import require_torch
    from compass_abs.controller.physical import check_plan, run_physical, save, shortened, tables
    from compass_abs.controller.server import configure_logging
    from compass_abs.engines.local import Warmth
    from compass_abs.simulation import Existing
    from compass_abs.traces.synthesis import synthesize
    from compass_abs.traces.workloads import workload
    from compass_abs.training.phys_mix import tasks

    require_torch()
    check_plan(scheduler, out, Existing.REPLACE if force else Existing.REFUSE)
    configure_logging(as_json=False, level="warning")
    mix = shortened(list(tasks(synthesize(workload("phys-mix"), seed=seed).jobs, speed=speed, seed=seed)), jobs)
    warmth = Warmth.COLD if cold else Warmth.STANDBY
    runs = []
    for name in scheduler:
        runs.append(run_physical(mix, name, warmth, lambda text: typer.echo(text, err=True)))
        save(runs, out)
    typer.echo(json.dumps([run.as_dict() for run in runs], indent=2) if as_json else tables(runs).rstrip())
    typer.echo(f"reports: {(out / 'live.html').resolve()} and {(out / 'replayed.html').resolve()}", err=True)
