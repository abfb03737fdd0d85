"""`compass trace`: what traces there are, what is in them, fetching, converting and generating them."""

import json
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from compass_abs.traces import Trace
    from compass_abs.traces.composition import DayLine
    from compass_abs.traces.synthesis import WorkloadModel

trace_app = typer.Typer(name="trace", help="Job traces: list, fetch, info, convert, synth.", no_args_is_help=True)

TraceArgument = Annotated[str, typer.Argument(metavar="TRACE", help="A name from `compass trace list`, or a file.")]
Format = Annotated[str | None, typer.Option("--format", help="The file's format, where it cannot be recognised.")]
SkipBadRows = Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out and count them.")]
AnyOrder = Annotated[bool, typer.Option("--any-order", help="Sort rows that are not in order of submission.")]
Capacity = Annotated[int | None, typer.Option("--capacity", help="GPUs of a node; 8 unless the trace says.")]
Origin = Annotated[str | None, typer.Option("--origin", help="Clock time of second 0, e.g. 2017-08-14T23:27.")]
RefillTail = Annotated[bool, typer.Option("--refill-tail", help="Refill durations that the publisher cut.")]
Seed = Annotated[int, typer.Option("--seed", help="Seed of whatever is drawn.")]
Day = Annotated[int | None, typer.Option("--day", help="Only this day; the first is 1.")]
From = Annotated[str | None, typer.Option("--from", help="Only jobs from here on: seconds, or a date and time.")]
To = Annotated[str | None, typer.Option("--to", help="Only jobs before here: seconds, or a date and time.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the output file if it exists.")]


def register(app: typer.Typer) -> None:
    """Adds the group of commands."""
    app.add_typer(trace_app)


@trace_app.command("list")
def list_traces(as_json: AsJson = False) -> None:
    """Named traces, where they come from, and which of them are on this machine."""
    from compass_abs.traces.catalog import PUBLISHED, find
    from compass_abs.traces.workloads import WORKLOADS

    rows: list[dict[str, Any]] = [
        {
            "name": entry.name,
            "title": entry.title,
            "licence": entry.licence,
            "homepage": entry.homepage,
            "synthetic": entry.synthetic,
            "file": None if (path := find(entry)) is None else str(path),
        }
        for entry in PUBLISHED
    ]
    if as_json:
        typer.echo(json.dumps({"traces": rows, "models": list(WORKLOADS)}, indent=2, ensure_ascii=False))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in ("name", "what", "licence", "here"):
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(row["name"], row["title"], row["licence"], "yes" if row["file"] else "no")
    console = Console(highlight=False)
    console.print(table)
    console.print("What is not here: compass trace fetch NAME")
    console.print(f"Models for `compass trace synth`: {', '.join(WORKLOADS)}")


@trace_app.command("fetch")
def fetch(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A name from `compass trace list`.")],
    to: Annotated[Path | None, typer.Option("--to", help="Folder of traces; this user's cache by default.")] = None,
    mirror: Annotated[str | None, typer.Option("--mirror", help="Address that holds the same files.")] = None,
) -> None:
    """Download the official file: resumes, checks its SHA-256 where one is published, says its licence."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    from compass_abs.traces import TraceError
    from compass_abs.traces.catalog import PUBLISHED, cache_folder, published
    from compass_abs.traces.download import fetch as fetch_files

    entry = published(name)
    if entry is None:
        names = ", ".join(e.name for e in PUBLISHED if e.downloads)
        raise TraceError(f"no trace is named {name!r}; those to fetch are {names}")
    errors = Console(stderr=True, highlight=False)
    errors.print(f"{entry.title}. Licence: {entry.licence}. {entry.homepage}".rstrip())
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True) as bar:
        task = bar.add_task(name, total=None)
        paths = fetch_files(
            entry,
            to or cache_folder(),
            mirror,
            lambda done, total: bar.update(task, completed=done, total=total),
        )
    for path in paths:
        typer.echo(str(path))
    unchecked = [Path(download.path).name for download in entry.downloads if download.sha256 is None]
    if len(unchecked) < len(entry.downloads):
        errors.print("SHA-256 as published" + (f", except for {', '.join(unchecked)}." if unchecked else "."))
    else:
        errors.print("No SHA-256 is published that could be checked.")


@trace_app.command("info")
def info(
    trace: TraceArgument,
    day: Day = None,
    from_: From = None,
    to: To = None,
    format_: Format = None,
    skip_bad_rows: SkipBadRows = False,
    any_order: AnyOrder = False,
    capacity: Capacity = None,
    origin: Origin = None,
    refill_tail: RefillTail = False,
    seed: Seed = 0,
    by_day: Annotated[bool, typer.Option("--by-day", help="Add a line for each day.")] = False,
    as_json: AsJson = False,
) -> None:
    """Instance shares (Table 1), arrivals, durations, days, WCC coverage, and what was left out and why."""
    from compass_abs.cli.progress import progress_bar
    from compass_abs.cli.trace_tables import day_table, summary_tables
    from compass_abs.traces.composition import summarize, summarize_days

    read = _read(trace, format_, skip_bad_rows, any_order, capacity, origin, refill_tail, seed)
    part = _sliced(read, day, from_, to)
    with progress_bar(f"measuring {part.name}", len(part.jobs)) as progress:
        summary = summarize(part, progress)
    lines: list[DayLine] = []
    if by_day:
        with progress_bar("measuring each day", len(part.jobs)) as progress:
            lines = summarize_days(part, progress)
    if as_json:
        days = {"days": [asdict(line) for line in lines]} if by_day else {}
        typer.echo(json.dumps({**asdict(summary), **days}, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for table in summary_tables(summary):
        console.print(table)
    if by_day:
        console.print(day_table(lines))


@trace_app.command("convert")
def convert(
    trace: TraceArgument,
    output: Annotated[Path, typer.Argument(metavar="OUTPUT", help="A .csv or .parquet file.")],
    day: Day = None,
    from_: From = None,
    to: To = None,
    format_: Format = None,
    skip_bad_rows: SkipBadRows = False,
    any_order: AnyOrder = False,
    capacity: Capacity = None,
    origin: Origin = None,
    refill_tail: RefillTail = False,
    seed: Seed = 0,
    force: Force = False,
) -> None:
    """Write a trace, or a slice of one, in the plain format (docs/traces.md)."""
    _refuse_to_overwrite(output, force)
    read = _read(trace, format_, skip_bad_rows, any_order, capacity, origin, refill_tail, seed)
    part = _sliced(read, day, from_, to)
    # The file goes elsewhere; where this one lay on this machine is nobody's business.
    _write(replace(part, source=Path(part.source).name), output, force)


@trace_app.command("synth")
def synth(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A shipped model, or a .json file with one.")] = "venus",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A .csv or .parquet file.")] = None,
    days: Annotated[int, typer.Option(help="How many days.")] = 1,
    seed: Seed = 0,
    like: Annotated[str | None, typer.Option("--like", help="Calibrate the model to this trace instead.")] = None,
    load: Annotated[float, typer.Option(help="Times the jobs.")] = 1.0,
    mix: Annotated[
        str | None, typer.Option(help="Shares of instances: 1, FF, FUF, 8 GPUs; e.g. .7,.08,.01,.21")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option(help="Shares of instances by GPUs, of sizes the model has; e.g. 1:.5,8:.3,72:.2")
    ] = None,
    gangs: Annotated[float, typer.Option(help="Times the gangs of several instances.")] = 1.0,
    largest_gang: Annotated[int | None, typer.Option(help="No gang has more instances.")] = None,
    durations: Annotated[float, typer.Option(help="Times the service times.")] = 1.0,
    longest: Annotated[float | None, typer.Option(help="No service is longer, in seconds.")] = None,
    diurnal: Annotated[float, typer.Option(help="0 flattens the daily rhythm, 1 keeps it.")] = 1.0,
    model_out: Annotated[Path | None, typer.Option(help="Write the model as JSON, to edit and use again.")] = None,
    force: Force = False,
) -> None:
    """Generate a synthetic trace, labelled as such, or the model behind one."""
    from compass_abs.cli.progress import progress_bar
    from compass_abs.traces import TraceError
    from compass_abs.traces.calibration import calibrate, model_as_json
    from compass_abs.traces.synthesis import synthesize

    if output is None and model_out is None:
        raise TraceError("nothing to write: name a file with --output, or with --model-out")
    chosen = calibrate(_read(like, None, False, False, None, None, False, 0)) if like else _model(model)
    if load != 1.0:
        chosen = chosen.with_load(load)
    if gangs != 1.0 or largest_gang is not None:
        chosen = chosen.with_gangs(gangs, largest_gang)
    if mix is not None:
        chosen = chosen.with_mix(_shares(mix))
    if durations != 1.0 or longest is not None:
        chosen = chosen.with_durations(durations, longest)
    if sizes is not None:
        chosen = chosen.with_sizes(_sizes(sizes))
    if diurnal != 1.0:
        chosen = chosen.with_diurnal(diurnal)
    if model_out is not None:
        _refuse_to_overwrite(model_out, force)
        model_out.write_text(model_as_json(chosen), encoding="utf-8")
        typer.echo(f"wrote {model_out}: model {chosen.name}")
    if output is not None:
        given: dict[str, tuple[object, object]] = {
            "--days": (days, 1),
            "--seed": (seed, None),
            "--like": (like and Path(like).name, None),
            "--load": (load, 1.0),
            "--mix": (mix, None),
            "--sizes": (sizes, None),
            "--gangs": (gangs, 1.0),
            "--largest-gang": (largest_gang, None),
            "--durations": (durations, 1.0),
            "--longest": (longest, None),
            "--diurnal": (diurnal, 1.0),
        }
        _refuse_to_overwrite(output, force)
        with progress_bar(f"drawing {chosen.name}", days, what="days") as progress:
            drawn = synthesize(chosen, days, seed, progress)
        _write(replace(drawn, source=_command(Path(model).name, given)), output, force)


def _command(model: str, given: "Mapping[str, tuple[object, object]]") -> str:
    """The command that makes the same trace again."""
    options = [f"{name} {value}" for name, (value, default) in given.items() if value != default]
    return " ".join(["compass trace synth", model, *options])


def _model(name: str) -> "WorkloadModel":
    from compass_abs.traces.calibration import model_from_json
    from compass_abs.traces.workloads import workload

    return model_from_json(Path(name)) if name.endswith(".json") else workload(name)


def _sizes(text: str) -> dict[int, float]:
    from compass_abs.traces import TraceError

    found: dict[int, float] = {}
    for item in text.split(","):
        size, _, share = item.partition(":")
        try:
            found[int(size)] = float(share)
        except ValueError:
            raise TraceError(f"--sizes is {text!r}: {item!r} isn't GPUs:share, as in 1:.5,8:.3,72:.2") from None
    return found


def _shares(text: str) -> list[float]:
    from compass_abs.traces import TraceError

    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise TraceError(f"--mix is {text!r}, expected four shares such as .7,.08,.01,.21") from None


def _read(
    trace: str,
    format_: str | None,
    skip_bad_rows: bool,
    any_order: bool,
    capacity: int | None,
    origin: str | None,
    refill_tail: bool,
    seed: int,
) -> "Trace":
    from compass_abs.cli.progress import reading_bar
    from compass_abs.traces import BadRows, RowOrder, Tail, TraceError, read_trace

    try:
        start = None if origin is None else datetime.fromisoformat(origin)
    except ValueError:
        raise TraceError(f"--origin is {origin!r}, expected a date and time such as 2017-08-14T23:27") from None
    with reading_bar(trace) as progress:
        return read_trace(
            trace,
            format_,
            BadRows.SKIP if skip_bad_rows else BadRows.RAISE,
            capacity=capacity,
            order=RowOrder.ANY if any_order else None,
            origin=start,
            tail=Tail.REFILLED if refill_tail else Tail.AS_PUBLISHED,
            seed=seed,
            progress=progress,
        )


def _sliced(trace: "Trace", number: int | None, start: str | None, end: str | None) -> "Trace":
    from compass_abs.traces import TraceError, day, window

    if number is not None:
        if start is not None or end is not None:
            raise TraceError("--day and --from/--to are two ways to say the same; give one of them")
        return day(trace, number)
    if start is None and end is None:
        return trace
    first = 0.0 if start is None else _instant(trace, start, "--from")
    # A window ends before its end: the last job has to be inside.
    last = trace.jobs[-1].submitted + 1 if end is None else _instant(trace, end, "--to")
    part = window(trace, first, last)
    if not part.jobs:
        raise TraceError(f"no job of trace {trace.name!r} was submitted in [{first:.15g}, {last:.15g}) s")
    return part


def _instant(trace: "Trace", text: str, option: str) -> float:
    from compass_abs.traces import TraceError

    try:
        return float(text)
    except ValueError:
        pass
    if trace.origin is None:
        raise TraceError(f"{option} is {text!r}, but trace {trace.name!r} has no dates; give seconds or --origin")
    try:
        return (datetime.fromisoformat(text).replace(tzinfo=None) - trace.origin).total_seconds()
    except ValueError:
        raise TraceError(f"{option} is {text!r}, expected seconds or a date such as 2020-06-17T21:00") from None


def _refuse_to_overwrite(path: Path, force: bool) -> None:
    from compass_abs.traces import TraceError

    if path.exists() and not force:
        raise TraceError(f"{path} exists; pass --force to replace it")
    if not path.absolute().parent.is_dir():
        raise TraceError(f"{path.absolute().parent} is no folder; make it first")


def _write(trace: "Trace", output: Path, force: bool) -> None:
    from compass_abs.traces import write_trace

    # Again: it may have come into being while the trace was read or drawn.
    _refuse_to_overwrite(output, force)
    write_trace(trace, output)
    label = "synthetic " if trace.synthetic else ""
    typer.echo(f"wrote {output}: {len(trace.jobs):,} {label}jobs of {trace.name}")
