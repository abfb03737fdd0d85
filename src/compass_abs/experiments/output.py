"""What a study leaves behind: runs in Parquet, tables in CSV and Markdown, figures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compass_abs.experiments.cell import Cell
from compass_abs.experiments.frames import runs_frame, table
from compass_abs.experiments.markdown import frame_as_markdown, ranking_as_markdown
from compass_abs.experiments.pictures import figure_data, window_figure
from compass_abs.experiments.rankings import BucketRow, ranking
from compass_abs.experiments.study import Study, Workload
from compass_abs.experiments.workloads import load_trace
from compass_abs.reporting.figures import draw, save

if TYPE_CHECKING:
    import polars

FIGURE_KINDS = ("pdf", "png")


@dataclass(frozen=True, slots=True)
class StudyResult:
    """A study and all that came out of it."""

    study: Study
    cells: Sequence[Cell]
    results: Sequence[Mapping[str, Any]]
    runs: "polars.DataFrame"
    tables: Mapping[str, "polars.DataFrame"]
    rankings: Mapping[str, Sequence[BucketRow]]


def evaluate(study: Study, cells: Sequence[Cell], results: Sequence[Mapping[str, Any]]) -> StudyResult:
    """The tables and rankings of a study."""
    runs = runs_frame(cells, results)
    tables = {spec.name: table(runs, spec) for spec in study.tables}
    rankings = {spec.name: ranking(runs, spec) for spec in study.rankings}
    return StudyResult(study, cells, results, runs, tables, rankings)


def write_study(result: StudyResult, folder: Path, figure_kinds: Sequence[str] = FIGURE_KINDS) -> Path:
    """Writes everything into a folder; the same results give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_frame(result.runs, folder / "runs.parquet")
    for name, frame in result.tables.items():
        frame.write_csv(folder / f"{name}.csv")
    (folder / "README.md").write_text(as_markdown(result), encoding="utf-8")
    for spec in result.study.figures:
        save(draw(figure_data(result.runs, spec)), folder / spec.name, figure_kinds)
    if result.study.window is not None:
        save(draw(window_figure(result.cells, result.results)), folder / "window", figure_kinds)
    return folder


def _write_frame(frame: "polars.DataFrame", path: Path) -> None:
    partial = path.with_name(path.name + ".partial")
    frame.write_parquet(partial, compression="zstd", statistics=False)
    partial.replace(path)


def as_markdown(result: StudyResult) -> str:
    """A page of the study: its question, its tables, and what readers must know of the jobs."""
    study = result.study
    where = f" ({study.paper} of the paper)" if study.paper else ""
    parts = [f"# {study.title}{where}"]
    if study.question:
        parts.append(study.question)
    parts.append(_settings(result))
    for spec in study.tables:
        parts += [f"## {spec.title or spec.name}", frame_as_markdown(result.tables[spec.name])]
    for ranks in study.rankings:
        rows = result.rankings[ranks.name]
        against = ", ".join(ranks.field) if ranks.field else "everybody"
        note = f"How often {ranks.subject} is first, against {against}. A tie for first counts for all who tie."
        parts += [f"## {ranks.title or ranks.name}", note, ranking_as_markdown(rows)]
    notes = workload_notes(study.workloads)
    if notes:
        parts += ["## Before you believe a number", "\n".join(f"- {note}" for note in notes)]
    return "\n\n".join(parts) + "\n"


def _settings(result: StudyResult) -> str:
    study = result.study
    days = {
        workload.name: len({cell.day for cell in result.cells if cell.workload == workload})
        for workload in study.workloads
    }
    size = f"N = {', '.join(map(str, study.nodes))}" if study.nodes else f"η = {', '.join(f'{e:g}' for e in study.eta)}"
    work = ", ".join(f"{name} ({count} {'day' if count == 1 else 'days'})" for name, count in days.items())
    costs = ", ".join(f"{cost:g}" for cost in study.costs)
    look = f" A sample: one in {study.sample} of the study's days." if study.sample > 1 else ""
    return f"Jobs: {work}.{look} {size}; queue {', '.join(study.queues)}; a migration delays a job by {costs} s. " + (
        "Every day starts on an empty cluster and runs until all its jobs finish; means weigh each day the same."
    )


def workload_notes(workloads: Iterable[Workload]) -> list[str]:
    """What must be said of the jobs: synthetic ones, durations that were cut, rows that were left out."""
    notes = []
    for workload in workloads:
        trace = load_trace(workload)
        if trace.synthetic:
            notes.append(f"{workload.name}: these jobs are synthetic; no cluster ever ran them.")
        notes += [f"{workload.name}: {note}." for note in trace.notes]
        left_out = sum(trace.dropped.values())
        if left_out:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in trace.dropped.items())
            notes.append(f"{workload.name}: {left_out:,} rows were left out ({reasons}).")
    return list(dict.fromkeys(notes))
