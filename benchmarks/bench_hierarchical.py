"""Events per second on NVLink domains, at 10 to 10,000 racks of 9 panels; and plans for a rack-sized gang that waits.

An event is an arrival or a departure; COMPASS-ABS compacts every level after each. CPU time of one process.
"""

import random
import time
from collections.abc import Sequence
from statistics import median

from benchmarks.churn import Churn, rates_side_by_side
from compass_abs.fragmentation.levels import fits_repacked
from compass_abs.model import Job
from compass_abs.planner import FewestMoves, Plan
from compass_abs.planner.domains import plan_domains
from compass_abs.schedulers.registry import make_scheduler
from compass_abs.topology import PRESETS, DomainState

TOPOLOGY = PRESETS["nvl72-paper"]
#: Instances below a panel, of a panel, and of several, up to the whole rack.
SIZES = (1, 2, 4, 8, 16, 24, 32, 72)
WEIGHTS = (30, 9, 17, 26, 6, 2, 4, 1.5)
DOMAINS = (10, 100, 1_000, 10_000)
#: Instances of so many panels leave gaps that no other fits into.
AWKWARD = (5, 7, 11, 13, 17, 19, 23, 29, 31, 36, 37)
FLAT_DOMAINS = (2, 4, 8)
ROUNDS, CHUNK, COUNTED, PLANS = 40, 500, 5_000, 10
SLOWEST = 1.5


def main() -> None:
    """Prints events/s, calls of functions for each event, and how long a plan takes."""
    # Best fit alone, where moves are planned only for a head that waits: those are the second table.
    for name in ("hierarchical", "hierarchical-jit"):
        churns = [churn_on_racks(name, domains) for domains in DOMAINS]
        rates = [rate.median for rate in rates_side_by_side(churns, ROUNDS, CHUNK)]
        calls = [churn.calls(COUNTED) for churn in churns]
        for domains, rate, called in zip(DOMAINS, rates, calls, strict=True):
            print(f"{name:18}{domains:>8,} racks: {rate:>9,.0f} events/s, {called:6.1f} calls an event", flush=True)
        print(
            f"{name:18}most that more racks slow it down: {most_growth(rates[::-1]):.2f} (target: at most {SLOWEST})"
            f"; calls an event: ×{most_growth(calls):.2f}"
        )
    for domains in DOMAINS[:3]:
        times = sorted(plan_times(domains))
        print(
            f"plan for a rack-sized gang, {domains:>6,} racks: {median(times):8.1f} ms p50, {times[-1]:8.1f} ms at most"
        )
    for domains in FLAT_DOMAINS:
        times = sorted(awkward_plan_times(domains))
        print(f"plan on {domains} flat domains of 72 panels: {median(times):8.1f} ms p50, {times[-1]:8.1f} ms at most")


def awkward_plan_times(domains: int) -> list[float]:
    """Milliseconds of CPU for plans on flat domains of 72 panels, full of instances that hardly fit side by side."""
    topology, found, seed = PRESETS["nvl576"], list[float](), 0
    while len(found) < PLANS:
        rng, seed = random.Random(seed), seed + 1
        state = DomainState(domains * topology.panels_per_domain, topology)
        for number in range(40 * domains):
            units, first = rng.choice(AWKWARD), 72 * rng.randrange(domains)
            empty = [panel for panel in range(first, first + 72) if not state.nodes[panel].contents]
            if len(empty) >= units:
                state.place(Job(f"j{number:04}", 1, 8 * units), empty[:units])
        for job_id in list(state.gangs):
            if rng.random() < 0.25:
                state.release(job_id)
        wanted = Job("wanted", 1, 8 * rng.choice(AWKWARD))
        if state.room(wanted.gpus) or wanted.gpus > state.free_gpus or not fits_repacked(state, wanted):
            continue
        start = time.process_time()
        outcome = plan_domains(state, wanted, FewestMoves())
        found.append(1000 * (time.process_time() - start))
        if not isinstance(outcome, Plan):
            raise SystemExit(f"no plan on {domains} domains of 72, although a packing exists: {outcome}")
    return found


def most_growth(values: Sequence[float]) -> float:
    """The largest ratio of a value to one before it.

    The smallest cluster isn't always the fastest: with ten racks a rack-sized gang often needs a plan to fit at all.
    """
    return max(later / earlier for k, earlier in enumerate(values) for later in values[k + 1 :])


def churn_on_racks(name: str, domains: int) -> Churn:
    """One scheduler, once nine tenths of the GPUs are in use."""
    scheduler = make_scheduler(name, DomainState(domains * TOPOLOGY.panels_per_domain, TOPOLOGY))
    return Churn(scheduler, SIZES, WEIGHTS)


def plan_times(domains: int) -> list[float]:
    """Milliseconds of CPU for plans on racks of which every panel holds 0 to 7 GPUs of small jobs."""
    found = []
    for seed in range(PLANS):
        rng = random.Random(seed)
        state = DomainState(domains * TOPOLOGY.panels_per_domain, TOPOLOGY)
        for panel in range(len(state.nodes)):
            for number in range(rng.choice((0, 1, 1, 1, 2, 3))):
                state.place(Job(f"j{panel}-{number}", 1, rng.choice((1, 1, 2))), [panel])
        start = time.process_time()
        outcome = plan_domains(state, Job("rack", 1, TOPOLOGY.largest_instance), FewestMoves())
        found.append(1000 * (time.process_time() - start))
        if not isinstance(outcome, Plan):
            raise SystemExit(f"no plan on {domains} racks, although a packing exists: {outcome}")
    return found


if __name__ == "__main__":
    main()
