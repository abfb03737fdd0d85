"""From runs to tables, rankings and figures: checked against arithmetic done by hand, and twice for equal bytes."""

from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import polars as pl
import pytest

from compass_abs.experiments import (
    ResultStore,
    StudyError,
    StudyResult,
    cells_of,
    evaluate,
    run_cell,
    run_cells,
    write_page,
    write_study,
)
from compass_abs.experiments.columns import WINDOW, columns_of
from compass_abs.experiments.executors.local import LocalExecutor
from compass_abs.experiments.frames import means
from compass_abs.experiments.rankings import ranking
from compass_abs.experiments.study import RankingSpec, WindowSpec
from compass_abs.reporting.metrics import duration
from tests.experiments.small import small_study


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> StudyResult:
    study = small_study()
    cells = cells_of(study)
    store = ResultStore(tmp_path_factory.mktemp("store"))
    return evaluate(study, cells, run_cells(cells, store, LocalExecutor(1, {})))


@pytest.fixture(scope="module")
def folder(result: StudyResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_study(result, tmp_path_factory.mktemp("written") / "first")


def test_ratio_to_the_bound_is_that_of_the_same_day_and_cluster(result: StudyResult) -> None:
    rows = list(result.runs.iter_rows(named=True))
    for row in rows:
        bound = next(
            r for r in rows if r["scheduler"] == "sif-opt" and (r["day"], r["eta"]) == (row["day"], row["eta"])
        )
        assert row["ajct_ratio"] == row["ajct"] / bound["ajct"]
        assert row["ajct_above_bound"] == pytest.approx(row["ajct_ratio"] - 1)


def test_table_of_means_weighs_each_day_the_same(result: StudyResult) -> None:
    table = result.tables["overall"]
    for row in table.iter_rows(named=True):
        own = [
            r["ajct"]
            for r in result.runs.iter_rows(named=True)
            if (r["scheduler"], r["eta"]) == (row["scheduler"], row["eta"])
        ]
        assert row["runs"] == len(own) == 2
        assert row["ajct"] == pytest.approx(mean(own))


def test_mean_of_a_metric_is_over_the_days_that_have_it() -> None:
    frame = runs((1, "us", None, 100.0, None, 1.0), (2, "us", 0.1, 100.0, 0.8, 1.0), (3, "us", 0.3, 100.0, 0.9, 1.0))
    found = means(frame, ["scheduler"], ["afr", "agu", "ajct"])
    assert (found["afr"][0], found["agu"][0], found["ajct"][0]) == pytest.approx((0.2, 0.85, 100))


def test_error_bars_are_standard_errors_of_the_mean(result: StudyResult) -> None:
    found = means(result.runs, ["scheduler"], ["afr"]).filter(pl.col("scheduler") == "gfs")
    own = [r["afr"] for r in result.runs.iter_rows(named=True) if r["scheduler"] == "gfs"]
    assert found["afr_error"][0] == pytest.approx(stdev(own) / len(own) ** 0.5)


def test_columns_known_before_a_study_runs_are_those_that_it_has(result: StudyResult) -> None:
    assert sorted(columns_of(result.study)) == sorted(result.runs.columns)


def test_columns_of_a_window_are_those_that_its_meter_gives() -> None:
    window = WindowSpec(start=8, end=9)
    one = replace(cells_of(small_study(eta=[0.9]))[0], window=window)
    assert sorted(WINDOW) == sorted(run_cell(one)["window"])


def test_table_of_an_unknown_column_is_refused(result: StudyResult) -> None:
    with pytest.raises(StudyError, match="no column 'speed'"):
        means(result.runs, ["scheduler"], ["speed"])


def runs(*rows: tuple[int, str, float | None, float, float | None, float]) -> pl.DataFrame:
    """Day, scheduler, AFR, AJCT, AGU and ρ of runs that nobody had to make."""
    same = {"trace": "t", "eta": 0.9, "nodes": 9, "queue": "fifo", "cost": 8.0, "pinned": 0.0}
    return pl.DataFrame(
        [
            same | {"day": day, "scheduler": name, "afr": afr, "ajct": ajct, "agu": agu, "wcc_coverage": rho}
            for day, name, afr, ajct, agu, rho in rows
        ]
    )


def test_ranking_counts_firsts_ties_and_buckets() -> None:
    frame = runs(
        (1, "us", 0.0, 100.0, 0.9, 1.0), (1, "them", 0.1, 100.0, 0.8, 1.0), (1, "sif-opt", 0.0, 1.0, 1.0, 1.0),
        (2, "us", 0.2, 100.0, 0.9, 0.95), (2, "them", 0.1, 101.0, 0.95, 1.0), (2, "sif-opt", 0.0, 1.0, 1.0, 1.0),
        (3, "us", 0.0, 100.0, 0.9, 0.05), (3, "them", 0.0, 99.0, 0.9 + 1e-12, 1.0), (3, "sif-opt", 0.0, 1.0, 1.0, 1.0),
    )  # fmt: skip
    rows = ranking(frame, RankingSpec(name="r", subject="us"))
    assert [(row.bucket, row.pairs) for row in rows] == [
        ("1.0", 1), ("[0.9, 0.99)", 1), ("[0, 0.1)", 1), ("total", 3),
    ]  # fmt: skip
    assert rows[0].first == {"afr": 1, "ajct": 1, "agu": 1}
    assert rows[0].alone == {"afr": 1, "ajct": 0, "agu": 1}
    assert rows[1].first == {"afr": 0, "ajct": 1, "agu": 0}
    assert rows[2].first == {"afr": 1, "ajct": 0, "agu": 1}
    assert rows[-1].first == {"afr": 2, "ajct": 2, "agu": 2}
    assert rows[-1].share("agu") == pytest.approx(2 / 3)


def test_ranking_puts_nobody_before_a_scheduler_under_whom_nobody_waits() -> None:
    frame = runs(
        (1, "us", None, 100.0, None, 1.0), (1, "them", 0.1, 101.0, 0.99, 1.0),
        (2, "us", 0.0, 100.0, 0.99, 1.0), (2, "them", None, 99.0, None, 1.0),
        (3, "us", None, 100.0, None, 1.0), (3, "them", None, 100.0, None, 1.0),
    )  # fmt: skip
    total = ranking(frame, RankingSpec(name="r", subject="us"))[-1]
    assert total.first == {"afr": 2, "ajct": 2, "agu": 2}
    assert total.alone == {"afr": 1, "ajct": 1, "agu": 1}


def test_ranking_leaves_out_days_on_which_somebody_of_the_field_did_not_run() -> None:
    frame = runs((1, "us", 0.0, 1.0, 1.0, 1.0), (1, "them", 0.1, 2.0, 0.9, 1.0), (2, "us", 0.0, 1.0, 1.0, 1.0))
    assert ranking(frame, RankingSpec(name="r", subject="us"))[-1].pairs == 1


def test_ranking_of_a_stranger_is_refused() -> None:
    frame = runs((1, "us", 0.0, 1.0, 1.0, 1.0))
    with pytest.raises(StudyError, match="'them' did not run; these did: us"):
        ranking(frame, RankingSpec(name="r", subject="us", field=("them",)))


def test_study_written_twice_has_the_same_bytes(result: StudyResult, folder: Path, tmp_path: Path) -> None:
    again = write_study(result, tmp_path / "second")
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "README.md", "bars.pdf", "bars.png", "lines.pdf", "lines.png", "overall.csv", "points.pdf", "points.png",
        "runs.parquet",
    ]  # fmt: skip
    for name in names:
        assert (folder / name).read_bytes() == (again / name).read_bytes(), name


def test_page_of_a_study_says_that_its_jobs_are_synthetic(folder: Path) -> None:
    page = (folder / "README.md").read_text()
    assert "these jobs are synthetic" in page
    assert "| 0.85 | GFS (best fit) | 2 |" in page


def test_parquet_has_a_row_a_run_and_no_measured_times(result: StudyResult, folder: Path) -> None:
    table = pl.read_parquet(folder / "runs.parquet")
    assert len(table) == len(result.cells)
    assert "seconds" not in table.columns


def test_case_study_has_a_figure_of_its_window(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "window": {"start": 8, "end": 18}, "schedulers": ["gfs", "compass-jit"], "eta": [0.85], "figures": [],
        "rankings": [], "tables": [{"name": "w", "by": ["scheduler"], "values": ["window_n_sif"]}],
        "workloads": [{"synth": "demo", "length": 1}],
    }  # fmt: skip
    study = small_study(**changes)
    cells = cells_of(study)
    found = evaluate(study, cells, run_cells(cells, ResultStore(tmp_path), LocalExecutor(1, {})))
    folder = write_study(found, tmp_path / "out", ["svg"])
    assert "Avoidable partial nodes" in (folder / "window.svg").read_text()


def test_page_of_a_study_shows_its_first_day_under_everybody(result: StudyResult, tmp_path: Path) -> None:
    page = write_page(result.study, tmp_path / "report.html").read_text()
    first = [r for r in result.runs.iter_rows(named=True) if (r["day"], r["eta"]) == (2, 0.85)]
    rows = page.partition('<table id="comparison">')[2].partition("</table>")[0]
    assert rows.count("<tr") == 1 + len(first)
    for run in first:
        assert f"<td>{duration(run['ajct'])}</td>" in rows or f"<strong>{duration(run['ajct'])}</strong>" in rows
    assert "these jobs are synthetic" in page


def test_page_of_a_study_says_nothing_of_workloads_that_it_does_not_show(tmp_path: Path) -> None:
    shown = {"synth": "demo", "length": 1, "label": "shown"}
    study = small_study(schedulers=["gfs"], workloads=[shown, {"synth": "venus", "label": "elsewhere"}])
    page = write_page(study, tmp_path / "report.html").read_text()
    assert "shown: these jobs are synthetic" in page
    assert "elsewhere" not in page
