"""`compass compare` and `compass demo`: several schedulers on the same jobs, the same cluster, the same queue."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from compass_abs.cli import simulation_options as options

if TYPE_CHECKING:
    from collections.abc import Callable

    from compass_abs.model import ClusterState
    from compass_abs.reporting import Comparison, RunView
    from compass_abs.reporting.recorder import ReportRecorder
    from compass_abs.simulation import LevelMeter, Observer, Setup, Summary
    from compass_abs.simulation.workload import Workload

#: The paper's field, and ours.
FIELD = "gfs,fgd,cafgd,mcg,drr,fft,compass-abs,compass-jit"
#: Who schedules NVLink domains.
DOMAIN_FIELD = "hierarchical-best-fit,tightest-rack,hierarchical-spread,hierarchical,hierarchical-jit"
#: The sample that the package ships: a contended day, generated.
SAMPLE = "demo"
#: What `--out` writes beside the run directories; by it a later run knows what it may replace.
COMPARISON, REPORT = "comparison.json", "report.html"


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command("compare")(compare)
    app.command("demo")(demo)


def compare(
    trace: options.TraceArgument,
    schedulers: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,C",
            help="compass schedulers lists them; parameters as in fft:period=600. By default the paper's and "
            "ours; with --topology those that know domains.",
        ),
    ] = None,
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
    out: Annotated[Path | None, typer.Option(help="Write a run directory for each, and the report, there.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write only the HTML report, to this file.")] = None,
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
    """Replay a trace under several schedulers: one table, with ratios to the bound and the best in bold."""
    from compass_abs.simulation import Existing
    from compass_abs.simulation.results import check_target, whole_directory

    existing = Existing.REPLACE if force else Existing.REFUSE
    if out is not None:
        check_target(out, existing, (COMPARISON,))
    if html is not None:
        _check_report(html, force)
    domains = options.load_topology(topology)
    field = FIELD if domains is None or domains.panels_per_domain == 1 else DOMAIN_FIELD
    choices = _choices(field if schedulers is None else schedulers)
    parameters = options.parse_settings(settings, [choice.scheduler for choice in choices])
    workload = options.load_workload(
        trace, format_name, skip_bad_rows, refill_tail, seed, day, window, domains, quiet or as_json, any_order,
        capacity,
    )  # fmt: skip
    common: dict[str, Any] = {
        "topology": domains, "nodes": nodes, "eta": eta, "queue": queue, "cost": cost, "cost_model": cost_model,
        "checkpoint": checkpoint, "restore": restore, "checkpoint_period": checkpoint_period,
        "node_events": node_events,
    }  # fmt: skip
    setups = {
        choice.text: options.make_setup(
            workload, choice.scheduler, choice.parameters | parameters[choice.scheduler], **common
        )
        for choice in choices
    }
    if out is None:
        views = _run(workload, setups, None, check, quiet or as_json, html is not None)
        comparison = _comparison(workload, setups, views)
    else:
        with whole_directory(out) as building:
            views = _run(workload, setups, building, check, quiet or as_json, True)
            comparison = _comparison(workload, setups, views)
            (building / COMPARISON).write_text(json.dumps(_as_json(workload, setups, views), indent=2) + "\n", "utf-8")
            _write_report(comparison, building / REPORT, quiet or as_json)
            _remove_runs_not_in(building, out)
    if html is not None:
        _write_report(comparison, html, quiet or as_json)
    if as_json:
        typer.echo(json.dumps(_as_json(workload, setups, views), indent=2, ensure_ascii=False))
        return
    print_comparison(comparison)
    _print_levels(views)
    written = [str(path) for path in (out, html) if path is not None]
    if written and not quiet:
        typer.echo(f"written to {' and '.join(written)}")


def _print_levels(views: "list[RunView]") -> None:
    from compass_abs.cli.levels import print_levels_side_by_side

    measured = {view.title: view.levels for view in views if view.levels}
    if measured:
        print_levels_side_by_side(measured)


def _check_report(path: Path, force: bool) -> None:
    """Raises unless the report may be written there; to be asked before the simulations, not after."""
    from compass_abs.simulation.results import check_writable

    if path.exists() and not path.is_file():
        raise options.OptionError(f"{path} is no file that a report could replace; choose another --html")
    if path.exists() and not force:
        raise options.OptionError(f"{path} exists; choose another --html, or replace it with --force")
    check_writable(path)


def _is_report(path: Path) -> bool:
    """Whether this program wrote the file."""
    with path.open("rb") as file:
        return b'<meta name="generator" content="compass-abs' in file.read(4096)


def _remove_runs_not_in(building: Path, out: Path) -> None:
    """Runs of an earlier comparison that the new one hasn't: side by side they would be taken for one comparison."""
    from compass_abs.simulation.results import CONFIG, SUMMARY

    for directory in out.iterdir() if out.is_dir() else ():
        is_run = all((directory / mark).is_file() for mark in (CONFIG, SUMMARY))
        if is_run and not directory.is_symlink() and not (building / directory.name).exists():
            shutil.rmtree(directory)


def demo(
    out: Annotated[Path, typer.Option(help="Where the report goes; an earlier one there is replaced.")] = Path("demo"),
    quiet: options.QuietOption = False,
) -> None:
    """Compare schedulers on the bundled sample, in under a minute: a table here and a report to open."""
    report = out / REPORT
    if report.is_file() and not _is_report(report):
        raise options.OptionError(f"{report} isn't replaced: it is no report of this program; choose another --out")
    _check_report(report, force=True)
    workload = options.load_workload(SAMPLE, None, False, False, 0, None, None)
    common: dict[str, Any] = {
        "nodes": None, "eta": 0.9, "queue": "fifo", "cost": 8.0, "cost_model": "paper", "checkpoint": None,
        "restore": None, "checkpoint_period": 3600.0, "node_events": None,
    }  # fmt: skip
    setups = {choice.text: options.make_setup(workload, choice.scheduler, {}, **common) for choice in _choices(FIELD)}
    views = _run(workload, setups, None, False, quiet, True)
    comparison = _comparison(workload, setups, views)
    _write_report(comparison, report, quiet)
    print_comparison(comparison)
    typer.echo(f"report: {report.resolve()}")


def _write_report(comparison: "Comparison", path: Path, quiet: bool) -> None:
    from compass_abs.cli.progress import progress_bar
    from compass_abs.reporting import write_report

    with progress_bar(f"writing {path.name}", 2 * len(comparison.runs), quiet, "parts") as progress:
        write_report(comparison, path, progress=progress)


class _Choice(NamedTuple):
    """A scheduler and its parameters, as they were written and as they are meant."""

    text: str
    scheduler: str
    parameters: dict[str, str]


def _choices(text: str) -> list[_Choice]:
    from compass_abs.schedulers.registry import parse_choice

    texts: list[str] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        if texts and "=" in part and ":" not in part:
            # Another parameter of the scheduler before it.
            texts[-1] += f",{part}"
        else:
            texts.append(part)
    if not texts:
        raise options.OptionError("--schedulers is empty; name at least one, such as gfs,compass-abs")
    for name in texts:
        if texts.count(name) > 1:
            raise options.OptionError(f"--schedulers names {name!r} twice")
    return [_Choice(each, *parse_choice(each)) for each in texts]


def _run(
    workload: "Workload", setups: "dict[str, Setup]", out: Path | None, check: bool, quiet: bool, drawn: bool
) -> "list[RunView]":
    """Every setup, and the bound before them; what happened is kept only where it is to be drawn."""
    from compass_abs.cli.progress import progress_bar, saving_bar
    from compass_abs.reporting.run_directories import folder_of
    from compass_abs.simulation import Checks, Existing, has_bound, record, replay

    checks = Checks.EVERY_EVENT if check else Checks.NEVER
    bounded = next(filter(has_bound, setups.values()), None)
    titled = setups if bounded is None else {"bound": bounded.bound()} | setups
    views = []
    for title, setup in titled.items():
        watch = _Watch(setup, drawn)
        with progress_bar(title, len(workload.jobs), quiet) as progress:
            if out is None:
                summary = replay(
                    workload.jobs, setup, history=workload.history, observe=watch.observe,
                    checks=checks, progress=progress,
                )  # fmt: skip
            else:
                result = record(
                    workload.jobs, setup, history=workload.history, about=workload.about, observe=watch.observe,
                    checks=checks, progress=progress,
                )  # fmt: skip
                with saving_bar(result, title, quiet) as written:
                    result.save(out / folder_of(title), Existing.REPLACE, written)
                summary = result.summary
        shown = {name: str(value) for name, value in setup.parameters.items()}
        views.append(watch.run_view(title, summary, shown))
    return views


class _Watch:
    """Keeps what the report draws of a run, if it is drawn, and on a topology what each level looked like."""

    def __init__(self, setup: "Setup", drawn: bool) -> None:
        from compass_abs.simulation.setup import DOMAIN_BOUND

        self._drawn = drawn
        # The oracle places nothing anywhere, so its levels look like nothing in particular.
        self._has_levels = setup.topology is not None and setup.scheduler != DOMAIN_BOUND
        self._recorder: ReportRecorder | None = None
        self._meter: LevelMeter | None = None

    @property
    def observe(self) -> "Callable[[ClusterState], Observer] | None":
        """What makes the observer of a run; None where there is nothing to be seen."""
        return self._observer if self._drawn or self._has_levels else None

    def _observer(self, state: "ClusterState") -> "Observer":
        from compass_abs.reporting.recorder import ReportRecorder
        from compass_abs.simulation import LevelMeter, Several

        self._recorder = ReportRecorder(state) if self._drawn else None
        self._meter = LevelMeter(state) if self._has_levels else None
        return Several(tuple(each for each in (self._recorder, self._meter) if each is not None))

    def run_view(self, title: str, summary: "Summary", shown: "dict[str, str]") -> "RunView":
        """What was seen."""
        from compass_abs.reporting import RunView

        if self._recorder is None:
            view = RunView(title, summary.measured(), settings=shown)
        else:
            view = self._recorder.run_view(title, summary, shown)
        return view if self._meter is None else replace(view, levels=self._meter.summary())


def _comparison(workload: "Workload", setups: "dict[str, Setup]", views: "list[RunView]") -> "Comparison":
    from datetime import UTC

    from compass_abs.reporting import Comparison, Dropped, settings_shown
    from compass_abs.reporting.comparison import node_count
    from compass_abs.reporting.racks import view_of

    trace, setup = workload.trace, next(iter(setups.values()))
    return Comparison(
        title=trace.name,
        jobs=[view_of(job, setup.topology, job.submitted) for job in workload.jobs],
        nodes=node_count(setup.nodes, views),
        runs=views,
        capacity=setup.capacity,
        topology=setup.topology,
        subtitle=str(workload.about.get("date", "")),
        settings=settings_shown(setup.as_dict(), workload.about),
        dropped=[Dropped(reason, count) for reason, count in trace.dropped.items()],
        notes=options.caveats(workload),
        epoch=None if trace.origin is None else trace.origin.replace(tzinfo=UTC).timestamp(),
    )


def _as_json(workload: "Workload", setups: "dict[str, Setup]", views: "list[RunView]") -> dict[str, Any]:
    from compass_abs.reporting.metrics import with_ratios

    rows = with_ratios(views)
    levels = {view.scheduler: [level.as_dict() for level in view.levels] for view in views if view.levels}
    return {
        "trace": dict(workload.about),
        "setups": [setup.as_dict() for setup in setups.values()],
        "runs": {view.scheduler: row for view, row in zip(views, rows, strict=True)},
        **({"levels": levels} if levels else {}),
    }


class _Column(NamedTuple):
    """A column that fits a terminal of 80 characters; the HTML report has room for all metrics."""

    key: str
    title: str
    written: str


_COLUMNS = (
    _Column("ajct", "AJCT s", ",.0f"),
    _Column("ajct_ratio", "÷ bound", ".4f"),
    _Column("queueing_mean", "wait s", ",.0f"),
    _Column("afr", "AFR", ".4f"),
    _Column("agu", "AGU", ".3f"),
    _Column("blocked_fragmentation", "frag. s", ",.0f"),
    _Column("migrations_per_job", "moves", ".3f"),
)


def print_comparison(comparison: "Comparison") -> None:
    """The table, with what one must know to read it."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from compass_abs.reporting import verdict
    from compass_abs.reporting.metrics import BOUNDS, with_ratios

    console = Console(highlight=False)
    runs = comparison.runs
    title = f"{comparison.title}: {len(comparison.jobs):,} jobs, {comparison.cluster}"
    console.print(Text(title, "bold"))
    for note in comparison.notes:
        console.print(Text(f"note: {note}", "yellow"))
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1))
    # Names are wrapped before figures are.
    table.add_column("")
    for column in _COLUMNS:
        table.add_column(column.title, justify="right", no_wrap=True)
    cells = [[format(row[c.key], c.written) if c.key in row else "–" for c in _COLUMNS] for row in with_ratios(runs)]
    field = [i for i, run in enumerate(runs) if run.scheduler not in BOUNDS]
    for i, run in enumerate(runs):
        best = [i in field and _is_best(c, cells[i][k], [cells[j][k] for j in field]) for k, c in enumerate(_COLUMNS)]
        shown = [Text(text, "bold" if bold else "") for text, bold in zip(cells[i], best, strict=True)]
        table.add_row(run.title, *shown, style="" if i in field else "dim")
    console.print(table)
    console.print(verdict(runs))
    console.print(
        "frag. s: how long the head of the queue waited although enough GPUs were free; moves: instances per job",
        style="dim",
    )


def _is_best(column: _Column, text: str, field: list[str]) -> bool:
    """Whether nobody's figure, as written, is better; nothing is best where all are the same."""
    if len(set(field)) < 2:
        return False
    values = [float(each.replace(",", "")) for each in field if each != "–"]
    wanted = max(values) if column.key == "agu" else min(values)
    return text != "–" and float(text.replace(",", "")) == wanted
