"""`compass reproduce`, `compass sweep` and `compass report`."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compass_abs.model import CompassError

if TYPE_CHECKING:
    from collections.abc import Callable

    from compass_abs.experiments import Progress

OutOption = Annotated[Path, typer.Option(help="Where results go; a second run with it carries out only what is new.")]
WorkersOption = Annotated[int | None, typer.Option(min=1, help="Runs at a time; the processors of this machine.")]
EngineOption = Annotated[str, typer.Option(help="Where runs are carried out: local, ray or slurm.")]
EngineSetOption = Annotated[
    list[str] | None,
    typer.Option("--engine-option", metavar="NAME=VALUE", help="Such as address=... for Ray, slurm_partition=gpu."),
]
SampleOption = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="A quick look: only every N-th day; the whole can follow with the same --out."
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")]


class OptionError(CompassError):
    """An option of these commands that can't be read."""


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("reproduce")(reproduce)
    app.command("sweep")(sweep)
    app.command("report")(report)


def reproduce(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="A study by name, or all; `list` names them.", show_default=False)
    ],
    out: OutOption = Path("runs/paper"),
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    engine_option: EngineSetOption = None,
    sample: SampleOption = 1,
    docs: Annotated[Path | None, typer.Option(help="Write the page `the paper and us` and its figures there, too.")]
    = None,
    show: Annotated[bool, typer.Option("--show", help="Only print the study's YAML, to copy and change.")] = False,
    quiet: QuietOption = False,
) -> None:  # fmt: skip
    """Carry out a study of the paper, or all of them: tables, figures, and our numbers beside the paper's."""
    from compass_abs.experiments import load_study, shipped_studies, study_text

    if show:
        typer.echo(study_text(study), nl=False)
        return
    if study == "list":
        for name in shipped_studies():
            found = load_study(name)
            typer.echo(f"{name:16} {found.title}" + (f" ({found.paper})" if found.paper else ""))
        return
    _carry_out(
        shipped_studies() if study == "all" else (study,), out, workers, engine, engine_option, sample, docs, quiet
    )


def sweep(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A study of your own; `compass reproduce list` has examples to copy.")
    ],
    out: OutOption = Path("runs/sweeps"),
    workers: WorkersOption = None,
    engine: EngineOption = "local",
    engine_option: EngineSetOption = None,
    sample: SampleOption = 1,
    quiet: QuietOption = False,
) -> None:
    """Carry out a grid of your own: traces × cluster sizes × schedulers × queues × costs, resumable."""
    _carry_out((str(file),), out, workers, engine, engine_option, sample, None, quiet)


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN", help="Run directories of `compass simulate --out` on the same jobs.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="What to call it; the trace's name if not given.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a page that is there already.")] = False,
) -> None:
    """Put runs side by side in one self-contained HTML page."""
    from compass_abs.reporting import write_report
    from compass_abs.reporting.run_directories import comparison_of

    if out.exists() and not force:
        raise OptionError(f"{out} exists; choose another --out, or replace it with --force")
    typer.echo(f"written to {write_report(comparison_of(runs, title), out)}")


def _carry_out(
    names: tuple[str, ...],
    out: Path,
    workers: int | None,
    engine: str,
    engine_options: list[str] | None,
    sample: int,
    docs: Path | None,
    quiet: bool,
) -> None:
    """Every run of these studies as one sweep, then each study's tables and figures."""
    from compass_abs.experiments import (
        ResultStore,
        cells_of,
        evaluate,
        load_study,
        make_executor,
        run_cells,
        sampled,
        write_comparison_with_paper,
        write_page,
        write_study,
    )
    from compass_abs.simulation.results import check_writable

    for place in (out, docs or out):
        check_writable(place)
        if place.is_file():
            raise OptionError(f"{place} is a file; results go to a folder")
    studies = [sampled(load_study(name), sample) for name in names]
    options = dict(_pair(text) for text in engine_options or ())
    executor = make_executor(engine, workers or _processors(), options)
    cells = [cells_of(study) for study in studies]
    together = [cell for part in cells for cell in part]
    with _progress(quiet) as progress:
        try:
            results = run_cells(together, ResultStore(out), executor, progress)
        except KeyboardInterrupt:
            typer.echo("compass: interrupted; what was finished is kept, the same command goes on from there", err=True)
            raise typer.Exit(130) from None
    evaluated, first = [], 0
    for study, part in zip(studies, cells, strict=True):
        evaluated.append(evaluate(study, part, results[first : first + len(part)]))
        first += len(part)
        write_study(evaluated[-1], out / study.name)
        typer.echo(f"{study.title}: {out / study.name / 'README.md'}")
        if study.page:
            typer.echo(f"  to look at: {write_page(study, out / study.name / 'report.html')}")
    page = write_comparison_with_paper(evaluated, docs or out)
    if page is not None:
        typer.echo(f"The paper and us: {page}")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise OptionError(f"--engine-option is {text!r}, expected NAME=VALUE")
    return name, value


def _processors() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _progress(quiet: bool) -> "Iterator[Callable[[Progress], None]]":
    """Yields what to call with the state of a sweep: a bar on a terminal, a line now and then elsewhere."""
    import sys

    if quiet:
        yield lambda _: None
    elif sys.stderr.isatty():
        yield from _bar()
    else:
        yield _lines()


def _bar() -> "Iterator[Callable[[Progress], None]]":
    from rich import progress as rich
    from rich.console import Console

    columns = (
        rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TaskProgressColumn(), rich.TimeElapsedColumn(),
        rich.TextColumn("gone,"), rich.TimeRemainingColumn(), rich.TextColumn("left"),
    )  # fmt: skip
    with rich.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("simulating", total=1.0)
        percent = 0

        def show(progress: "Progress") -> None:
            nonlocal percent
            if progress.done == progress.known > 0:
                bar.console.print(f"{progress.known:,} of {progress.total:,} runs are known already")
            text = f"{progress.done:,} of {progress.total:,} runs"
            share = 1.0 if progress.done == progress.total else progress.share
            # Drawn at once when its number changes, however short the sweep; ten times a second otherwise.
            before, percent = percent, int(100 * share)
            bar.update(task, completed=share, description=text, refresh=percent != before)

        yield show


def _lines() -> "Callable[[Progress], None]":
    """A line at most every 30 seconds, for logs."""
    from time import monotonic

    began = last = monotonic()

    def show(progress: "Progress") -> None:
        nonlocal last
        now = monotonic()
        if now - last < 30 and progress.done not in (progress.known, progress.total):
            return
        last = now
        left = (now - began) * (1 - progress.share) / progress.share if progress.share else 0.0
        ending = f", about {left:,.0f} s left" if left else ""
        typer.echo(f"{progress.done:,} of {progress.total:,} runs, {progress.known:,} known before{ending}", err=True)

    return show
