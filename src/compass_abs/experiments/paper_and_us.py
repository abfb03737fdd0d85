"""The page "the paper and us": each number that the paper prints, and ours beside it, both from the same definition."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compass_abs.experiments.markdown import markdown_table
from compass_abs.experiments.output import StudyResult, as_markdown
from compass_abs.experiments.paper_measures import bucket_cells, measure
from compass_abs.experiments.pictures import figure_data, window_figure
from compass_abs.reporting.figures import draw, save

if TYPE_CHECKING:
    from collections.abc import Iterable

PAGE, TABLES = "the-paper-and-us.md", "paper-results.md"
_INTRODUCTION = """\
# The paper and us

Each number that the paper prints and a simulation can be held against, ours beside it, from the same definition.
Written by `compass reproduce all`, never by hand; the tables behind it are in [paper-results.md](paper-results.md).

How ours come about: a day is the jobs submitted on it, on an empty cluster of N(η) nodes, until all have finished. FIFO
with head-of-line blocking for everybody; a migration delays a job by 8 seconds. Means weigh each day the same. A lead
is the strongest baseline's mean less COMPASS-ABS's (for AGU the other way round); negative means a baseline is ahead,
and ± is the standard error of the days' differences.
"First" counts a (day, η) pair when nobody in the field is better; ties count for all who tie.
"""


def write_comparison_with_paper(results: Sequence[StudyResult], folder: Path) -> Path | None:
    """Writes the page and the tables behind it; None when none of the studies is in the paper's table of numbers."""
    known = {result.study.name: result for result in results}
    content = _paper_values()
    rows = [value for value in content["values"] if value.get("study", "coverage") in known]
    if not rows:
        return None
    folder.mkdir(parents=True, exist_ok=True)
    page = folder / PAGE
    page.write_text(_page(rows, known, content), encoding="utf-8")
    (folder / TABLES).write_text(_tables(results, folder), encoding="utf-8")
    return page


def _paper_values() -> dict[str, Any]:
    import yaml

    text = (files("compass_abs.experiments") / "paper_values.yaml").read_text(encoding="utf-8")
    content: dict[str, Any] = yaml.safe_load(text)
    return content


def _page(rows: Sequence[Mapping[str, Any]], known: Mapping[str, StudyResult], content: Mapping[str, Any]) -> str:
    parts = [_INTRODUCTION]
    if (sample := max(result.study.sample for result in known.values())) > 1:
        parts.append(f"**A sample: one in {sample} of the studies' days.**\n")
    notes: Mapping[str, str] = content["notes"]
    used: dict[str, int] = {}
    for section in dict.fromkeys(str(row["section"]) for row in rows):
        lines = []
        for row in rows:
            if str(row["section"]) != section:
                continue
            marks = [used.setdefault(note, len(used) + 1) for note in row.get("why", ())]
            ours = measure(row, known, content)
            lines.append([row["what"], row["paper"] or "–", ours, " ".join(f"[{mark}]" for mark in sorted(marks))])
        title = "Ours" if section == "ours" else f"Section {section}"
        parts.append(f"## {title}\n\n" + markdown_table(["what", "paper", "ours", "why they differ"], lines) + "\n")
        if section == content["table_3"]["after"] and content["table_3"]["study"] in known:
            parts.append(_table_3(known, content["table_3"]))
    parts.append("## Why they differ\n\n" + "\n".join(_numbered(used, notes)) + "\n")
    return "\n".join(parts)


def _table_3(known: Mapping[str, StudyResult], table: Mapping[str, Any]) -> str:
    """The paper's Table 3, bucket by bucket, with ours beside each of its numbers."""
    metrics = list(table["metrics"])
    lines = []
    for row in table["rows"]:
        ours = bucket_cells({**table, **row}, known, metrics)
        pairs, firsts = ours or ("0", dict.fromkeys(metrics, "–"))
        lines.append([f"{row['trace']}, {row['bucket']}", row["pairs"], pairs])
        for metric in metrics:
            lines[-1] += [row[metric], firsts[metric]]
    headings = ["trace, ρ", "pairs: paper", "ours"]
    for metric in metrics:
        headings += [f"{metric.upper()}: paper", "ours"]
    return f"{table['text'].strip()}\n\n{markdown_table(headings, lines)}\n"


def _numbered(used: Mapping[str, int], notes: Mapping[str, str]) -> "Iterable[str]":
    return [f"{number}. {notes[name].strip()}" for name, number in used.items()]


def _tables(results: Sequence[StudyResult], folder: Path) -> str:
    """Every study's page, one after the other, its headings a level deeper, with its figures."""
    parts = ["# The tables behind the paper and us\n\nWritten by `compass reproduce`; don't edit.\n"]
    for result in results:
        parts.append(as_markdown(result).replace("\n## ", "\n### ").replace("# ", "## ", 1))
        parts += [f"![{title}]({path.relative_to(folder).as_posix()})\n" for title, path in _figures(result, folder)]
    return "\n".join(parts)


def _figures(result: StudyResult, folder: Path) -> list[tuple[str, Path]]:
    """Writes the figures of a study beside the page, small enough to live in a repository."""
    study, written = result.study, []
    for spec in study.figures:
        stem = folder / "figures" / f"paper-{study.name}-{spec.name}"
        written.append((spec.title or study.title, save(draw(figure_data(result.runs, spec)), stem, ["svg"])[0]))
    if study.window is not None:
        # Thousands of steps: as pixels a third of what they take as lines.
        stem = folder / "figures" / f"paper-{study.name}-window"
        written.append((study.title, save(draw(window_figure(result.cells, result.results)), stem, ["png"])[0]))
    return written
