"""COMPASS-ABS: events (arrival or departure, with compaction) per second, at four sizes of cluster."""

from statistics import median

from benchmarks.churn import events_per_second
from compass_abs.schedulers.compass_abs import CompassAbs


def main() -> None:
    """Prints events/s at 100 to 100,000 nodes and the slowdown over the range."""
    sizes = (100, 1_000, 10_000, 100_000)
    # Rounds over all sizes, so that a noisy minute falls on all of them alike.
    rounds = [[events_per_second(CompassAbs, nodes, 100_000, seed) for nodes in sizes] for seed in range(3)]
    rates = [median(column) for column in zip(*rounds, strict=True)]
    for nodes, rate in zip(sizes, rates, strict=True):
        print(f"{nodes:>8,} nodes: {rate:>9,.0f} events/s")
    print(f"slowdown from {sizes[0]:,} to {sizes[-1]:,} nodes: {rates[0] / rates[-1]:.2f} (target: at most 1.5)")
