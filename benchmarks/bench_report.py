"""The HTML report of a whole GFS-sized comparison day: how large, and how soon usable in a real browser."""

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from compass_abs.model import ClusterState
from compass_abs.reporting import Comparison, RunView, write_report
from compass_abs.reporting.recorder import ReportRecorder
from compass_abs.simulation import Setup
from compass_abs.traces import cluster_size
from compass_abs.traces.synthesis import synthesize
from compass_abs.traces.workloads import workload

SCHEDULERS = (
    "sif-opt", "gfs", "fgd", "cafgd", "mcg", "drr", "fft", "compass-abs", "compass-abs-residual", "compass-jit",
)  # fmt: skip
OPENINGS = 5
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync")  # fmt: skip


def comparison_day() -> Comparison:
    """A synthetic GFS day under everybody that `compass reproduce overall` compares."""
    jobs = synthesize(workload("gfs"), 1, 3).jobs
    nodes = cluster_size(jobs, 0.9)
    runs: list[RunView] = []
    watching: list[ReportRecorder] = []

    def observe(state: ClusterState) -> ReportRecorder:
        watching.append(ReportRecorder(state))
        return watching[-1]

    for name in SCHEDULERS:
        summary = Setup(name, nodes).simulation(jobs, observe=observe).run()
        runs.append(watching[-1].run_view(name, summary))
    return Comparison("A synthetic GFS day", watching[-1].jobs, nodes, runs)


def seconds_to_open(url: str) -> list[float]:
    """From asking for the page to its pictures being there, several times; empty without a browser."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return []
    if not chromium:
        return []
    taken = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        for _ in range(OPENINGS):
            page = browser.new_context().new_page()
            page.goto("about:blank")
            began = time.perf_counter()
            page.goto(url)
            page.wait_for_selector("html[data-ready=yes]", state="attached")
            taken.append(time.perf_counter() - began)
        browser.close()
    return taken


def main() -> None:
    """Prints size, time to write, and time to open."""
    comparison = comparison_day()
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        path = write_report(comparison, Path(folder) / "day.html")
        written = time.perf_counter() - began
        size = path.stat().st_size
        print(
            f"{len(comparison.jobs):,} jobs, {comparison.nodes} nodes, {len(comparison.runs)} schedulers: "
            f"{size / 1e6:.2f} MB (at most 5), written in {written:.2f} s"
        )
        taken = seconds_to_open(path.as_uri())
        if taken:
            print(f"usable after {statistics.median(taken):.2f} s (median of {len(taken)}; at most 2)")
        else:
            print("no Chromium or playwright here: opening not measured")


if __name__ == "__main__":
    main()
