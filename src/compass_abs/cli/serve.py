"""`compass serve`: the controller."""

import contextlib
import json
import threading
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from compass_abs.engines.protocol import Engine

if TYPE_CHECKING:
    from compass_abs.controller.demonstration import Verdict


class Mode(StrEnum):
    """What the controller does about migrations."""

    recommend = "recommend"
    execute = "execute"


class EngineName(StrEnum):
    """Whose hands it has. Slurm and Kubernetes have commands of their own."""

    local = "local"
    ray = "ray"


_MODE = typer.Option(Mode.execute, help="recommend: show every move, make none. execute: make them.")
_ENGINE = typer.Option(
    EngineName.local,
    help="local: virtual nodes of this machine. ray: the nodes of a Ray cluster. For Slurm: compass serve-slurm.",
)
_STATE = typer.Option(Path("compass-state"), help="Folder for journal, logs and checkpoints.")
_TOKEN_FILE = typer.Option(None, help="File with the token; made anew where there is none.")


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("serve")(serve)
    app.command("schema")(schema)
    app.command("live")(live)


def serve(
    mode: Mode = _MODE,
    scheduler: str = typer.Option("compass-abs", "--scheduler", "-s", help="As `compass schedulers` lists them."),
    queue: str = typer.Option("fifo", help="Who is tried next."),
    engine: EngineName = _ENGINE,
    ray_address: str = typer.Option("auto", help="Of the Ray cluster; auto: as RAY_ADDRESS or `ray start` here says."),
    nodes: int = typer.Option(4, min=1, max=1000, help="Virtual nodes on this machine."),
    gpus: int = typer.Option(8, min=1, max=16, help="GPU slots of each."),
    state: Path = _STATE,
    host: str = typer.Option("127.0.0.1", help="Address to listen on; beyond loopback a token is needed."),
    port: int = typer.Option(7077, min=1, max=65535, help="Of the API and the dashboard."),
    token_file: Path | None = _TOKEN_FILE,
    warm: bool = typer.Option(False, help="Keep a process with torch imported on each node, for short migrations."),
    log_json: bool = typer.Option(False, help="Log a JSON object a line."),
) -> None:
    """Run the controller: it starts, watches and migrates jobs on virtual nodes, or on a Ray cluster."""
    from compass_abs.controller.reconcile import Conduct, Config
    from compass_abs.controller.server import Settings, serve
    from compass_abs.schedulers.registry import parse_choice

    name, parameters = parse_choice(scheduler)
    config = Config(scheduler=name, parameters=parameters, queue=queue, conduct=Conduct(mode.value))
    settings = Settings(state.absolute(), host, port, config, token_file, log_json=log_json)
    if engine is EngineName.ray:
        serve(settings, lambda: _ray_engine(state.absolute(), ray_address))
    else:
        serve(settings, lambda: _local_engine(state.absolute(), nodes, gpus, warm))


def _local_engine(state: Path, nodes: int, gpus: int, warm: bool) -> Engine:
    from compass_abs.engines.local import LocalEngine, Warmth
    from compass_abs.model import CAPACITIES, CompassError

    if gpus not in CAPACITIES:
        raise CompassError(f"--gpus is {gpus}, expected one of: {', '.join(map(str, CAPACITIES))}")
    return LocalEngine(state / "engine", nodes, gpus, warmth=Warmth.STANDBY if warm else Warmth.COLD)


def _ray_engine(state: Path, address: str) -> Engine:
    from compass_abs.engines.ray import RayEngine

    return RayEngine(state / "ray", address)


def live(
    scheduler: str = typer.Option("compass-abs", "--scheduler", "-s", help="As `compass schedulers` lists them."),
    port: int = typer.Option(7077, min=0, max=65535, help="Of the dashboard; 0 for any."),
    cold: bool = typer.Option(False, help="Start every process anew instead of forking a warm one."),
    stay: bool = typer.Option(False, "--stay", help="Go on serving the dashboard afterwards, until you interrupt it."),
    as_json: bool = typer.Option(False, "--json", help="Print the verdict as JSON."),
) -> None:
    """Bring the live system up, train a small Phys-Mix on it, move some of it, and check that nothing changed."""
    from compass_abs.controller.demonstration import demonstrate, live_system, require_torch
    from compass_abs.controller.reconcile import Config
    from compass_abs.controller.server import configure_logging
    from compass_abs.engines.local import Warmth
    from compass_abs.schedulers.registry import parse_choice

    require_torch()
    configure_logging(as_json=False, level="warning")
    name, parameters = parse_choice(scheduler)
    warmth = Warmth.COLD if cold else Warmth.STANDBY
    typer.echo("bringing up 4 nodes of 8 GPU slots" + ("" if cold else ", torch imported on each"), err=True)
    with live_system(None, port, Config(scheduler=name, parameters=parameters), warmth=warmth) as client:
        typer.echo(f"dashboard: {client.url}/", err=True)
        verdict = demonstrate(client, lambda text: typer.echo(f"  {text}", err=True))
        _print_verdict(verdict, as_json)
        if stay:
            typer.echo(f"the dashboard stays at {client.url}/ until you press Ctrl-C", err=True)
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()
    if not verdict.good:
        raise typer.Exit(1)


def _print_verdict(verdict: "Verdict", as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({**asdict(verdict), "good": verdict.good}, indent=2))
        return
    again = f", {verdict.restarts} restarts" if verdict.restarts else ""
    typer.echo(f"{verdict.done} of {verdict.jobs} jobs done, {verdict.migrations} migrations{again}")
    same = len(verdict.compared) - len(verdict.differing)
    typer.echo(f"losses identical to an undisturbed run: {same} of {len(verdict.compared)} migrated jobs")


def schema() -> None:
    """Print the JSON Schema of a job file, for editors."""
    from compass_abs.controller.job_spec import job_schema

    typer.echo(json.dumps(job_schema(), indent=2))
