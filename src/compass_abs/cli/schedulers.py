"""`compass schedulers`: what there is to choose from."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from compass_abs.schedulers.parameters import Parameter
    from compass_abs.schedulers.registry import Listing


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("schedulers")(schedulers)


def schedulers(
    names: Annotated[list[str] | None, typer.Argument(help="Only these.", metavar="NAME")] = None,
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of text."),
) -> None:
    """List the schedulers: what each does, its parameters and where it comes from.

    Parameters are written after the name wherever a scheduler is chosen, as in fft:period=600.
    """
    from compass_abs.schedulers.registry import available, describe

    listings = [describe(name) for name in names] if names else list(available())
    if as_json:
        typer.echo(json.dumps({"schedulers": [_as_dict(each) for each in listings]}, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.padding import Padding
    from rich.text import Text

    console = Console(highlight=False)
    for listing in listings:
        title = Text(listing.name, style="bold")
        if listing.aliases:
            title.append(f"  (also {', '.join(listing.aliases)})", style="not bold dim")
        if listing.package:
            title.append(f"  from package {listing.package}", style="not bold dim")
        console.print(title)
        if listing.problem:
            console.print(Padding(Text(listing.problem, style="red"), (0, 0, 0, 2)))
            continue
        console.print(Padding(Text(listing.summary), (0, 0, 0, 2)))
        for parameter in listing.parameters:
            line = Text("• ")
            line.append(f"{parameter.name}={_shown(parameter.default)}", style="cyan")
            line.append(f"  {parameter.meaning}" if parameter.meaning else "")
            line.append(f" ({parameter.expected})", style="dim")
            console.print(Padding(line, (0, 0, 0, 4)))
        if listing.source:
            console.print(Padding(Text(listing.source, style="dim"), (0, 0, 0, 2)))


def _shown(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _as_dict(listing: "Listing") -> dict[str, Any]:
    return {
        "name": listing.name,
        "aliases": list(listing.aliases),
        "summary": listing.summary,
        "source": listing.source,
        "parameters": [_parameter(each) for each in listing.parameters],
        "package": listing.package or None,
        "problem": listing.problem or None,
    }


def _parameter(parameter: "Parameter") -> dict[str, Any]:
    return {
        "name": parameter.name,
        "type": parameter.kind.__name__,
        "default": parameter.default,
        "expected": parameter.expected,
        "meaning": parameter.meaning,
        "required": parameter.required,
    }
