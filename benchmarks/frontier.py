"""Moves against AFR, AJCT and AGU, day by day: the frontier that `compass-jit` spans, and the others as points.

    python -m benchmarks.frontier venus --days 30 --etas 0.9 --out frontier.csv     # a seeded sample of days
    python -m benchmarks.frontier venus --out frontier.csv                          # every day, the paper's three η
    python -m benchmarks.frontier --show frontier.csv                               # the tables, again
    python -m benchmarks.frontier --show frontier.csv --figure docs/frontier        # and docs/frontier.svg

Appends a row for each (day, η, scheduler) that the file doesn't have yet, so a run may be stopped and taken up
again, and a scheduler added. Rows hold metrics only, nothing of the trace.
"""

import argparse
import csv
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from math import inf
from pathlib import Path
from statistics import mean

from compass_abs.reporting.figures import FigureData, Panel, Point, draw, save
from compass_abs.schedulers.registry import parse_choice
from compass_abs.simulation import Setup, replay
from compass_abs.simulation.setup import BOUND
from compass_abs.simulation.workload import day_workload
from compass_abs.traces import read_trace

SCHEDULERS = (
    "compass-jit",
    "compass-jit:tidiness=peak",
    "compass-jit:tidiness=always",
    "compass-jit:objective=lightest",
    "compass-jit:objective=disruption",
    "compass-jit:effort=fast",
    "compass-jit:value=2",
    "compass-jit:value=15",
    "compass-jit:value=20",
    "compass-abs",
    "compass-abs-residual",
    "fft",
    "drr",
    "threshold",
    "kai",
    "mcg",
    "cafgd",
    "fgd",
    "gfs",
)
#: Those that a claim of being first is made against; the variants of compass-jit are not rivals of each other.
OURS = "compass-jit"
#: Schedulers that choose who is next themselves: the bound of the queue doesn't bind them.
REORDERING = ("mcg",)
#: Settings that the figure leaves out, to stay readable.
NOT_DRAWN = (
    "compass-jit:effort=fast",
    "compass-jit:value=2",
    "compass-jit:value=15",
    "compass-jit:objective=lightest",
    "compass-jit:objective=disruption",
)
#: What each panel of the figure shows, and which way is better.
PANELS = (
    ("over", "AJCT above the bound in %", "lower"),
    ("afr", "AFR", "lower"),
    ("agu", "AGU", "higher"),
)
#: Those that the paper doesn't have either.
NOT_IN_THE_PAPER = ("compass-abs-residual", "threshold", "kai")
FIELDS_OF_RIVALS = ((), REORDERING, REORDERING + NOT_IN_THE_PAPER)
#: The paper's scheduler, for which the paper has such shares too.
PAPER = "compass-abs"
#: What is too little to call a difference. AGU is an average over the scheduler's own peak, so the bound itself is not
#: first in it: a cluster that waits longer averages over more of its fullest hours. Of AJCT a share.
NEAR = {"ajct": 1e-4, "agu": 1e-3, "afr": 1e-3}
METRICS = ("ajct", "agu", "afr", "migrations_per_job", "pauses", "disrupted_gpu_seconds", "blocked_avoidable")
FIELDS = ("day", "eta", "scheduler", "nodes", "jobs", *METRICS, "seconds")
Rows = list[dict[str, str]]


def main() -> None:
    """Measures what is missing and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", default="venus")
    parser.add_argument("--days", type=int, help="a seeded sample of so many days; all without it")
    parser.add_argument("--etas", default="0.85,0.9,0.95")
    parser.add_argument("--schedulers", default=";".join(SCHEDULERS), help="separated by semicolons")
    parser.add_argument("--out", type=Path, default=Path("frontier.csv"))
    parser.add_argument("--show", type=Path, help="only print the tables of this file")
    parser.add_argument("--figure", type=Path, help="draw the frontier at η = 0.9, as SVG; without the ending")
    arguments = parser.parse_args()
    if arguments.show is None:
        measure(arguments)
    rows = read(arguments.show or arguments.out)
    show(rows)
    if arguments.figure is not None:
        print(f"wrote {draw_frontier(rows, arguments.figure)}")


def measure(arguments: argparse.Namespace) -> None:
    """Appends the missing rows."""
    trace = read_trace(arguments.trace)
    days = list(trace.days())
    if arguments.days:
        days = sorted(random.Random(0).sample(days, arguments.days))
    etas = [float(eta) for eta in arguments.etas.split(",")]
    choices = [BOUND, *filter(None, arguments.schedulers.split(";"))]
    done = {(row["day"], row["eta"], row["scheduler"]) for row in read(arguments.out)}
    fresh = not arguments.out.exists()
    with arguments.out.open("a", newline="") as file:
        writer = csv.DictWriter(file, FIELDS)
        if fresh:
            writer.writeheader()
        for number in days:
            work = day_workload(trace, number)
            for eta in etas:
                nodes = work.nodes(eta)
                for choice in choices:
                    if (str(number), str(eta), choice) in done:
                        continue
                    name, parameters = parse_choice(choice)
                    start = time.perf_counter()
                    summary = replay(work.jobs, Setup(name, nodes, parameters=parameters), history=work.history)
                    row = {"day": number, "eta": eta, "scheduler": choice, "nodes": nodes, "jobs": len(work.jobs)}
                    row |= {metric: getattr(summary, metric) for metric in METRICS}
                    writer.writerow(row | {"seconds": round(time.perf_counter() - start, 3)})
                    file.flush()


def read(path: Path) -> Rows:
    """The rows measured so far."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def show(rows: Rows) -> None:
    """Means over the days of each η, and how often each variant of ours is first."""
    pairs: dict[tuple[str, str], dict[str, dict[str, str]]] = defaultdict(dict)
    for row in rows:
        pairs[row["day"], row["eta"]][row["scheduler"]] = row
    names = list(dict.fromkeys(row["scheduler"] for row in rows))
    for eta in sorted({eta for _, eta in pairs}):
        chosen = [found for (_, e), found in pairs.items() if e == eta and BOUND in found]
        print(f"\nη = {eta}, {len(chosen)} days; AJCT above the bound in %")
        print(
            f"{'scheduler':36}{'mean':>8}{'worst':>8}{'AFR':>9}{'AGU':>9}{'moves/job':>11}{'GPU-s/job':>11}{'days':>6}"
        )
        for name in names:
            both = [(found[name], found[BOUND]) for found in chosen if name in found]
            if both:
                m = means(both)
                print(
                    f"{name:36}{m['over']:8.3f}{m['worst']:8.3f}{m['afr']:9.5f}{m['agu']:9.5f}"
                    f"{m['moves']:11.4f}{m['still']:11.3f}{len(both):6}"
                )
    print(
        f"""
first (or level), share of (day, η) pairs in %: among all that are not {OURS}; among those of them
that start jobs in the same order (without {", ".join(REORDERING)}); and of these among those of the paper
(without {", ".join(NOT_IN_THE_PAPER)}). 'near': as the second, no more behind than {NEAR}"""
    )
    for name in names:
        if name.startswith(OURS) or name in (BOUND, PAPER):
            cells = []
            for metric in ("ajct", "agu", "afr"):
                shares = [first(name, metric, pairs.values(), left_out) for left_out in FIELDS_OF_RIVALS]
                near = first(name, metric, pairs.values(), REORDERING, NEAR[metric])
                cells.append(f"{metric.upper()} {' '.join(f'{share:6.2f}' for share in shares)} (near {near:6.2f})")
            print(f"{name:34}" + "  ".join(cells))


def means(both: Sequence[tuple[dict[str, str], dict[str, str]]]) -> dict[str, float]:
    """What a scheduler's rows, each with the bound's of the same pair, come to; moves over all jobs alike."""
    over = [100 * (float(a["ajct"]) / float(b["ajct"]) - 1) for a, b in both]
    jobs = sum(int(a["jobs"]) for a, _ in both)
    return {
        "over": mean(over),
        "worst": max(over),
        # A day on which nobody ever waited has neither.
        **{metric: mean(float(a[metric]) for a, _ in both if a[metric]) for metric in ("afr", "agu")},
        "moves": sum(float(a["migrations_per_job"]) * int(a["jobs"]) for a, _ in both) / jobs,
        "still": sum(float(a["disrupted_gpu_seconds"]) for a, _ in both) / jobs,
    }


def draw_frontier(rows: Rows, stem: Path, eta: str = "0.9") -> Path:
    """Each scheduler as a point, on the days that all have: moves per job against what they buy."""
    found: dict[str, dict[str, dict[str, str]]] = defaultdict(dict)
    for row in rows:
        if row["eta"] == eta:
            found[row["scheduler"]][row["day"]] = row
    names = [name for name in (BOUND, *SCHEDULERS) if name not in NOT_DRAWN and found[name]]
    # Days differ a lot: only those that everybody has can be compared.
    days = [day for day in found[BOUND] if all(day in found[name] for name in names)]
    points = {name: means([(found[name][day], found[BOUND][day]) for day in days]) for name in names}
    panels = [
        Panel(
            title,
            {name: [Point(m["moves"], m[metric])] for name, m in points.items()},
            "moves per job",
            better="lower" if better == "lower" else "higher",
            bounds=(BOUND,),
        )
        for metric, title, better in PANELS
    ]
    figure = draw(FigureData("points", panels))
    return save(figure, stem, ["svg"])[0]


def first(
    name: str,
    metric: str,
    pairs: Iterable[dict[str, dict[str, str]]],
    left_out: tuple[str, ...],
    slack: float = 1e-9,
) -> float:
    """In how many of 100 pairs nobody else is better by more than `slack` (of AJCT: a share), the bound left out."""
    sign = -1 if metric == "agu" else 1
    wins = []
    for found in pairs:
        rivals = [
            row for other, row in found.items() if other not in (BOUND, name, *left_out) and not other.startswith(OURS)
        ]
        if name in found and rivals:
            # On a day on which nobody ever waits there is no peak, and nothing better than that.
            own, *others = (sign * float(row[metric] or -sign * inf) for row in (found[name], *rivals))
            best = min(others)
            wins.append(own <= best + slack * (best if metric == "ajct" else 1))
    return 100 * mean(wins) if wins else float("nan")


if __name__ == "__main__":
    main()
