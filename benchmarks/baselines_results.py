"""Writes docs/baselines-results.md: every scheduler on Venus days and on synthetic GFS days, nothing left out.

    python -m benchmarks.baselines_results                  prints the page
    python -m benchmarks.baselines_results --write          replaces docs/baselines-results.md
    python -m benchmarks.baselines_results --rows FILE      keeps what it measures there, and goes on where it stopped

Venus days need the real trace (COMPASS_TRACES, or ../shared/traces beside the checkout); without it that part is left
out. Minutes; most of them go to the exact programs of `sif-opt-moves` and `fft`.
"""

import argparse
import json
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from statistics import mean
from textwrap import wrap

from compass_abs.model import ClusterState, Job
from compass_abs.queues.registry import make_queue
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.registry import describe, make_scheduler, parse_choice
from compass_abs.simulation import Summary, simulate
from compass_abs.traces import DAY, Trace, cluster_size, day, read_trace, window
from compass_abs.traces.synthesis import synthesize
from compass_abs.traces.workloads import workload

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "baselines-results.md"
TRACES = Path(os.environ.get("COMPASS_TRACES", ROOT.parent / "shared" / "traces"))

BOUND = "sif-opt"
#: Unrestricted backfill in all but name: shown because a larger guard tends to it, and out of competition.
OTHER_QUEUE = "mcg:guard=inf"
REMARKS = {BOUND: " (oracle)", OTHER_QUEUE: " (backfills)"}
#: Everything, and the settings that somebody might object to.
CHOICES = (
    BOUND,
    "compass-jit",
    "compass-abs",
    "compass-abs-residual",
    "compass-abs-literal",
    "sif-opt-moves",
    "fft",
    "fft:period=60",
    "fft:period=900",
    "fft:period=3600",
    "drr",
    "drr:seed=2",
    "drr:seed=3",
    "drr:policy=best-fit",
    "drr:nodes=1",
    "threshold",
    "kai",
    "mcg",
    OTHER_QUEUE,
    "cafgd",
    "cafgd:wait=0",
    "fgd",
    "gfs",
    "pack",
    "slurm",
    "slurm:selection=busy",
    "first-fit",
    "random",
    "spread",
)
QUEUES = ("fifo", "sjf", "backfill", "backfill16", "gfs_artifact")
QUEUED = (BOUND, "compass-abs", "compass-jit", "fft", "drr", "gfs", "slurm")
ETA = 0.9
WIDTH = 118
VENUS_DAYS, VENUS_SEED = 30, 1
GFS_DAYS, GFS_SEED = 8, 1
HISTORY_DAYS = 7


METRICS = ("ajct", "afr", "agu", "migrations_per_job", "delay_mean")


@dataclass(slots=True)
class Row:
    """What one choice came to, day by day."""

    days: list[dict[str, float | None]] = field(default_factory=list)

    def mean(self, metric: str) -> float:
        """The mean of a metric over the days that have it: AFR and AGU need somebody to wait."""
        return mean(value for each in self.days if (value := each[metric]) is not None)

    @property
    def seconds(self) -> float:
        """Processor time of all days."""
        return sum(each["seconds"] or 0.0 for each in self.days)


class Measured:
    """What was measured, by trace, day, queue and choice; in a file, if it is to outlive this process."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[tuple[object, ...], dict[str, float | None]] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                key, values = json.loads(line)
                self._known[tuple(key)] = values

    def get(self, trace: Trace, number: int, queue: str, choice: str) -> dict[str, float | None]:
        """The metrics of one day under one scheduler; measured now, unless they are known."""
        key = (trace.name, number, queue, choice)
        if key not in self._known:
            summary, seconds = run(trace, number, choice, queue)
            self._known[key] = {metric: getattr(summary, metric) for metric in METRICS} | {"seconds": seconds}
            if self._path is not None:
                with self._path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([key, self._known[key]]) + "\n")
            print(f"  {' '.join(map(str, key))}: {seconds:.1f} s", file=sys.stderr, flush=True)
        return self._known[key]


@cache
def nodes_for(jobs: tuple[Job, ...]) -> int:
    """N(η) for these jobs."""
    return cluster_size(jobs, ETA)


def run(trace: Trace, number: int, choice: str, queue: str = "fifo") -> tuple[Summary, float]:
    """One day under one scheduler, warmed with the week before if it learns the demand; and the processor time."""
    part = day(trace, number)
    name, parameters = parse_choice(choice)
    scheduler = make_scheduler(name, ClusterState(nodes_for(part.jobs)), **parameters)
    start = (number - 1) * DAY
    if number > 1 and name in ("fgd", "cafgd", "mcg"):
        for job in window(trace, start - HISTORY_DAYS * DAY, start).jobs:
            scheduler.submitted(job, Situation())
    began = time.process_time()
    return simulate(part.jobs, scheduler, make_queue(queue, scheduler)), time.process_time() - began


def table(
    measured: Measured, trace: Trace, days: Sequence[int], choices: Sequence[str], queue: str = "fifo"
) -> dict[str, Row]:
    """All choices on all days."""
    return {choice: Row([measured.get(trace, number, queue, choice) for number in days]) for choice in choices}


def shown(rows: dict[str, Row]) -> list[str]:
    """The rows as a table, by AJCT; the best that isn't an oracle in bold."""
    bound = rows[BOUND]
    order = sorted(rows, key=lambda choice: rows[choice].mean("ajct"))
    real = contestants(rows)
    least = {metric: min(rows[choice].mean(metric) for choice in real) for metric in ("ajct", "afr")}
    most = max(rows[choice].mean("agu") for choice in real)
    lines = [
        "| scheduler | AJCT s | to the bound | AFR | AGU | moves per job | delay s per job | CPU s |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for choice in order:
        row = rows[choice]
        ratio = mean((a["ajct"] or 0) / (b["ajct"] or 1) for a, b in zip(row.days, bound.days, strict=True))
        cells = [
            f"`{choice}`" + REMARKS.get(choice, ""),
            _bold(f"{row.mean('ajct'):,.0f}", choice in real and row.mean("ajct") == least["ajct"]),
            f"{ratio:.4f}",
            _bold(f"{row.mean('afr'):.4f}", choice in real and row.mean("afr") == least["afr"]),
            _bold(f"{row.mean('agu'):.3f}", choice in real and row.mean("agu") == most),
            f"{row.mean('migrations_per_job'):.3f}",
            f"{row.mean('delay_mean'):.2f}",
            f"{row.seconds:.1f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def contestants(rows: dict[str, Row]) -> list[str]:
    """Those that keep the same queue and can be carried out, by AJCT."""
    return sorted((choice for choice in rows if choice not in REMARKS), key=lambda choice: rows[choice].mean("ajct"))


def verdict(rows: dict[str, Row], where: str) -> str:
    """In a sentence: is the paper's scheduler first, and if not, who is?"""
    real = contestants(rows)
    paper = rows["compass-abs"]
    ahead = [choice for choice in real if rows[choice].mean("ajct") < paper.mean("ajct")]
    if not ahead:
        return f"On {where} COMPASS-ABS as the paper describes it has the lowest mean AJCT of all."
    behind = (paper.mean("ajct") / rows[real[0]].mean("ajct") - 1) * 100
    listed = ", ".join(f"`{choice}`" for choice in ahead)
    return (
        f"**On {where} COMPASS-ABS as the paper describes it is not first in AJCT**: ahead of it are {listed}. "
        f"It is {behind:.1f} % behind `{real[0]}`."
    )


def queues(measured: Measured, trace: Trace, days: Sequence[int]) -> list[str]:
    """AJCT of some schedulers under every queue."""
    lines = ["| queue | " + " | ".join(f"`{choice}`" for choice in QUEUED) + " |", "|---|" + "---:|" * len(QUEUED)]
    for queue in QUEUES:
        rows = table(measured, trace, days, QUEUED, queue)
        lines.append(f"| `{queue}` | " + " | ".join(f"{rows[choice].mean('ajct'):,.0f}" for choice in QUEUED) + " |")
    return lines


def parameters() -> list[str]:
    """Every scheduler of the tables with the defaults of its parameters."""
    lines = ["| scheduler | parameters |", "|---|---|"]
    for name in dict.fromkeys(parse_choice(choice)[0] for choice in CHOICES):
        known = [f"{each.name}={_default(each.default)}" for each in describe(name).parameters]
        lines.append(f"| `{name}` | {', '.join(f'`{text}`' for text in known) or 'none'} |")
    return lines


def _default(value: object) -> str:
    if value is None or value == "":
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def sizes(trace: Trace, days: Sequence[int]) -> str:
    """The range of N and of jobs."""
    nodes = [nodes_for(day(trace, number).jobs) for number in days]
    jobs = [len(day(trace, number).jobs) for number in days]
    return f"N({ETA:g}) from {min(nodes)} to {max(nodes)} nodes, {min(jobs):,} to {max(jobs):,} jobs a day"


def venus_days(trace: Trace) -> list[int]:
    """Thirty of the days with more than fifty jobs, drawn once for all."""
    busy = [number for number in trace.days() if len(day(trace, number).jobs) > 50]
    return sorted(random.Random(VENUS_SEED).sample(busy, VENUS_DAYS))


def learned(rows: dict[str, Row]) -> str:
    """In a sentence: how often DRR's network led to another day than the best fit that it imitated."""
    fitted = [each["ajct"] for each in rows["drr:policy=best-fit"].days]
    counts = []
    for choice in ("drr", "drr:seed=2", "drr:seed=3"):
        ajcts = [each["ajct"] for each in rows[choice].days]
        same = sum(a == b for a, b in zip(ajcts, fitted, strict=True))
        counts.append(f"`{choice}` on {same} of {len(fitted)}")
    return (
        "DRR's policies beside the best fit that they imitated first ([why](baselines.md#interpretations)), days with "
        f"the AJCT of `drr:policy=best-fit` to the last digit: {', '.join(counts)}."
    )


def page(measured: Measured) -> str:
    """The page, with what isn't measured yet measured now."""
    lines = [
        "# The baselines side by side",
        "",
        *wrap(
            "You want to know how strong the schedulers are that COMPASS-ABS is compared with, and where it is not "
            "first. This page is written by `python -m benchmarks.baselines_results --write`; what each scheduler "
            "is, and what had to be assumed, is in [baselines.md](baselines.md).",
            WIDTH,
        ),
        "",
        *wrap(
            "All: FIFO with head-of-line blocking unless said otherwise (`mcg` reorders, that is its method), gangs "
            f"admitted whole, N({ETA:g}) nodes of 8 GPUs, a day's jobs on an empty cluster until all have finished, "
            "8 s of delay for each job with moved instances once an event; `kai` restarts what it moves from a "
            f"checkpoint at most an hour old. FGD, CAFGD and MCG know the demand of the {HISTORY_DAYS} days before. "
            "Means over days. *To the bound*: mean of the days' ratios to the oracle. *Delay*: what moves cost, in "
            "seconds per job. *CPU s*: all days together, on a shared machine, good for orders of magnitude. Bold: "
            f"the best of those that keep to the queue and could be carried out. `{OTHER_QUEUE}` is backfill without "
            "a limit in all but name, and belongs beside the other queues.",
            WIDTH,
        ),
    ]
    for log in sorted((TRACES / "venus").rglob("cluster_log.csv"))[:1]:
        venus = read_trace(log)
        days = venus_days(venus)
        rows = table(measured, venus, days, CHOICES)
        lines += [
            "",
            f"## Venus, {VENUS_DAYS} days",
            f"Days {', '.join(map(str, days))}; {sizes(venus, days)}.",
            "Durations as they are in the file, cut at 172,800 s.",
            "",
            *shown(rows),
            "",
            verdict(rows, "these Venus days"),
            "",
            learned(rows),
            "",
            "### Under other queues (AJCT in seconds)",
            "The queue matters more than the placement: only what stands in one line of this table can be compared.",
            "",
            *queues(measured, venus, days),
        ]
    gfs = synthesize(workload("gfs"), HISTORY_DAYS + GFS_DAYS, GFS_SEED)
    days = list(gfs.days()[HISTORY_DAYS:])
    rows = table(measured, gfs, days, CHOICES)
    lines += [
        "",
        f"## Synthetic GFS, {GFS_DAYS} days",
        f"Synthetic: `synthesize(workload('gfs'), {HISTORY_DAYS + GFS_DAYS}, {GFS_SEED})`, of which the first",
        f"{HISTORY_DAYS} days are history; {sizes(gfs, days)}.",
        "",
        *shown(rows),
        "",
        verdict(rows, "these synthetic GFS days"),
        "",
        learned(rows),
        "",
        "## Parameters",
        "What a row doesn't name has its default; `compass schedulers` says what each means.",
        "",
        *parameters(),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Prints the page, or replaces it."""
    parser = argparse.ArgumentParser(description="docs/baselines-results.md, measured")
    parser.add_argument("--write", action="store_true", help="replace the page instead of printing it")
    parser.add_argument("--rows", type=Path, help="keep what is measured in this file, and measure only what it lacks")
    asked = parser.parse_args()
    text = page(Measured(asked.rows))
    if asked.write:
        PAGE.write_text(text, encoding="utf-8")
        print(f"wrote {PAGE.relative_to(ROOT)}", file=sys.stderr)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
