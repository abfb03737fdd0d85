"""The dashboard in a real browser."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from compass_abs.controller.api import make_app
from compass_abs.controller.job_spec import check_job
from compass_abs.controller.reconcile import Conduct, Config
from compass_abs.controller.service import Service
from compass_abs.model import NodeStatus
from tests.controller.running import service

pytestmark = pytest.mark.browser

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--disable-sync"]
HOSTILE = "<img src=x onerror=\"document.title='owned'\">'\"&"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    if not CHROMIUM.exists():
        pytest.skip(f"no {CHROMIUM}; apt-get install chromium")
    with sync_api.sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield found
        found.close()


@contextmanager
def served(running: Service, token: str | None = None) -> Iterator[str]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        config = uvicorn.Config(make_app(running, token=token), log_level="error", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        server.should_exit = True
        thread.join(10)


@contextmanager
def page(browser: Any, url: str, **options: Any) -> Iterator[Any]:
    context = browser.new_context(**{"viewport": {"width": 1300, "height": 900}, **options})
    found = context.new_page()
    problems: list[str] = []
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.set_default_timeout(10_000)
    found.goto(url)
    yield found
    assert problems == []
    context.close()


def submit(running: Service, **fields: Any) -> str:
    values = {"name": "job", "command": ["train"], "gpus_per_instance": 4, **fields}
    return running.ask(lambda c: c.submit(check_job(values)))


def until(tab: Any, expression: str, seconds: float = 10.0) -> None:
    """Waits for an expression to hold; the browser's own way of waiting is what the page's policy forbids."""
    deadline = time.monotonic() + seconds
    while not tab.evaluate(expression):
        assert time.monotonic() < deadline, expression
        time.sleep(0.05)


def test_dashboard_shows_jobs_and_their_gpus_live(browser: Any, tmp_path: Path) -> None:
    with service(tmp_path) as running, served(running) as url, page(browser, url) as tab:
        tab.wait_for_selector("#live.on")
        assert tab.locator(".node").count() == 4
        assert tab.locator(".gpu.taken").count() == 0
        job = submit(running, instances=2)
        submit(running, instances=4, gpus_per_instance=8)
        tab.wait_for_selector(f"#running >> text={job}")
        until(tab, "document.querySelectorAll('.gpu.taken').length === 8")
        tab.wait_for_selector("#queue >> text=capacity")


def test_hostile_name_and_log_stay_text(browser: Any, tmp_path: Path) -> None:
    with service(tmp_path) as running, served(running) as url, page(browser, url) as tab:
        job = submit(running, name=HOSTILE, labels={"x": HOSTILE})
        tab.click(f"#running >> text={job}")
        tab.wait_for_selector("#log >> text=alert(1)")
        assert HOSTILE in tab.locator("#panel-title").inner_text()
        assert tab.locator("main img, #panel img, #panel script").count() == 0
        assert tab.title() == "Compass"


def test_drain_asks_first_and_shows_the_gang_move(browser: Any, tmp_path: Path) -> None:
    with service(tmp_path) as running, served(running) as url, page(browser, url) as tab:
        running.engine.save_seconds = 2.0  # type: ignore[attr-defined]
        submit(running)
        tab.wait_for_selector("#running >> text=running")
        row = tab.locator("[data-node=n0]")
        row.hover()
        row.locator("button").click()
        tab.locator("#confirm button[value=no]").click()
        time.sleep(0.7)
        assert running.ask(lambda c: c.book.nodes["n0"].wanted).value == "up"
        row.hover()
        row.locator("button").click()
        assert "n0" in tab.locator("#confirm-text").inner_text()
        tab.locator("#confirm-yes").click()
        tab.wait_for_selector("#moves path", state="attached")
        tab.wait_for_selector("[data-node=n0].draining")
        tab.wait_for_selector("[data-node=n1] .gpu.taken.running")


def test_cancel_and_pause_work_from_the_page(browser: Any, tmp_path: Path) -> None:
    with service(tmp_path) as running, served(running) as url, page(browser, url) as tab:
        job = submit(running)
        tab.click(f"#running >> text={job}")
        tab.click("#cancel")
        tab.click("#confirm-yes")
        tab.wait_for_selector("#recent >> text=cancelled")
        tab.wait_for_selector("#recent >> text=/cancelled, [1-9] s ago/")
        tab.keyboard.press("Escape")
        tab.wait_for_selector("#panel", state="hidden")
        tab.click("#pause")
        tab.click("#confirm-yes")
        tab.wait_for_selector("text=Resume migrations")
        assert not running.ask(lambda c: c.migrates)


def test_token_is_asked_for_and_then_used(browser: Any, tmp_path: Path) -> None:
    token = "a-token-of-some-length"
    with service(tmp_path) as running, served(running, token) as url, page(browser, url) as tab:
        tab.wait_for_selector("#login[open]")
        tab.fill("#token", token)
        tab.click("#login button")
        tab.wait_for_selector("#live.on")
        tab.wait_for_selector(".node")


def test_job_has_an_address_of_its_own(browser: Any, tmp_path: Path) -> None:
    with service(tmp_path) as running, served(running) as url, page(browser, url) as tab:
        job = submit(running)
        tab.click(f"#running >> text={job}")
        until(tab, f"location.hash === '#{job}'")
        tab.reload()
        tab.wait_for_selector(f"#panel-title >> text={job}")
        tab.click("#panel-close")
        until(tab, "location.hash === ''")


def test_page_fits_a_telephone_and_a_finger(browser: Any, tmp_path: Path) -> None:
    telephone = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
    with service(tmp_path) as running, served(running) as url, page(browser, url, **telephone) as tab:
        job = submit(running, name="a name that is as long as people make them")
        tab.wait_for_selector("#running >> text=running")
        assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        # In one line: a column too narrow would break the id at every letter.
        assert tab.locator("#running .job", has_text=job).bounding_box()["height"] < 40
        assert tab.locator("[data-node=n0] button").evaluate("button => getComputedStyle(button).opacity") == "1"


def test_moves_that_are_only_shown_are_on_the_page_with_what_they_are_for(browser: Any, tmp_path: Path) -> None:
    config = Config(scheduler="best-fit", conduct=Conduct.RECOMMEND)
    with service(tmp_path, config) as running, served(running) as url, page(browser, url) as tab:
        tab.wait_for_selector("#proposals >> text=Nothing would be moved")
        job = submit(running)
        tab.wait_for_selector("#running >> text=running")
        running.ask(lambda c: c.set_node("n0", NodeStatus.DRAINING))
        row = tab.locator("#proposals tbody tr", has_text=job)
        row.wait_for()
        assert "n0" in row.inner_text()
        assert "so that n0 is empty" in row.inner_text()
        tab.wait_for_selector("#facts >> text=1 draining")
        running.ask(lambda c: c.set_node("n0", NodeStatus.UP))
        tab.wait_for_selector("#proposals >> text=Nothing would be moved")


def test_refusal_is_told_to_whoever_asked(browser: Any, tmp_path: Path) -> None:
    with service(tmp_path) as running, served(running) as url, page(browser, url) as tab:
        tab.route("**/drain", lambda route: route.fulfill(status=404, json={"error": f"no node {HOSTILE}"}))
        row = tab.locator("[data-node=n0]")
        row.hover()
        row.locator("button").click()
        tab.click("#confirm-yes")
        until(tab, "!document.getElementById('said').hidden")
        assert tab.locator("#said").inner_text() == f"no node {HOSTILE}"


@pytest.mark.parametrize("width", [390, 800, 1360])
def test_long_names_and_many_nodes_leave_everything_in_its_place(browser: Any, tmp_path: Path, width: int) -> None:
    window = {"viewport": {"width": width, "height": 900}}
    with service(tmp_path, nodes=60) as running, served(running) as url, page(browser, url, **window) as tab:
        for _ in range(61):
            submit(
                running, name="a name as long as people make them when they sweep over seeds " * 3, gpus_per_instance=8
            )
        tab.wait_for_selector("#running >> text=running")
        tab.wait_for_selector("#queue >> text=capacity")
        tab.wait_for_selector("[data-node=n59] .gpu.taken")
        for part in ("section", "td"):
            widths = f"[...document.querySelectorAll('{part}')].map(part => part.scrollWidth - part.clientWidth)"
            assert max(tab.evaluate(widths)) <= 1
        assert tab.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        # Sixty rows of nodes don't push what runs off to where nobody looks.
        assert tab.locator("#cluster-section").bounding_box()["height"] < 900


def test_page_of_a_job_tells_its_history_and_shows_every_start(browser: Any, tmp_path: Path) -> None:
    with service(tmp_path) as running, served(running) as url, page(browser, url) as tab:
        job = submit(running, instances=2)
        tab.click(f"#running >> text={job}")
        tab.wait_for_selector(".events >> text=starts on n0")
        assert not tab.locator("select[aria-label=Start]").is_visible()
        running.ask(lambda c: c.set_node("n0", NodeStatus.DRAINING))
        tab.wait_for_selector(".events >> text=/migration m1 done after/")
        tab.wait_for_selector(".move >> text=/m1 .drain. done: n0/")
        tab.select_option("select[aria-label=Start]", "1")
        tab.select_option("select[aria-label=Instance]", "1")
        tab.wait_for_selector("#log >> text=/step 1|nothing printed/")


def test_log_stays_where_its_reader_is(browser: Any, tmp_path: Path) -> None:
    with service(tmp_path) as running, served(running) as url, page(browser, url) as tab:
        lines = [f"line {number}\n" for number in range(400)]
        running.engine.read_log = lambda run, offset, limit: "".join(lines).encode()  # type: ignore[method-assign]
        job = submit(running)
        tab.click(f"#running >> text={job}")
        at_end = "(log => log.scrollTop + log.clientHeight >= log.scrollHeight - 4)(document.getElementById('log'))"
        tab.wait_for_selector("#log >> text=line 399")
        until(tab, at_end)
        lines.append("new line\n")
        tab.wait_for_selector("#log >> text=new line")
        until(tab, at_end)
        tab.evaluate("document.getElementById('log').scrollTop = 50")
        tab.focus("#log")
        lines.append("newest line\n")
        tab.wait_for_selector("#log >> text=newest line")
        assert tab.evaluate("document.getElementById('log').scrollTop") == 50
        assert tab.evaluate("document.activeElement.id") == "log"


@pytest.mark.slow
def test_thousand_nodes_stay_responsive(browser: Any, tmp_path: Path) -> None:
    with service(tmp_path, nodes=1000) as running, served(running) as url, page(browser, url) as tab:
        for _ in range(100):
            submit(running, instances=8, gpus_per_instance=8)
        until(tab, "document.querySelectorAll('.gpu.taken').length > 5000", seconds=60)
        # A long task blocks clicks: the longest pause between frames while pictures keep coming.
        longest = tab.evaluate(
            "new Promise(done => { let last = performance.now(), worst = 0; const end = last + 5000;"
            "const tick = now => { worst = Math.max(worst, now - last); last = now;"
            "now < end ? requestAnimationFrame(tick) : done(worst) }; requestAnimationFrame(tick) })"
        )
        assert longest < 500
