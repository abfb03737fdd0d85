"""The page that holds our numbers against the paper's: every one computed, none typed."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml

from compass_abs.experiments import ResultStore, StudyError, cells_of, evaluate, load_study, run_cells, shipped_studies
from compass_abs.experiments.executors.local import LocalExecutor
from compass_abs.experiments.output import StudyResult
from compass_abs.experiments.paper_and_us import _paper_values, write_comparison_with_paper
from compass_abs.experiments.paper_measures import bucket_cells, measure
from compass_abs.experiments.rankings import ranking
from tests.experiments.small import small_study

CONTENT = {"field": ["gfs", "fft"], "subject": "compass-abs"}


def study_of(rows: list[dict[str, Any]]) -> dict[str, StudyResult]:
    """A study whose runs are given, not made."""
    same = {"trace": "venus", "eta": 0.9, "nodes": 40, "queue": "fifo", "cost": 8.0, "pinned": 0.0, "wcc_coverage": 1.0}
    frame = pl.DataFrame([same | row for row in rows])
    study = small_study(
        schedulers=["gfs", "fft", "compass-abs"],
        figures=[],
        tables=[],
        rankings=[{"name": "top", "subject": "compass-abs", "field": ["gfs", "fft"]}],
    )
    return {"s": StudyResult(study, [], [], frame, {}, {"top": ranking(frame, study.rankings[0])})}


KNOWN = study_of(
    [
        {"day": day, "scheduler": name, "ajct": ajct + day, "afr": afr, "agu": agu}
        for day in (1, 2)
        for name, ajct, afr, agu in (
            ("gfs", 1200.0, 0.3, 0.8),
            ("fft", 1100.0, 0.06, 0.9),
            ("compass-abs", 1000.0, 0.04 * day, 0.92),
        )
    ]
)


@pytest.mark.parametrize(
    ("row", "ours"),
    [
        ({"measure": "lead", "metric": "ajct", "kind": "seconds"}, "+100 s ± 0.0 (FFT)"),
        ({"measure": "lead", "metric": "ajct", "kind": "seconds", "without": ["fft"]}, "+200 s ± 0.0 (GFS (best fit))"),
        ({"measure": "lead", "metric": "agu", "kind": "points"}, "+2.00 points ± 0.00 (FFT)"),
        ({"measure": "band", "metric": "afr", "kind": "number", "over": ["day"]}, "0.0400 to 0.0800"),
        ({"measure": "band", "metric": "afr", "kind": "number", "over": []}, "0.0600"),
        ({"measure": "lowest", "metric": "agu", "kind": "number", "over": ["day"]}, "0.920"),
        ({"measure": "spread", "metric": "afr", "kind": "number", "over": ["day"]}, "100.000 % between the extremes"),
        ({"measure": "field_band", "metric": "afr", "kind": "number"}, "0.0600 (FFT) to 0.300 (GFS (best fit))"),
        (
            {"measure": "field_band", "metric": "ajct", "kind": "seconds", "over": ["day"]},
            "1,101 s (FFT) to 1,202 s (GFS (best fit))",
        ),
        ({"measure": "field_band", "metric": "cost", "kind": "seconds"}, "8.00 s"),
        ({"measure": "leads", "metrics": ["ajct", "afr", "agu"], "over": ["day"]}, "5 of 6"),
        ({"measure": "leads", "metrics": ["afr"], "over": ["day"], "without": ["fft"]}, "2 of 2"),
        ({"measure": "below_bound"}, "1 of 2"),
        ({"measure": "pairs", "ranking": "top", "buckets": ["1.0"]}, "2 of 2 (100.0 %)"),
        ({"measure": "first", "ranking": "top", "metric": "afr"}, "50.0 % of 2 (1 alone)"),
        ({"measure": "first", "ranking": "top", "metric": "agu"}, "100.0 % of 2 (2 alone)"),
    ],
)
def test_measure_of_known_runs_is_what_arithmetic_says(row: dict[str, Any], ours: str) -> None:
    assert measure({"study": "s", "trace": "venus", "what": "it", **row}, KNOWN, CONTENT) == ours


def test_lead_of_a_baseline_is_negative() -> None:
    behind = study_of(
        [
            {"day": 1, "scheduler": name, "ajct": ajct, "afr": 0.0, "agu": 0.9}
            for name, ajct in (("gfs", 1200.0), ("fft", 990.0), ("compass-abs", 1000.0))
        ]
    )
    row = {"study": "s", "trace": "venus", "what": "it", "measure": "lead", "metric": "ajct", "kind": "seconds"}
    assert measure(row, behind, CONTENT) == "-10 s (FFT)"


def test_lead_has_the_standard_error_of_the_days_differences() -> None:
    """Days 300 s apart, leads of 90 and 110 s: their error is 10 s, however much the days themselves differ."""
    rows = [
        {"day": day, "scheduler": name, "ajct": ajct, "afr": 0.0, "agu": 0.9}
        for day, ajct, lead in ((1, 1000.0, 90.0), (2, 1300.0, 110.0))
        for name, ajct in (("gfs", ajct + 900), ("fft", ajct + lead), ("compass-abs", ajct))
    ]
    row = {"study": "s", "trace": "venus", "what": "it", "measure": "lead", "metric": "ajct", "kind": "seconds"}
    assert measure(row, study_of(rows), CONTENT) == "+100 s ± 10 (FFT)"


def test_where_of_whole_numbers_finds_runs_whose_column_has_fractions() -> None:
    row = {"study": "s", "trace": "venus", "what": "it", "measure": "lead", "metric": "ajct", "kind": "seconds"}
    assert measure(row | {"where": {"cost": [8, 40]}}, KNOWN, CONTENT) == "+100 s ± 0.0 (FFT)"
    with pytest.raises(StudyError, match="has no run for 'it'"):
        measure(row | {"where": {"cost": [7]}}, KNOWN, CONTENT)


def test_bucket_of_table_3_shows_our_pairs_and_firsts_or_that_it_is_empty() -> None:
    row = {"study": "s", "ranking": "top", "trace": "venus"}
    assert bucket_cells(row | {"bucket": "1.0"}, KNOWN, ["afr", "ajct"]) == (
        "2",
        {"afr": "1 (50.0 %)", "ajct": "2 (100.0 %)"},
    )
    assert bucket_cells(row | {"bucket": "[0, 0.1)"}, KNOWN, ["afr"]) is None


def test_measure_without_runs_or_of_an_unknown_kind_is_refused() -> None:
    row = {"study": "s", "trace": "mars", "what": "it", "measure": "lead", "metric": "ajct", "kind": "seconds"}
    with pytest.raises(StudyError, match="has no run for 'it'"):
        measure(row, KNOWN, CONTENT)
    with pytest.raises(StudyError, match="asks for measure 'guess'"):
        measure({"measure": "guess"}, KNOWN, CONTENT)


def test_every_row_of_the_papers_table_asks_for_what_its_study_has() -> None:
    content = _paper_values()
    table = content["table_3"]
    for row in [*content["values"], *({**table, **bucket} for bucket in table["rows"])]:
        assert row["study"] in shipped_studies(), row
        study = load_study(row["study"])
        assert row.get("trace", study.workloads[0].name) in [workload.name for workload in study.workloads], row
        wanted = [row.get("scheduler", content["subject"]), *content["field"]]
        assert set(wanted) <= set(study.schedulers), row
        if "ranking" in row:
            assert row["ranking"] in [spec.name for spec in study.rankings], row
        for column, value in row.get("where", {}).items():
            values = getattr(study, {"eta": "eta", "cost": "costs"}[column])
            assert set(value if isinstance(value, list) else [value]) <= set(values), row
    for row in content["values"]:
        assert set(row.get("why", ())) <= set(content["notes"]), row


def test_page_written_from_a_study_has_each_of_its_rows_and_the_reasons(tmp_path: Path) -> None:
    """The case study in small: its window is short and its day quiet, but every row must come out."""
    shipped = load_study("case-study").model_dump(mode="json")
    shipped["workloads"] = [{"synth": "demo", "label": "gfs-like", "knobs": {"load": 0.15}}]
    shipped["eta"], shipped["window"] = [0.85], {"start": 10, "end": 11}
    study = type(load_study("case-study")).model_validate(shipped)
    cells = cells_of(study)
    result = evaluate(study, cells, run_cells(cells, ResultStore(tmp_path), LocalExecutor(1, {})))
    page = write_comparison_with_paper([result], tmp_path / "docs")
    assert page is not None
    text = page.read_text()
    rows = [row for row in _paper_values()["values"] if row.get("study") == "case-study"]
    for row in rows:
        assert f"| {row['what']} | {row['paper'] or '–'} | " in text
    assert "## Why they differ\n\n1. " in text
    tables = (tmp_path / "docs" / "paper-results.md").read_text()
    assert "## Fragmentation over ninety minutes" in tables
    assert "](figures/paper-case-study-window.png)" in tables
    assert (tmp_path / "docs" / "figures" / "paper-case-study-window.png").stat().st_size < 200_000
    again = write_comparison_with_paper([result], tmp_path / "again")
    assert again is not None
    assert again.read_text() == text


def test_page_of_a_foreign_study_is_not_written(tmp_path: Path) -> None:
    assert write_comparison_with_paper(list(KNOWN.values()), tmp_path) is None


def test_instance_shares_come_out_as_in_the_papers_tables(traces: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPASS_TRACES", str(traces))
    content = _paper_values()
    known = {
        name: StudyResult(load_study(name), [], [], pl.DataFrame(), {}, {}) for name in ("coverage", "composition")
    }
    for row in content["values"]:
        if row["measure"] == "instance_share":
            paper, ours = (float(text.removesuffix(" %")) for text in (row["paper"], measure(row, known, content)))
            # Synthetic days are drawn from the paper's shares, gangs and all, and miss them by chance.
            near = (3.0, 0.05) if "gfs" in row.get("why", ()) else (0.4, 0.006)
            assert ours == pytest.approx(paper, abs=near[0] if "%" in row["paper"] else near[1]), row["what"]


def test_values_file_is_the_papers_table_as_yaml() -> None:
    """Quoted as printed: no number of ours has found its way into it."""
    from importlib.resources import files

    content = yaml.safe_load((files("compass_abs.experiments") / "paper_values.yaml").read_text(encoding="utf-8"))
    for row in content["values"]:
        assert set(row) <= {
            "section", "what", "paper", "study", "measure", "metric", "trace", "kind", "why", "without", "where",
            "over", "ranking", "buckets", "scheduler", "size", "metrics",
        }  # fmt: skip
        assert isinstance(row["paper"], str)
    table = content["table_3"]
    for trace, pairs in (("venus", 564), ("gfs-like", 552)):
        rows = [row for row in table["rows"] if row["trace"] == trace and row["bucket"] != "total"]
        assert sum(int(row["pairs"]) for row in rows) == pairs
        for metric in table["metrics"]:
            for row in rows:
                count, percent = row[metric].removesuffix(" %)").split(" (")
                assert int(count) / int(row["pairs"]) * 100 == pytest.approx(float(percent), abs=0.1)
