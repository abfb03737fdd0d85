"""Events a second of the placement rules at any cluster size, and what a round of FFT costs."""

import statistics
import time
from collections import deque
from collections.abc import Sequence

from benchmarks.churn import Churn, rates_side_by_side
from compass_abs.fragmentation import inherent, minimum_used
from compass_abs.model import ClusterState, Job
from compass_abs.planner import Plan, Tidy, plan
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.registry import make_scheduler, parse_choice

#: Those that the target is for, MCG without its reordering; and others beside them.
RULES, OTHERS = ("gfs", "fgd", "cafgd", "mcg"), ("spread", "drr:policy=best-fit", "drr")
CLUSTER_SIZES = (50, 500, 2665, 10_000)
TURNS, CHUNK, COUNTED = 60, 500, 5_000
AT_LEAST = 200_000
ROUND_SIZES, STATES = (150, 300, 1200), 8
# A mix that fragments: few whole nodes, many small instances.
FRAGMENTING = (1, 2, 3, 4, 8), (76, 10, 1, 8, 5)


class Stream(Churn):
    """The stream of benchmarks/churn.py, of jobs with a time and a duration of which the scheduler is told."""

    def run(self, events: int) -> float:
        """Handles so many arrivals and departures; says how many seconds of CPU that took."""
        jobs, picks = deque(self._jobs(events)), [self._rng.random() for _ in range(events)]
        scheduler, running, situation, spare = self.scheduler, self._running, Situation(), self._spare
        begin = time.process_time()
        for pick in picks:
            if scheduler.state.free_gpus < spare:
                self._finish_one(pick, situation)
            else:
                job = jobs.popleft()
                situation.now, situation.waiting = job.submitted, (job,)
                scheduler.submitted(job, situation)
                if scheduler.admit(job, situation).reason is None:
                    running.append(job.id)
        return time.process_time() - begin

    def _finish_one(self, pick: float, situation: Situation) -> None:
        running = self._running
        k = int(pick * len(running))
        running[k], running[-1] = running[-1], running[k]
        self.scheduler.finish(running.pop(), situation)

    def _jobs(self, many: int) -> list[Job]:
        # One every ten seconds, each for 10 s to a day: FGD and MCG look back a week, and CAFGD asks how long.
        plain, draw = super()._jobs(many), self._rng
        first = self._submitted - many
        return [
            Job(job.id, job.instances, job.gpus, 10.0 * (first + k), 10 ** draw.uniform(1, 5))
            for k, job in enumerate(plain)
        ]


class Crowd(Stream):
    """A cluster so full that somebody always waits: after every event the first in line is tried, mostly in vain.

    Arrivals and departures are counted; that a try is refused costs time, but is no event.
    """

    _head: Job | None = None

    def run(self, events: int) -> float:
        """Handles so many events; says how many seconds of CPU that took."""
        jobs, picks = iter(self._jobs(events)), iter([self._rng.random() for _ in range(events)])
        scheduler, running, situation, head = self.scheduler, self._running, Situation(), self._head
        if head is not None:
            situation.now, situation.waiting = head.submitted, (head,)
        handled = 0
        begin = time.process_time()
        while handled < events:
            if head is None:
                handled += 1
                head = next(jobs)
                situation.now, situation.waiting = head.submitted, (head,)
                scheduler.submitted(head, situation)
            decision = scheduler.admit(head, situation)
            if decision.reason is None:
                running.append(head.id)
                head = None
            elif decision.reason.until is not None:
                situation.now = decision.reason.until
            else:
                handled += 1
                self._finish_one(next(picks), situation)
        seconds = time.process_time() - begin
        self._head = head
        return seconds


def settled(kind: type[Stream], choice: str, nodes: int, *mix: Sequence[int], seed: int = 0) -> Stream:
    """A scheduler in the midst of a stream, after as many events as make it forget how the cluster was filled."""
    name, parameters = parse_choice(choice)
    made = kind(make_scheduler(name, ClusterState(nodes), **parameters), *mix, seed=seed)
    made.run(10 * nodes)
    return made


def throughput(kind: type[Stream], title: str) -> None:
    """Prints events a second for each rule and cluster size, all sizes of a rule in turns."""
    print(f"thousand events a second in one process, {title}: in the middle of all turns / in an undisturbed one")
    print(f"{'':24}" + "".join(f"{f'{n:,} nodes':>16}" for n in CLUSTER_SIZES) + "   calls an event")
    for choice in RULES + OTHERS:
        streams = [settled(kind, choice, nodes) for nodes in CLUSTER_SIZES]
        rates = rates_side_by_side(streams, TURNS, CHUNK)
        calls = [each.calls(COUNTED) for each in streams]
        cells = "".join(f"{f'{rate.median / 1000:.0f} / {rate.quiet / 1000:.0f}':>16}" for rate in rates)
        target = ""
        if choice in RULES:
            missed = [f"{n:,}" for n, rate in zip(CLUSTER_SIZES, rates, strict=True) if rate.quiet < AT_LEAST]
            target = f"; under {AT_LEAST:,} at {', '.join(missed)} nodes" if missed else f"; {AT_LEAST:,} at any size"
        print(f"{choice:24}{cells}   {calls[0]:.1f} to {calls[-1]:.1f}{target}", flush=True)


def rounds() -> None:
    """Prints what repacking a fragmented cluster costs FFT."""
    print("FFT, one round on a cluster that best fit has fragmented")
    heads = {"nodes": 8, "states": 8, "proven": 8, "median s": 10, "worst s": 10, "moves": 8, "partial before": 16}
    print("".join(f"{head:>{width}}" for head, width in heads.items()) + f"{'after':>8}")
    for nodes in ROUND_SIZES:
        seconds, moves, before, after, proven = [], [], [], [], 0
        for seed in range(STATES):
            scheduler = settled(Crowd, "fft", nodes, *FRAGMENTING, seed=seed).scheduler
            proven += is_proven(scheduler.state)
            before.append(scheduler.state.partial_nodes)
            start = time.perf_counter()
            decision = scheduler.round(Situation())
            seconds.append(time.perf_counter() - start)
            moves.append(len(decision.migrations))
            after.append(scheduler.state.partial_nodes)
        print(
            f"{nodes:>8}{len(seconds):>8}{proven:>8}{statistics.median(seconds):>10.3f}{max(seconds):>10.3f}"
            f"{statistics.mean(moves):>8.1f}{statistics.mean(before):>16.1f}{statistics.mean(after):>8.1f}",
            flush=True,
        )


def is_proven(state: ClusterState) -> bool:
    """Whether the solver proved that no plan to the round's target moves fewer instances."""
    target = Tidy(inherent(state.demand, state.capacity), minimum_used(state.demand, state.capacity))
    found = plan(state, target)
    return isinstance(found, Plan) and found.proven


def main() -> None:
    """Prints both."""
    throughput(Stream, "a tenth of the GPUs free")
    throughput(Crowd, "somebody waiting all the time")
    rounds()


if __name__ == "__main__":
    main()
