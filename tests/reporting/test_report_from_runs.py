"""Reports of real simulations: watched while they run, or read from run directories; and figures."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from compass_abs.model import Job, NodeStatus
from compass_abs.reporting import Comparison, Ended, Moved, NodeChanged, ReportError, RunView, Started, render_report
from compass_abs.reporting.figures import FigureData, Panel, Point, draw, save
from compass_abs.reporting.palette import LOOKS, name_of
from compass_abs.reporting.recorder import ReportRecorder
from compass_abs.reporting.run_directories import comparison_of
from compass_abs.simulation import NodeChange, Setup, record
from tests.reporting.sample import random_jobs, sample_comparison

JOBS = random_jobs(4, 150, 4)
NODES = 12


def run_of(scheduler: str, jobs: list[Job] = JOBS, nodes: int = NODES, **setup: object) -> tuple[RunView, object]:
    """A simulation watched by a recorder, and its result."""
    watching: list[ReportRecorder] = []

    def observe(state: object) -> ReportRecorder:
        watching.append(ReportRecorder(state))  # type: ignore[arg-type]
        return watching[0]

    result = record(jobs, Setup(scheduler, nodes, **setup), about={"name": "made up"}, observe=observe)  # type: ignore[arg-type]
    return watching[0].run_view(scheduler, result.summary), result


def occupancy(run: RunView, jobs: list[Job]) -> list[tuple[float, int]]:
    """GPUs in use after each instant, from nothing but the events."""
    where: dict[tuple[int, int], int] = {}
    steps: dict[float, int] = {}
    for event in run.events:
        if isinstance(event, Started):
            where |= {(event.job, k): node for k, node in enumerate(event.nodes)}
        elif isinstance(event, Ended):
            where = {key: node for key, node in where.items() if key[0] != event.job}
        elif isinstance(event, Moved):
            assert (event.job, event.instance) in where
            where[event.job, event.instance] = event.target
        steps[event.time] = sum(jobs[job].gpus for job, _ in where)
    return list(steps.items())


@pytest.mark.parametrize("scheduler", ["gfs", "compass-abs", "compass-jit"])
def test_recorded_events_replayed_use_the_gpus_that_the_series_says(scheduler: str) -> None:
    run, _ = run_of(scheduler)
    series = run.series["utilisation"]
    level = dict(zip(series.times, series.values, strict=True))
    compared = 0
    for time, used in occupancy(run, JOBS):
        if time in level:
            assert level[time] == pytest.approx(used / NODES / 8)
            compared += 1
    assert compared > len(JOBS)


def test_recorded_moves_are_those_of_the_summary() -> None:
    run, _ = run_of("compass-abs")
    assert run.summary["migrations"] == sum(isinstance(event, Moved) for event in run.events) > 0


def test_oracle_recorded_has_series_and_no_picture() -> None:
    run, _ = run_of("sif-opt")
    assert run.events == []
    assert max(run.series["utilisation"].values) > 0.5


def test_lost_node_is_recorded_and_its_gangs_start_again() -> None:
    changes = (NodeChange(20_000.0, "n0", NodeStatus.LOST), NodeChange(40_000.0, "n0", NodeStatus.UP))
    run, _ = run_of("gfs", node_changes=changes)
    assert [event for event in run.events if isinstance(event, NodeChanged)] == [
        NodeChanged(20_000.0, 0, 0), NodeChanged(40_000.0, 0, 1),
    ]  # fmt: skip
    starts = [event.job for event in run.events if isinstance(event, Started)]
    assert len(starts) > len(JOBS)


def test_node_that_joins_is_drawn_from_then_on(tmp_path: Path) -> None:
    changes = (NodeChange(20_000.0, "n0", NodeStatus.CORDONED), NodeChange(30_000.0, "extra", NodeStatus.UP))
    run, result = run_of("gfs", node_changes=changes)
    assert [event for event in run.events if isinstance(event, NodeChanged)] == [
        NodeChanged(run.events[1].time, NODES, 0), NodeChanged(20_000.0, 0, 0), NodeChanged(30_000.0, NODES, 1),
    ]  # fmt: skip
    assert max(run.series["utilisation"].values) <= 1
    result.save(tmp_path / "gfs")  # type: ignore[attr-defined]
    read = comparison_of([tmp_path])
    assert read.nodes == NODES + 1
    assert read.runs[0].events == run.events
    assert read.runs[0].series == run.series
    assert "<html" in render_report(read)


def test_run_directories_give_the_same_report_as_watching(tmp_path: Path) -> None:
    watched = []
    for name in ("gfs", "compass-jit"):
        run, result = run_of(name)
        watched.append(run)
        result.save(tmp_path / name)  # type: ignore[attr-defined]
    read = comparison_of([tmp_path / "gfs", tmp_path / "compass-jit"])
    assert read.title == "made up"
    assert [run.events for run in read.runs] == [run.events for run in watched]
    assert [run.series for run in read.runs] == [run.series for run in watched]
    assert [dict(run.summary) for run in read.runs] == [dict(run.summary) for run in watched]
    assert comparison_of([tmp_path]).runs == comparison_of([tmp_path / "compass-jit", tmp_path / "gfs"]).runs


def test_run_directories_of_different_jobs_are_refused(tmp_path: Path) -> None:
    for name, jobs in (("a", JOBS), ("b", JOBS[1:])):
        run_of("gfs", jobs)[1].save(tmp_path / name)  # type: ignore[attr-defined]
    with pytest.raises(ReportError, match="replayed different jobs"):
        comparison_of([tmp_path])


def test_run_directories_of_different_clusters_are_refused(tmp_path: Path) -> None:
    for name, nodes in (("a", NODES), ("b", NODES + 1)):
        run_of("gfs", nodes=nodes)[1].save(tmp_path / name)  # type: ignore[attr-defined]
    with pytest.raises(ReportError, match=r"has nodes 13 and .* 12"):
        comparison_of([tmp_path])


def test_report_rendered_twice_has_the_same_bytes() -> None:
    assert render_report(sample_comparison()) == render_report(sample_comparison())


def test_rendering_a_report_says_how_far_it_is() -> None:
    sample, seen = sample_comparison(), list[int]()
    assert render_report(sample, progress=seen.append) == render_report(sample)
    assert seen == list(range(1, 2 * len(sample.runs) + 1))


def test_report_that_would_be_too_large_leaves_pictures_out_and_says_whose() -> None:
    sample = sample_comparison(jobs=600, nodes=60)
    runs = (*sample.runs[:2], replace(sample.runs[0], label="third"))
    full = render_report(replace(sample, runs=runs))
    assert "has no pictures" not in full
    small = render_report(replace(sample, runs=runs), size_limit=len(full))
    assert "it has no pictures of the cluster under third." in small
    assert len(small) < len(full)


def test_event_of_an_unknown_job_or_node_is_refused() -> None:
    sample = sample_comparison(jobs=20)
    for event in (Ended(1e9, 20), Started(1e9, 0, (24,)), Moved(1e9, 0, 0, 24)):
        broken = replace(sample.runs[0], events=[*sample.runs[0].events, event])
        with pytest.raises(ReportError, match="names a job or node that"):
            render_report(replace(sample, runs=(broken,)))


def test_report_with_nothing_but_metrics_has_table_and_no_pictures() -> None:
    page = render_report(Comparison("bare", [], 4, [RunView("gfs", {"ajct": 5.0}), RunView("fgd", {"ajct": 6.0})]))
    assert "<strong>5.0 s</strong>" in page
    assert 'id="panels"' not in page
    assert 'id="charts"' not in page


@pytest.mark.parametrize("kind", ["bars", "lines", "points", "steps"])
def test_figure_drawn_twice_has_the_same_bytes_and_names_its_schedulers(kind: str, tmp_path: Path) -> None:
    series = {name: [Point(x, x * 0.5 + i, 0.1) for x in (1, 2, 3)] for i, name in enumerate(("gfs", "compass-abs"))}
    data = FigureData(kind, [Panel("AFR", series, "η"), Panel("AGU", series, "η")])  # type: ignore[arg-type]
    for folder in ("first", "second"):
        save(draw(data), tmp_path / folder / "figure", ["pdf", "png", "svg"])
    for ending in ("pdf", "png", "svg"):
        first, second = (tmp_path / folder / f"figure.{ending}" for folder in ("first", "second"))
        assert first.read_bytes() == second.read_bytes()
    text = (tmp_path / "first" / "figure.svg").read_text()
    assert "AFR" in text
    assert "COMPASS-ABS" in text
    assert not re.search(r"\.\d{3}", text.partition("<g ")[2])


@pytest.mark.parametrize(
    ("kind", "xs"), [("bars", ("",)), ("bars", ("fifo", "sjf")), ("lines", (1, 2)), ("points", (1,))]
)
def test_figure_of_one_narrow_panel_has_room_for_every_name(kind: str, xs: tuple[object, ...]) -> None:
    """Names that stick out of the figure would be cut off where it is saved."""
    names = [*LOOKS, "compass-jit:tidiness=always", "fft:period=3600"]
    figure = draw(FigureData(kind, [Panel("AFR", {name: [Point(x, 0.1) for x in xs] for name in names})]))  # type: ignore[arg-type]
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    shown = {name_of(name) for name in names}
    words = [text for text in figure.findobj(Text) if text.get_text() in shown]
    assert {text.get_text() for text in words} == shown
    for text in words:
        box = text.get_window_extent(renderer)
        assert box.x0 >= 0
        assert box.x1 <= figure.bbox.x1
        assert box.y0 >= 0


def test_bars_below_zero_are_seen_whole() -> None:
    figure = draw(
        FigureData("bars", [Panel("AJCT", {"gfs": [Point("", 0.1)], "mcg": [Point("", -0.2)]}, from_zero=True)])
    )
    assert figure.axes[0].get_xlim()[0] < -0.2


def test_bars_that_do_not_start_at_zero_are_dots() -> None:
    """A bar's length is what it says: cut off, it would lie."""
    series = {"gfs": [Point("", 0.93, 0.01)], "fft": [Point("", 0.97, 0.01)]}
    [dots] = draw(FigureData("bars", [Panel("AGU", series, share=True)])).axes
    [bars] = draw(FigureData("bars", [Panel("AGU", series, from_zero=True)])).axes
    assert not dots.patches
    assert dots.get_xlim()[0] > 0.8
    assert len(bars.patches) == 2
    assert bars.get_xlim()[0] == 0


def test_panel_in_which_nothing_was_measured_says_so() -> None:
    figure = draw(FigureData("lines", [Panel("AFR", {"gfs": [Point(1, 2.0)]}), Panel("AGU", {})]))
    assert "nothing was measured" in [text.get_text() for text in figure.axes[1].texts]


def test_frontier_goes_through_those_whom_nobody_beats_and_leaves_bounds_out() -> None:
    measured = {"sif-opt": (0, 0), "gfs": (0, 9), "fgd": (0, 8), "drr": (1, 5), "fft": (2, 6), "mcg": (3, 1)}
    series = {name: [Point(moves, waiting)] for name, (moves, waiting) in measured.items()}
    figure = draw(FigureData("points", [Panel("waiting", series, better="lower", bounds=("sif-opt",))]))
    stairs = next(line for line in figure.axes[0].lines if line.get_drawstyle() == "steps-post")
    assert list(zip(*stairs.get_data(), strict=True)) == [(0, 8), (1, 5), (3, 1), (3, 1)]


def test_error_bars_of_a_long_line_are_few_and_each_as_long_as_told() -> None:
    points = [Point(x, 10.0, 2.0) for x in range(12)]
    [ax] = draw(FigureData("lines", [Panel("AFR", {"gfs": points})])).axes
    bars = [segment for container in ax.containers for segment in container.lines[2][0].get_segments()]
    assert 2 <= len(bars) <= 4
    assert {(float(bar[0][1]), float(bar[1][1])) for bar in bars} == {(8.0, 12.0)}


def test_figure_without_panels_is_refused() -> None:
    with pytest.raises(ReportError, match="no panel"):
        draw(FigureData("bars", [], caption="nothing"))


@pytest.mark.parametrize(
    ("xs", "log", "named"),
    [
        ([0.85, 0.9, 0.95], False, ["0.85", "0.9", "0.95"]),
        ([0, 0.1, 0.25, 0.5, 0.75, 0.9, 1], False, ["0", "0.25", "0.5", "0.75", "1"]),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 40, 60], True, ["1", "2", "3", "5", "8", "40", "60"]),
    ],
)
def test_axis_names_the_places_at_which_something_was_measured(xs: list[float], log: bool, named: list[str]) -> None:
    [ax] = draw(FigureData("lines", [Panel("AFR", {"gfs": [Point(x, 1.0) for x in xs]}, log_x=log)])).axes
    assert [label.get_text() for label in ax.get_xticklabels()] == named
