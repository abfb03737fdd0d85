"""Reports of racks: jobs in whole panels, empty racks, the same from run directories, and what the page says."""

from pathlib import Path
from typing import Any

import pytest

from compass_abs.model import ClusterState, Job, NodeStatus
from compass_abs.reporting import Comparison, JobView, ReportError, RunView, verdict, write_report
from compass_abs.reporting.racks import empty_racks, view_of
from compass_abs.reporting.recorder import ReportRecorder
from compass_abs.reporting.run_directories import comparison_of
from compass_abs.simulation import NodeChange, Observer, Result, Setup, record
from compass_abs.simulation.clock import SECOND
from compass_abs.simulation.meter import Meter
from compass_abs.simulation.observer import Several
from compass_abs.topology import PRESETS
from compass_abs.traces.synthesis import synthesize
from compass_abs.traces.workloads import workload
from tests.reporting.browser import Watched, launched

PAPER = PRESETS["nvl72-paper"]
JOBS = list(synthesize(workload("nvl72"), 1, 5).jobs[:160])
PANELS = 36


class RacksCounted(Observer):
    """Empty racks whenever time passes, counted out."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.seen: dict[float, int] = {}

    def passed(self, now: int, until: int, meter: Meter, busy: int, waiting: int) -> None:
        empty = self.state.by_free[8]
        racks = range(0, PANELS, 9)
        self.seen[now / SECOND] = sum(all(first + k in empty for k in range(9)) for first in racks)


def run_of(scheduler: str, **setup: Any) -> tuple[RunView, Result, RacksCounted]:
    watching: list[tuple[ReportRecorder, RacksCounted]] = []

    def observe(state: ClusterState) -> Observer:
        watching.append((ReportRecorder(state), RacksCounted(state)))
        return Several(watching[0])

    described = Setup(scheduler, PANELS, topology=PAPER, **setup)
    result = record(JOBS, described, about={"name": "racks"}, observe=observe)
    recorder, counted = watching[0]
    return recorder.run_view(scheduler, result.summary), result, counted


def test_job_larger_than_a_panel_is_seen_in_whole_panels_and_says_how_many_make_an_instance() -> None:
    assert view_of(Job("a", 2, 20), PAPER, 5.0) == JobView("a", 6, 8, 5.0, 3)
    assert view_of(Job("a", 2, 8), PAPER, 5.0) == JobView("a", 2, 8, 5.0, 1)
    assert view_of(Job("a", 2, 20), None, 5.0) == JobView("a", 2, 20, 5.0, 1)


@pytest.mark.parametrize("scheduler", ["hierarchical", "tightest-rack"])
def test_empty_racks_drawn_are_those_of_the_cluster(scheduler: str) -> None:
    changes = (
        NodeChange(20_000.0, "rack3-panel4", NodeStatus.LOST),
        NodeChange(40_000.0, "rack3-panel4", NodeStatus.UP),
    )
    run, _, counted = run_of(scheduler, node_changes=changes)
    series = run.series["empty_racks"]
    drawn = dict(zip(series.times, series.values, strict=True))
    compared = [(drawn[time], number) for time, number in counted.seen.items() if time in drawn]
    assert len(compared) > 150
    assert all(one == other for one, other in compared)
    assert len({number for number, _ in compared}) > 2
    assert series == empty_racks(run.events, PANELS, 9)


def test_run_directories_of_racks_give_the_same_report_as_watching(tmp_path: Path) -> None:
    watched = []
    for name in ("hierarchical-jit", "tightest-rack"):
        run, result, _ = run_of(name)
        watched.append(run)
        result.save(tmp_path / name)
    read = comparison_of([tmp_path])
    assert read.topology == PAPER
    assert read.cluster == "4 racks of 9 panels of 8 GPUs"
    assert read.settings["cluster"] == read.cluster
    assert [run.events for run in read.runs] == [run.events for run in watched]
    assert [run.series for run in read.runs] == [run.series for run in watched]
    assert any(job.panels == 9 for job in read.jobs)


def test_run_directories_of_different_topologies_are_refused(tmp_path: Path) -> None:
    for name in ("nvl72-paper", "nvl576"):
        record(JOBS[:5], Setup("tightest-rack", 72, topology=PRESETS[name])).save(tmp_path / name)
    with pytest.raises(ReportError, match="have different topologies"):
        comparison_of([tmp_path])


def test_bound_of_racks_competes_with_nobody() -> None:
    assert verdict([RunView("hierarchical-opt", {"ajct": 1.0}), RunView("tightest-rack", {"ajct": 2.0})]).startswith(
        "tightest-rack completes jobs soonest"
    )


def test_page_of_racks_says_what_is_asked_in_panels_and_which_racks_are_empty(tmp_path: Path) -> None:
    jobs = [Job("wide", 1, 24, 0.0, 90.0), Job("rack", 2, 72, 10.0, 50.0)]
    setup, watching = Setup("tightest-rack", 18, topology=PAPER), list[ReportRecorder]()

    def observe(state: ClusterState) -> ReportRecorder:
        watching.append(ReportRecorder(state))
        return watching[0]

    result = record(jobs, setup, observe=observe)
    run = watching[0].run_view("tightest-rack", result.summary)
    path = write_report(Comparison("racks", watching[0].jobs, 18, [run], topology=PAPER), tmp_path / "racks.html")
    with launched() as browser:
        watched = Watched(browser)
        page = watched.open(path.as_uri())
        page.fill("#time", "4000")
        watched.settle()
        assert "1 rack empty" in page.inner_text("#facts-left")
        assert "1 waiting, the first for 2 × 9 whole panels together" in page.inner_text("#facts-left")
        box = page.locator("#cluster-left").bounding_box()
        page.mouse.move(box["x"] + 5, box["y"] + 10)
        watched.settle()
        assert page.inner_text("#hover") == "rack0-panel0: job wide, 3 whole panels together"
        assert "Empty racks" in page.inner_text("#charts")
        assert "2 racks of 9 panels of 8 GPUs" in page.inner_text("main")
        assert watched.complaints == []
