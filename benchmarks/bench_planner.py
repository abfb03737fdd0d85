"""Plans for a blocked head: how long they take, and how far from the cheapest, at 250, 2,500 and 25,000 nodes.

Clusters are filled to the first head that waits although enough GPUs are free, and churn from there; best fit in
between, so that what is planned for is what best fit leaves behind. Half of them draw sizes
after Venus (Table 1 of the paper), half with many sizes that are no power of two. CPU time of one thread, since the
machine may be shared.
"""

import random
import time
from collections.abc import Iterator

from compass_abs.fragmentation import minimum_used
from compass_abs.model import ClusterState, Job
from compass_abs.planner import Charge, Costs, Disruption, Effort, FewestMoves, Plan, Room, plan
from compass_abs.schedulers.histogram import choose_nodes

SIZES = range(1, 9)
MIXES = {"venus": (62, 5, 0.3, 5, 0.2, 0.3, 0.2, 27), "mixed": (25, 15, 12, 12, 12, 6, 6, 12)}
SAMPLES = {250: 50, 2500: 50, 25000: 12}
COLUMNS = ("CPU ms p50", "p99", "mean gap", "worst", "n")


class Priced:
    """GPU-seconds with a pause of each job's own, 5 to 120 s, as measured pauses are."""

    def charge(self, job: Job) -> Charge:
        """GPUs of the gang times its pause."""
        return Charge(job.total_gpus * random.Random(job.id).uniform(5, 120), 0.0)


OBJECTIVES: dict[str, Costs] = {"moves": FewestMoves(), "disruption": Disruption(), "priced": Priced()}


def main() -> None:
    """Prints a table."""
    print(f"{'nodes':>7} {'sizes':6} {'objective':11} {'effort':9}" + "".join(f"{name:>12}" for name in COLUMNS))
    for nodes, samples in SAMPLES.items():
        for mix, weights in MIXES.items():
            for name, costs in OBJECTIVES.items():
                # Every job with its own price: a dozen is enough to see what that takes.
                many = min(samples, 12) if name == "priced" else samples
                measure(nodes, mix, weights, name, costs, many)


def measure(nodes: int, mix: str, weights: tuple[float, ...], name: str, costs: Costs, samples: int) -> None:
    """One line for each effort."""
    times: dict[Effort, list[float]] = {effort: [] for effort in Effort}
    gaps: dict[Effort, list[float]] = {effort: [] for effort in Effort}
    for state, head in blocked_heads(nodes, weights, samples):
        cost = {}
        for effort in (Effort.EXACT, Effort.BALANCED, Effort.FAST):
            start = time.process_time()
            found = plan(state, Room(head.instances, head.gpus), costs, effort=effort)
            times[effort].append(1000 * (time.process_time() - start))
            if not isinstance(found, Plan):
                raise SystemExit(f"{effort} found no plan where a packing exists")
            cost[effort] = found.cost
            gaps[effort].append(found.cost / max(cost[Effort.EXACT], 1e-9) if found.cost else 1.0)
    for effort in Effort:
        ordered = sorted(times[effort])
        p50, p99 = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
        gap = gaps[effort]
        cells = (f"{p50:.1f}", f"{p99:.1f}", f"{sum(gap) / len(gap):.4f}", f"{max(gap):.2f}", f"{len(gap)}")
        print(f"{nodes:7} {mix:6} {name:11} {effort:9}" + "".join(f"{cell:>12}" for cell in cells), flush=True)


def blocked_heads(nodes: int, weights: tuple[float, ...], samples: int) -> Iterator[tuple[ClusterState, Job]]:
    """Heads that wait although a packing exists; some of the cluster turns over between two samples."""
    chance, state = random.Random(nodes), ClusterState(nodes)
    orders = [range(gpus, 9) for gpus in range(9)]
    running: list[str] = []
    number = found = 0
    # At least so many departures between two samples, for them not to be about the same state.
    pause, since = max(3, nodes // 50), 0
    while found < samples:
        gpus = chance.choices(SIZES, weights)[0]
        count = (
            min(chance.choice((1, 1, 1, 2, 2, 4, 8, 16)), nodes // 4) if gpus == 8 else chance.choice((1,) * 24 + (2,))
        )
        job = Job(f"j{number}", count, gpus)
        number += 1
        while (chosen := choose_nodes(state, gpus, count, orders[gpus])) is None:
            demand = list(state.demand)
            demand[gpus] += count
            if since >= pause and minimum_used(demand) <= nodes:
                yield state, job
                found, since = found + 1, 0
                if found == samples:
                    return
            index = chance.randrange(len(running))
            running[index], running[-1] = running[-1], running[index]
            state.release(running.pop())
            since += 1
        state.place(job, chosen)
        running.append(job.id)


if __name__ == "__main__":
    main()
