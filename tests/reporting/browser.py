"""A real headless Chromium, or a plain word on why there is none."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium_path() -> str:
    """Where Chromium is; the test is skipped where it isn't."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if not found:
        pytest.skip("no Chromium here: apt-get install chromium, or set CHROMIUM to its path")
    return found


@contextmanager
def launched() -> Iterator[Any]:
    """A browser to open pages in."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    path = chromium_path()
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Watched:
    """A page, with everything it asked for and everything it complained of."""

    def __init__(self, browser: Any, **context: Any) -> None:
        self.page = browser.new_context(**context).new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))

    def open(self, url: str) -> Any:
        """The page, ready to be used."""
        self.page.goto(url)
        self.page.wait_for_selector("html[data-ready=yes]", state="attached")
        return self.page

    def pixels(self, selector: str) -> str:
        """What a canvas shows, as text that differs when the picture does."""
        return str(self.page.eval_on_selector(selector, "canvas => canvas.toDataURL()"))

    def settle(self) -> None:
        """Waits until what was asked for is drawn."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
