"""Φ*, U* and their packings for random clusters of 100,000 nodes, the workload composition condition holding or not."""

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from compass_abs.fragmentation import (
    HeldNodes,
    fewest_partial_around,
    inherent,
    largest_gang_repacked,
    minimum_used,
    slot_width,
    wcc_holds,
    witness,
)
from compass_abs.fragmentation.pattern_program import fewest_partial

NODES = 100_000
SAMPLES = {8: 2000, 16: 2000}

Demand = list[int]
Subject = TypeVar("Subject")


def random_demand(chance: random.Random, capacity: int) -> Demand:
    """Instances that fill most of the cluster, in widely varying proportions, some sizes absent."""
    weights = [0.0, *(chance.choice((0.0, 1.0, 10.0 ** chance.uniform(-3, 0))) for _ in range(capacity))]
    weights[chance.randint(1, capacity)] += 0.01
    scale = chance.uniform(0.5, 0.95) * NODES * capacity / sum(g * w for g, w in enumerate(weights))
    return [int(scale * weight) for weight in weights]


def demand_of_family(chance: random.Random, capacity: int, condition_holds: bool) -> Demand:
    """A random demand for which the condition holds, or does not."""
    while True:
        counts = random_demand(chance, capacity)
        if condition_holds:
            counts[1] += sum((slot_width(g) - g) * n for g, n in enumerate(counts) if g > 1)
        if wcc_holds(counts, capacity) == condition_holds:
            return counts


def milliseconds(question: Callable[[Subject], object], subject: Subject) -> float:
    """CPU time of one answer."""
    start = time.process_time()
    question(subject)
    return 1000 * (time.process_time() - start)


def report(name: str, times: Sequence[float]) -> None:
    """One line: median and worst."""
    ordered = sorted(times)
    print(f"  {name:<44} median {ordered[len(ordered) // 2]:9.4f} ms   worst {ordered[-1]:9.4f} ms   n={len(ordered)}")


def held_nodes_of(chance: random.Random, capacity: int) -> HeldNodes:
    """A cluster of which a random share is pinned, and of which not every node is full."""
    nodes, movable = [0] * (capacity + 1), [0] * (capacity + 1)
    pinned_share = chance.choice((0.02, 0.2, 0.5))
    for _ in range(NODES // 10):
        free, load = capacity, 0
        while free and chance.random() < 0.85:
            gpus = chance.randint(1, free)
            free -= gpus
            if chance.random() < pinned_share:
                load += gpus
            else:
                movable[gpus] += 1
        nodes[load] += 1
    return HeldNodes(tuple(nodes), tuple(movable))


def report_demands(capacity: int, demands: Sequence[Demand]) -> None:
    """Every question on each of these demands."""
    questions: dict[str, Callable[[Demand], object]] = {
        "inherent": lambda counts: inherent(counts, capacity),
        "minimum_used": lambda counts: minimum_used(counts, capacity),
        "witness": lambda counts: witness(counts, capacity),
    }
    if capacity == 8:
        questions["largest_gang_repacked, of whole nodes"] = lambda counts: largest_gang_repacked(counts, NODES, 8)
    for name, question in questions.items():
        report(name, [milliseconds(question, counts) for counts in demands])
    if capacity == 8:
        by_program = [milliseconds(lambda counts: fewest_partial(counts, 8), counts) for counts in demands[:200]]
        report("witness by integer program, for reference", by_program)


def main() -> None:
    """Prints median and worst time of each question."""
    fewest_partial([0, 3, 3, 0, 0, 3, 0, 0, 0], 8)  # loads the solver
    chance = random.Random(2026)
    for capacity, samples in SAMPLES.items():
        for condition_holds in (True, False):
            print(f"{NODES} nodes of {capacity} GPUs, condition {'holds' if condition_holds else 'does not hold'}")
            report_demands(capacity, [demand_of_family(chance, capacity, condition_holds) for _ in range(samples)])
    print(f"{NODES // 10} nodes of 8 GPUs, some instances pinned")
    held = [held_nodes_of(chance, 8) for _ in range(200)]
    report("fewest_partial_around", [milliseconds(lambda h: fewest_partial_around(h, 8), h) for h in held])


if __name__ == "__main__":
    main()
