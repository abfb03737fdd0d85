"""The `compass` command: parses, calls a room, prints. One file a group of commands."""

import sys
from importlib import import_module

import typer

from compass_abs import __version__
from compass_abs.model import CompassError

#: Modules of this room; each has `register(app)`. Import what is heavy inside the commands, not at their top.
MODULES: tuple[str, ...] = (
    "sif",
    "simulate",
    "compare",
    "trace",
    "experiments",
    "schedulers",
    "train_drr",
    "explain",
    "audit",
    "shadow",
    "advise",
    "serve",
    "serve_kubernetes",
    "serve_slurm",
    "jobs",
    "physical",
)

app = typer.Typer(
    name="compass",
    help="A GPU-cluster scheduler that never lets fragmentation keep a training job waiting.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"compass {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print it."),
) -> None:
    """Schedule, simulate, explain and run gangs of GPU instances."""


for _module in MODULES:
    import_module(f"compass_abs.cli.{_module}").register(app)


def run() -> None:
    """Runs the command line; a mistake of the user's ends in one plain line and exit code 2, never in a traceback."""
    try:
        app()
    except CompassError as error:
        typer.echo(f"compass: {error}", err=True)
        sys.exit(2)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        typer.echo(f"compass: {error.filename}: {error.strerror}", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("compass: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)


if __name__ == "__main__":
    run()
