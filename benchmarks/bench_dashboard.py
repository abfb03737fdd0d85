"""The dashboard of a large cluster in a real, headless Chromium: how soon it shows, how long it lets hands wait.

A task that holds the page's thread for more than 50 ms is one that a click waits for; the browser reports them itself.
Processor and drawing are the machine's own, without a GPU. Says so and measures nothing where there is no Chromium.
"""

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from tests.controller.running import service
from tests.controller.test_dashboard import CHROMIUM, FLAGS, served, submit

from compass_abs.controller.server import configure_logging

NODES, JOBS, SECONDS = 1000, 1600, 10
_LONG_TASKS = """new Promise(done => {
  const found = [];
  new PerformanceObserver(list => { for (const task of list.getEntries()) found.push(task.duration); })
    .observe({ entryTypes: ["longtask"] });
  setTimeout(() => done(found), SECONDS * 1000);
})""".replace("SECONDS", str(SECONDS))


def look(page: Any, url: str) -> float:
    """Seconds until every node is on the page."""
    began = time.perf_counter()
    page.goto(url)
    while page.locator(".node").count() < NODES:
        time.sleep(0.05)
    return time.perf_counter() - began


def main() -> None:
    """Prints what the documents claim."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        print("no playwright here: nothing measured")
        return
    if not CHROMIUM.exists():
        print(f"no {CHROMIUM} here: nothing measured")
        return
    configure_logging(as_json=False, level="error")
    with (
        tempfile.TemporaryDirectory() as folder,
        service(Path(folder), nodes=NODES, seconds_per_step=1e6) as running,
        served(running) as url,
        sync_playwright() as playwright,
    ):
        for number in range(JOBS):
            submit(running, name=f"job {number}", gpus_per_instance=(1, 2, 4, 8)[number % 4])
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        page = browser.new_context(viewport={"width": 1360, "height": 960}).new_page()
        shown = look(page, url)
        time.sleep(5)
        over = threading.Event()

        def churn() -> None:
            while not over.wait(0.2):
                submit(running, name="more")

        busy = threading.Thread(target=churn)
        busy.start()
        tasks = page.evaluate(_LONG_TASKS)
        over.set()
        busy.join()
        browser.close()
    print(
        f"{NODES} nodes, {JOBS} running jobs: on the page after {shown:.1f} s; with 5 submissions a second, "
        f"in {SECONDS} s {len(tasks)} tasks longer than 50 ms, the longest {max(tasks, default=0.0):.0f} ms"
    )


if __name__ == "__main__":
    main()
