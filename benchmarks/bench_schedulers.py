"""Events a second of the placement rules at any cluster size, and what a round of FFT costs."""

import random
import statistics
import time

from compass_abs.model import ClusterState, Job
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.registry import make_scheduler

RULES = ("gfs", "fgd", "cafgd", "mcg", "spread", "drr")
CLUSTER_SIZES = (50, 500, 2665)
ROUND_SIZES = (150, 300, 1200)
EVENTS = 60_000
# Shares of single instances by size as in Venus: mostly ones and eights.
SIZES = (1,) * 76 + (2,) * 10 + (4,) * 8 + (8,) * 5 + (3,)


def churn(scheduler: Scheduler, events: int, seed: int) -> tuple[int, float]:
    """Fills the cluster, then counts arrivals, each tried until admitted, and departures; and their seconds."""
    draw = random.Random(seed)
    situation = Situation()
    # Made beforehand: what is measured is the scheduler and the state, not the trace.
    nodes = scheduler.state.available_nodes
    jobs = [Job(f"j{k}", 1, draw.choice(SIZES), k / 10, 10 ** draw.uniform(1, 5)) for k in range(events + 10 * nodes)]
    running: list[str] = []
    handled = number = 0
    full = False
    # Processor time: others may share the machine.
    start = time.process_time()
    while handled < events:
        job = jobs[number]
        number += 1
        situation.now = job.submitted
        situation.waiting = (job,)
        scheduler.submitted(job, situation)
        while True:
            handled += 1
            decision = scheduler.admit(job, situation)
            if decision.reason is None:
                running.append(job.id)
                break
            if decision.reason.until is not None:
                situation.now = decision.reason.until
                continue
            if not full:
                full, handled, start = True, 0, time.process_time()
            k = draw.randrange(len(running))
            running[k], running[-1] = running[-1], running[k]
            handled += 1
            scheduler.finish(running.pop(), situation)
    return handled, time.process_time() - start


def throughput() -> None:
    """Prints thousands of events a second for each rule and cluster size."""
    print("thousand events a second, one process   " + "".join(f"{f'{n} nodes':>14}" for n in CLUSTER_SIZES))
    for name in RULES:
        rates = []
        for nodes in CLUSTER_SIZES:
            scheduler = make_scheduler(name, ClusterState(nodes))
            handled, seconds = churn(scheduler, EVENTS, 2)
            rates.append(handled / seconds / 1000)
        print(f"{name:<40}" + "".join(f"{rate:>14.0f}" for rate in rates), flush=True)


def rounds() -> None:
    """Prints what repacking a fragmented cluster costs FFT."""
    print("\nFFT, one round on a cluster that best fit has fragmented")
    print(f"{'nodes':>8}{'states':>8}{'median s':>10}{'worst s':>10}{'moves':>8}{'partial before':>16}{'after':>8}")
    for nodes in ROUND_SIZES:
        seconds, moves, before, after = [], [], [], []
        for seed in range(8):
            scheduler = make_scheduler("fft", ClusterState(nodes))
            churn(scheduler, 40 * nodes, seed)
            before.append(scheduler.state.partial_nodes)
            start = time.perf_counter()
            decision = scheduler.round(Situation())
            seconds.append(time.perf_counter() - start)
            moves.append(len(decision.migrations))
            after.append(scheduler.state.partial_nodes)
        print(
            f"{nodes:>8}{len(seconds):>8}{statistics.median(seconds):>10.3f}{max(seconds):>10.3f}"
            f"{statistics.mean(moves):>8.1f}{statistics.mean(before):>16.1f}{statistics.mean(after):>8.1f}",
            flush=True,
        )


def main() -> None:
    """Prints both."""
    throughput()
    rounds()


if __name__ == "__main__":
    main()
