"""One run: what its key depends on, and what comes out."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from compass_abs.experiments import Cell, cells_of, run_cell
from compass_abs.experiments.cell import NEVER_MOVING
from compass_abs.experiments.study import WindowSpec
from compass_abs.experiments.workloads import day_of_work, pin
from compass_abs.simulation import PaperCost, Setup, record
from tests.experiments.small import small_study


def cell(scheduler: str = "compass-abs", **changes: object) -> Cell:
    first = next(each for each in cells_of(small_study(eta=[0.9])) if each.scheduler == "compass-abs")
    return replace(first, scheduler=scheduler, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"day": 3},
        {"eta": 0.85},
        {"nodes": 30},
        {"scheduler": "gfs"},
        {"scheduler": "compass-jit:tidiness=peak"},
        {"queue": "sjf"},
        {"cost": 9.0},
        {"pinned": 0.5},
        {"window": WindowSpec(start=1, end=2)},
    ],
)
def test_key_with_another_input_is_another(changes: dict[str, object]) -> None:
    assert replace(cell(), **changes).key() != cell().key()  # type: ignore[arg-type]


def test_key_of_the_same_inputs_is_the_same_whatever_the_label() -> None:
    renamed = cell().workload.model_copy(update={"label": "another name"})
    assert replace(cell(), workload=renamed).key() == cell().key()


def test_key_of_a_file_changes_with_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from compass_abs.experiments import fingerprint

    path = tmp_path / "trace.csv"
    path.write_text("a")
    before = fingerprint.file_version(path)
    fingerprint.file_version.cache_clear()
    path.write_text("b")
    assert fingerprint.file_version(path) != before


@pytest.mark.parametrize("name", sorted(NEVER_MOVING))
def test_scheduler_said_never_to_move_has_one_key_for_all_costs_and_moves_nothing(name: str) -> None:
    assert cell(name, cost=1.0).key() == cell(name, cost=60.0, pinned=0.5).key()
    assert run_cell(cell(name))["summary"]["migrations"] == 0


def test_run_of_a_cell_gives_what_a_simulation_gives() -> None:
    one = cell()
    work = day_of_work(one.workload, one.day)
    setup = Setup("compass-abs", work.nodes(0.9), cost=PaperCost(8.0))
    expected = record(work.jobs, setup, history=work.history).summary
    assert run_cell(one)["summary"] == expected.as_dict()


def test_pinned_jobs_of_a_larger_share_include_those_of_a_smaller() -> None:
    jobs = day_of_work(cell().workload, 2).jobs
    pinned = [{job.id for job in pin(jobs, share, 1) if not job.movable} for share in (0.0, 0.25, 0.5, 1.0)]
    assert pinned[0] == set()
    assert pinned[0] < pinned[1] < pinned[2] < pinned[3] == {job.id for job in jobs}
    assert 0.15 < len(pinned[1]) / len(jobs) < 0.35


def test_everything_pinned_leaves_nothing_to_move() -> None:
    assert run_cell(cell("compass-jit", eta=0.85))["summary"]["migrations"] > 0
    assert run_cell(cell("compass-jit", eta=0.85, pinned=1.0))["summary"]["migrations"] == 0


def test_window_meter_agrees_with_the_recorded_time_series() -> None:
    """Means and blocking within the window, once more from the simulator's own table."""
    window = WindowSpec(start=9.0, end=17.5)
    crowded = small_study(workloads=[{"synth": "demo", "length": 2, "days": [2]}], schedulers=["gfs"], eta=[0.85])
    one = replace(cells_of(crowded)[0], window=window)
    found = run_cell(one)
    work = day_of_work(one.workload, one.day)
    table = record(work.jobs, Setup("gfs", found["nodes"]), history=work.history).timeseries
    start, end = ((one.day - 1) * 86_400 + hour * 3600 for hour in (window.start, window.end))
    rows = list(table.select("time_us", "n_sif", "used_gpus", "blocked").iter_rows())
    sif = used = blocked = 0.0
    for (time_us, n_sif, used_gpus, verdict), (next_us, *_) in pairwise(rows):
        span = min(next_us / 1e6, end) - max(time_us / 1e6, start)
        if span > 0:
            sif += n_sif * span
            used += used_gpus * span
            blocked += span * (verdict == "fragmentation")
    length = end - start
    assert blocked > 0
    assert found["window"]["window_n_sif"] == pytest.approx(sif / length)
    assert found["window"]["window_utilisation"] == pytest.approx(used / length / found["nodes"] / 8)
    assert found["window"]["window_blocked_fragmentation"] == pytest.approx(blocked)
    assert all(start <= time < end for time in found["series"]["times"])
