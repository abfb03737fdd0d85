"""COMPASS-ABS: events (arrival or departure, with compaction) per second, at four sizes of cluster."""

from benchmarks.churn import Churn, rates_side_by_side
from compass_abs.model import ClusterState
from compass_abs.schedulers import compass_abs

SIZES = (100, 1_000, 10_000, 100_000)
#: 200,000 events of each size, in turns so short that no neighbour disturbs only one of them.
ROUNDS, CHUNK = 200, 1_000
COUNTED = 20_000
SLOWEST, AT_LEAST = 1.5, 100_000


def main() -> None:
    """Prints events/s at 100 to 100,000 nodes, the slowdown over the range, and what of that is more work."""
    churns = [Churn(compass_abs.CompassAbs(ClusterState(nodes))) for nodes in SIZES]
    compiled = not (compass_abs.__file__ or "").endswith(".py")
    rates = rates_side_by_side(churns, ROUNDS, CHUNK)
    # Compiled functions tell no profiler that they were called.
    calls = [0.0 if compiled else churn.calls(COUNTED) for churn in churns]
    print("compiled by mypyc" if compiled else "plain Python")
    for nodes, rate, called in zip(SIZES, rates, calls, strict=True):
        work = "" if compiled else f", {called:5.1f} calls of functions an event"
        print(f"{nodes:>8,} nodes: {rate.median:>9,.0f} events/s, undisturbed {rate.quiet:>9,.0f}{work}")
    print(f"at {SIZES[1]:,} nodes undisturbed: {rates[1].quiet:,.0f} events/s (target: at least {AT_LEAST:,})")
    slowdown = rates[0].median / rates[-1].median
    print(f"slowdown from {SIZES[0]:,} to {SIZES[-1]:,} nodes: {slowdown:.2f} (target: at most {SLOWEST})")
    if not compiled:
        print(f"calls an event: ×{calls[-1] / calls[0]:.2f}; what is slower than that is memory that no cache holds")


if __name__ == "__main__":
    main()
