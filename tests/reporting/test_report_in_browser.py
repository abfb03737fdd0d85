"""The HTML report opened and clicked through in a real headless browser."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compass_abs.reporting import JobView, write_report
from tests.reporting.browser import Watched, launched
from tests.reporting.sample import sample_comparison

pytestmark = pytest.mark.browser
HOSTILE = "</script><img src=x onerror=alert(1)><b>&{{7*7}}"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as browser:
        yield browser


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("report") / "report.html"
    return write_report(sample_comparison(), path).as_uri()


def test_report_opened_asks_nothing_of_the_network_and_complains_of_nothing(browser: Any, url: str) -> None:
    watched = Watched(browser)
    page = watched.open(url)
    page.wait_for_timeout(100)
    assert watched.requests == [url]
    assert watched.complaints == []
    assert "COMPASS-JIT completes jobs soonest" in page.inner_text("#verdict")


def test_slider_dragged_shows_another_moment_in_pictures_and_clock(browser: Any, url: str) -> None:
    watched = Watched(browser)
    page = watched.open(url)
    clock, picture = page.inner_text("#clock"), watched.pixels("#cluster-left")
    page.fill("#time", "1500")
    watched.settle()
    assert page.inner_text("#clock") != clock
    assert watched.pixels("#cluster-left") != picture
    assert page.get_attribute("#time", "aria-valuetext") == page.inner_text("#clock")


def test_scheduler_switched_shows_the_other_ones_cluster(browser: Any, url: str) -> None:
    watched = Watched(browser)
    page = watched.open(url)
    left, right = watched.pixels("#cluster-left"), watched.pixels("#cluster-right")
    assert left != right
    page.select_option("#pick-left", label="COMPASS-JIT")
    watched.settle()
    assert watched.pixels("#cluster-left") == right


def test_replay_at_random_moments_agrees_with_the_recorded_series(browser: Any, url: str) -> None:
    """Jumping back and forth gives the same empty nodes as the series says."""
    watched = Watched(browser)
    page = watched.open(url)
    for position in (9000, 100, 5000, 4999, 9999, 2500, 7777):
        page.fill("#time", str(position))
        watched.settle()
        readouts = page.locator(".chart .readout").all_inner_texts()
        for side in ("left", "right"):
            name = page.eval_on_selector(f"#pick-{side}", "select => select.selectedOptions[0].text")
            series = next(part for part in readouts[2].split(" · ") if part.startswith(name))
            empty = page.inner_text(f"#facts-{side}").split(" empty")[0].split(", ")[1]
            assert series.removeprefix(name).strip() == empty


def test_next_move_pressed_goes_to_a_moment_with_a_migration(browser: Any, url: str) -> None:
    watched = Watched(browser)
    page = watched.open(url)
    page.fill("#time", "0")
    page.click("#next-move")
    watched.settle()
    assert "just moved" in page.inner_text("#facts-right")
    clock = page.inner_text("#clock")
    page.click("#next-move")
    page.click("#previous-move")
    watched.settle()
    assert page.inner_text("#clock") == clock


def test_play_pressed_lets_time_pass_until_it_is_pressed_again(browser: Any, url: str) -> None:
    watched = Watched(browser)
    page = watched.open(url)
    page.fill("#time", "2000")
    clock = page.inner_text("#clock")
    page.click("#play")
    page.wait_for_function("clock => document.getElementById('clock').textContent !== clock", arg=clock)
    page.click("#play")
    assert page.get_attribute("#play", "aria-label") == "Play"
    stopped = page.inner_text("#clock")
    page.wait_for_timeout(150)
    assert page.inner_text("#clock") == stopped


def test_series_toggled_disappears_from_the_charts(browser: Any, url: str) -> None:
    watched = Watched(browser)
    page = watched.open(url)
    before = watched.pixels(".chart canvas")
    chip = page.locator("#chips button", has_text="GFS")
    chip.click()
    watched.settle()
    assert chip.get_attribute("aria-pressed") == "false"
    assert "GFS" not in page.inner_text(".chart .readout")
    assert watched.pixels(".chart canvas") != before
    chip.click()
    watched.settle()
    assert watched.pixels(".chart canvas") == before


def test_chart_dragged_zooms_in_and_the_link_zooms_out_again(browser: Any, url: str) -> None:
    watched = Watched(browser)
    page = watched.open(url)
    page.locator(".chart canvas").first.scroll_into_view_if_needed()
    box = page.locator(".chart canvas").first.bounding_box()
    page.mouse.move(box["x"] + 100, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + 240, box["y"] + 60, steps=4)
    page.mouse.up()
    watched.settle()
    assert page.is_visible("#zoom-out")
    zoomed = watched.pixels(".chart canvas")
    page.click("#zoom-out")
    page.mouse.move(2, 2)
    watched.settle()
    assert watched.pixels(".chart canvas") != zoomed
    assert not page.is_visible("#zoom-out")


def test_cell_pointed_at_names_node_and_job(browser: Any, url: str) -> None:
    watched = Watched(browser)
    page = watched.open(url)
    page.locator("#cluster-right").scroll_into_view_if_needed()
    box = page.locator("#cluster-right").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 40)
    watched.settle()
    assert page.inner_text("#hover").startswith("n0: job job-")


def test_names_with_markup_are_shown_as_text_and_run_nothing(browser: Any, tmp_path: Path) -> None:
    sample = sample_comparison(jobs=60)
    hostile = replace(
        sample,
        title=HOSTILE,
        subtitle=HOSTILE,
        jobs=[JobView(f"{HOSTILE}{k}", *job[1:]) for k, job in enumerate(sample.jobs)],
        runs=tuple(replace(run, label=f"{HOSTILE}{k}") for k, run in enumerate(sample.runs)),
        settings={HOSTILE: HOSTILE},
        notes=(HOSTILE,),
    )
    watched = Watched(browser)
    page = watched.open(write_report(hostile, tmp_path / "hostile.html").as_uri())
    assert page.title() == HOSTILE
    assert page.inner_text("h1") == HOSTILE
    assert page.locator("img").count() == 0
    page.fill("#time", "5000")
    box = page.locator("#cluster-left").bounding_box()
    page.mouse.move(box["x"] + 5, box["y"] + 60)
    watched.settle()
    assert page.locator("img").count() == 0
    assert watched.complaints == []
    assert len(watched.requests) == 1


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_page_on_any_screen_does_not_scroll_sideways(browser: Any, url: str, width: int) -> None:
    watched = Watched(browser, viewport={"width": width, "height": 800})
    page = watched.open(url)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_page_printed_has_pictures_and_no_controls(browser: Any, url: str) -> None:
    watched = Watched(browser)
    page = watched.open(url)
    assert page.is_visible("#play")
    assert page.is_visible(".screen")
    page.emulate_media(media="print")
    assert not page.is_visible("#play")
    assert not page.is_visible(".screen")
    assert page.is_visible("#cluster-left")
    assert len(page.pdf(format="A4")) > 20_000


def test_every_control_has_a_name_for_screen_readers(browser: Any, url: str) -> None:
    watched = Watched(browser)
    page = watched.open(url)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll('button, select, input, canvas[role=img]')].filter(e =>
             !(e.getAttribute('aria-label') || e.textContent.trim() && e.tagName === 'BUTTON' ||
               e.labels && [...e.labels].some(l => l.textContent.trim()))).map(e => e.outerHTML)"""
    )
    assert nameless == []


def test_page_without_scripts_still_has_verdict_and_table(browser: Any, url: str) -> None:
    watched = Watched(browser, java_script_enabled=False)
    watched.page.goto(url)
    assert "soonest" in watched.page.inner_text("#verdict")
    assert watched.page.locator("#comparison tbody tr").count() == 3


def test_whole_comparison_day_is_under_five_megabytes_and_opens(browser: Any, tmp_path: Path) -> None:
    """Ten schedulers on a day of 3,000 gangs and 200 nodes; `benchmarks/bench_report.py` measures how fast."""
    sample = sample_comparison(seed=3, jobs=3000, nodes=200)
    runs = tuple(replace(sample.runs[k % 2], label=f"scheduler {k}") for k in range(10))
    path = write_report(replace(sample, runs=runs), tmp_path / "day.html")
    assert path.stat().st_size < 5_000_000
    watched = Watched(browser)
    page = watched.open(path.as_uri())
    assert page.locator("#pick-left option").count() == 10
    assert watched.complaints == []
