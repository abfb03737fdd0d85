"""The `compass` command: parses, calls a room, prints. One file a group of commands."""

import sys
from importlib import import_module

import typer
from typer.models import TyperInfo

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

#: The headings under which `compass --help` lists commands, in the order in which people come to need them.
HEADINGS: dict[str, tuple[str, ...]] = {
    "Look at a cluster": ("audit", "explain", "sif", "shadow", "advise"),
    "Replay a trace": ("demo", "simulate", "compare", "report", "schedulers", "trace"),
    "Repeat the paper": ("reproduce", "sweep", "train-drr", "experiment"),
    "Run a cluster": ("serve", "serve-kubernetes", "serve-slurm", "live"),
    "Jobs of a running controller": ("submit", "ps", "describe", "logs", "cancel", "schema"),
    "Nodes and moves of a running controller": ("top", "nodes", "drain", "undrain", "plan", "pause", "resume"),
}

#: What packages are missing where only a part of the product was installed, and what installs them.
EXTRAS: dict[str, str] = {
    **dict.fromkeys(("httpx", "prometheus_client", "psutil", "starlette", "structlog", "textual", "uvicorn"), "live"),
    **dict.fromkeys(("ray", "submitit"), "sweep"),
    "torch": "train",
}

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
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version, and end."
    ),
) -> None:
    """Schedule, simulate, explain and run gangs of GPU instances."""


def _arrange() -> None:
    """Puts the commands under their headings; one without a heading comes first, under `Commands`."""
    headings = {command: heading for heading, commands in HEADINGS.items() for command in commands}
    order = {command: number for number, command in enumerate(headings)}
    for group in app.registered_groups:
        group.rich_help_panel = headings.get(_group_name(group), "Commands")
    for each in app.registered_commands:
        each.rich_help_panel = headings.get(str(each.name), "Commands")
    app.registered_commands.sort(key=lambda each: order.get(str(each.name), -1))
    app.registered_groups.sort(key=lambda each: order.get(_group_name(each), -1))


def _group_name(group: TyperInfo) -> str:
    """The name that a group was given, when it was made or when it was added."""
    own = group.typer_instance.info.name if group.typer_instance is not None else None
    return next((name for name in (group.name, own) if isinstance(name, str)), "")


for _module in MODULES:
    import_module(f"compass_abs.cli.{_module}").register(app)
_arrange()


def run() -> None:
    """Runs the command line; a mistake of the user's ends in one plain line and exit code 2, never in a traceback."""
    try:
        app()
    except CompassError as error:
        typer.echo(f"compass: {error}", err=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRAS:
            raise
        typer.echo(f"compass: {missing} is not installed: pip install 'compass-abs[{EXTRAS[missing]}]'", err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        typer.echo("compass: interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except OSError as error:
        # No such file, no right to it, no space left, a name that is too long: plain enough in the system's words.
        where = f"{error.filename}: " if error.filename else ""
        typer.echo(f"compass: {where}{error.strerror or error}", err=True)
        sys.exit(2)


if __name__ == "__main__":
    run()
