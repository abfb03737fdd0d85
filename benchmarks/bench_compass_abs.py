"""COMPASS-ABS: events (arrival or departure, with compaction) per second, at four sizes of cluster."""

from benchmarks.churn import Churn, rates_side_by_side
from compass_abs.model import ClusterState
from compass_abs.schedulers import compass_abs

SIZES = (100, 1_000, 10_000, 100_000)
#: 200,000 events of each size, in turns so short that no neighbour disturbs only one of them.
ROUNDS, CHUNK = 200, 1_000
COUNTED = 20_000
SLOWEST, FASTEST_AT_LEAST = 1.5, 100_000


def main() -> None:
    """Prints events/s at 100 to 100,000 nodes, the slowdown over the range, and what of that is more work."""
    churns = [Churn(compass_abs.CompassAbs(ClusterState(nodes))) for nodes in SIZES]
    compiled = not (compass_abs.__file__ or "").endswith(".py")
    rates = rates_side_by_side(churns, ROUNDS, CHUNK)
    # Compiled functions tell no profiler that they were called.
    calls = [0.0 if compiled else churn.calls(COUNTED) for churn in churns]
    print("compiled by mypyc" if compiled else "plain Python")
    for nodes, rate, called in zip(SIZES, rates, calls, strict=True):
        print(f"{nodes:>8,} nodes: {rate:>9,.0f} events/s" + ("" if compiled else f", {called:5.1f} calls an event"))
    print(f"at {SIZES[1]:,} nodes: {rates[1]:,.0f} events/s (target: at least {FASTEST_AT_LEAST:,})")
    print(
        f"slowdown from {SIZES[0]:,} to {SIZES[-1]:,} nodes: {rates[0] / rates[-1]:.2f} (target: at most {SLOWEST})"
        + ("" if compiled else f"; calls an event: ×{calls[-1] / calls[0]:.2f}, so the rest is memory that is far away")
    )


if __name__ == "__main__":
    main()
