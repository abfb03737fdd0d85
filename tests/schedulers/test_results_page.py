"""docs/baselines-results.md shows what its command measures today, and nothing that it no longer does."""

import json
import re
from pathlib import Path

import pytest
from benchmarks.baselines_results import CHOICES, PAGE, QUEUED, QUEUES, Measured, parameters

from compass_abs.schedulers.registry import parse_choice
from compass_abs.traces import DAY
from compass_abs.traces.synthesis import synthesize
from compass_abs.traces.workloads import workload

TEXT = PAGE.read_text(encoding="utf-8")
SECTIONS = {part.partition("\n")[0]: part for part in TEXT.split("\n## ")[1:]}


def rows_of(section: str) -> list[str]:
    main = section.partition("\n### ")[0]
    return re.findall(r"^\| `([^`]+)`", main, re.MULTILINE)


def section(start: str) -> str:
    return next(part for title, part in SECTIONS.items() if title.startswith(start))


@pytest.mark.parametrize("start", ["Venus", "Synthetic GFS"])
def test_results_page_has_a_row_for_every_choice_by_ajct(start: str) -> None:
    part = section(start)
    assert sorted(rows_of(part)) == sorted(CHOICES)
    cells = [row.split("|")[2] for row in part.splitlines() if row.startswith("| `")][: len(CHOICES)]
    values = [float(cell.strip(" *").replace(",", "")) for cell in cells]
    assert values == sorted(values)


def test_results_page_shows_every_queue_with_every_scheduler_of_its_table() -> None:
    table = section("Venus").partition("### Under other queues")[2]
    header = next(line for line in table.splitlines() if line.startswith("| queue |"))
    assert re.findall(r"`([^`]+)`", header) == list(QUEUED)
    assert rows_of(table) == list(QUEUES)


def test_results_page_lists_the_parameters_that_the_schedulers_have_today() -> None:
    for line in parameters():
        assert line in section("Parameters").splitlines()


def test_every_mover_and_rule_of_the_issue_is_on_the_page() -> None:
    shown = {parse_choice(choice)[0] for choice in CHOICES}
    assert shown >= {
        *("gfs", "fgd", "cafgd", "mcg", "fft", "drr", "sif-opt", "sif-opt-moves"),
        *("spread", "pack", "kai", "threshold", "slurm", "random", "first-fit"),
    }  # fmt: skip


def test_what_was_measured_is_kept_and_not_measured_again(tmp_path: Path) -> None:
    trace, path = synthesize(workload("venus"), 1, 1), tmp_path / "rows.jsonl"
    assert trace.jobs[-1].submitted < DAY
    first = Measured(path).get(trace, 1, "fifo", "gfs")
    (line,) = path.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)[1] == first
    path.write_text(line.replace(json.dumps(first["ajct"]), "42.0") + "\n", encoding="utf-8")
    assert Measured(path).get(trace, 1, "fifo", "gfs")["ajct"] == 42.0
    assert len(path.read_text(encoding="utf-8").splitlines()) == 1
