"""`compass serve-slurm`: the controller on a Slurm cluster."""

from pathlib import Path

import typer

_STATE = typer.Option(Path("compass-state"), help="Folder for everything; all nodes must see it under this path.")


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("serve-slurm")(serve_slurm)


def serve_slurm(
    partition: str = typer.Option("compass", help="Partition whose nodes COMPASS fills."),
    inbox: str = typer.Option("compass-inbox", help="Partition with State=DOWN that users sbatch to; '' for none."),
    mode: str = typer.Option("execute", help="recommend: show every move, make none. execute: make them."),
    scheduler: str = typer.Option("compass-abs", "--scheduler", "-s", help="As `compass schedulers` lists them."),
    queue: str = typer.Option("fifo", help="Who is tried next."),
    state: Path = _STATE,
    port: int = typer.Option(7077, min=0, max=65535, help="Of the API and the dashboard; 0 for any."),
) -> None:
    """Run the controller on a Slurm cluster: it starts, watches and migrates gangs in a partition."""
    import getpass
    import signal
    import threading

    from compass_abs.controller.client import Client, Submitter
    from compass_abs.controller.reconcile import Conduct, Config
    from compass_abs.controller.server import Settings, configure_logging, in_background
    from compass_abs.engines.slurm import SlurmEngine
    from compass_abs.engines.slurm.commands import SlurmCommands
    from compass_abs.engines.slurm.intake import Intake
    from compass_abs.model import CompassError
    from compass_abs.schedulers.registry import parse_choice

    if mode not in tuple(Conduct):
        raise CompassError(f"--mode is {mode!r}, expected one of: {', '.join(Conduct)}")
    name, parameters = parse_choice(scheduler)
    config = Config(scheduler=name, parameters=parameters, queue=queue, conduct=Conduct(mode))
    config.check()
    state = state.absolute()
    settings = Settings(state, port=port, config=config)
    configure_logging(as_json=False)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: over.set())
    engine = SlurmEngine(state / "slurm", partition)

    def say(text: str) -> None:
        typer.echo(text, err=True)

    intake = Intake(SlurmCommands(), inbox, state / "inbox", getpass.getuser(), say) if inbox else None
    with in_background(settings, engine) as url, Client(url) as client:
        say(f"listening on {url}/; partition {partition}" + (f", jobs from {inbox}" if inbox else ""))
        jobs = Submitter(client)
        while not over.wait(1.0):
            if intake is not None:
                try:
                    intake.look(jobs)
                except CompassError as error:
                    say(f"inbox: {error}")
