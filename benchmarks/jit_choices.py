"""Could `compass-jit` move less and keep its guarantee? Every choice that it has, made otherwise, on real days.

    python -m benchmarks.jit_choices venus                         # every 4th day at η = 0.85
    python -m benchmarks.jit_choices venus --every 16 --hindsight 120

Two things are free: where a newcomer goes that fits as it is, and which of the cheapest plans makes room for one that
doesn't. Each rule replaces one of them. Hindsight changes both at random, job by job, and keeps what made the day
cheaper, over and over: no rule can do that, since it knows all that is to come, but it shows what there is to gain.
"""

import argparse
import random
from collections.abc import Callable, Sequence
from typing import ClassVar

from compass_abs.model import ClusterState, Decision, Job, Node
from compass_abs.planner import Charge, Impossible, Limits, Plan, Room, plan
from compass_abs.planner.allowance import Allowance
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.jit import CompassJit
from compass_abs.simulation import simulate
from compass_abs.simulation.workload import Workload, day_workload
from compass_abs.traces import read_trace

#: The smaller the better, of a node that holds something and has room for the job.
Placement = Callable[[Job, Node, Situation], tuple[float, ...]]
#: What breaks ties among the cheapest plans: a price from 0 to 1 of each job that moves.
Tie = Callable[[Job, Situation], float]
#: So little that hundreds of moves don't add up to one: no plan with more moves becomes the cheaper.
EPSILON = 1e-3
HOUR = 3600.0


class Chooser(CompassJit):
    """compass-jit with other rules."""

    name: ClassVar[str] = "jit-choices"

    def __init__(
        self, state: ClusterState, placement: Placement | None = None, tie: Tie | None = None, weight: float = EPSILON
    ) -> None:
        super().__init__(state)
        self.placement, self.tie, self.weight = placement, tie, weight
        self.situation = Situation()
        #: Moves that made room for a job after which no GPU was free.
        self.into_the_last = 0

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Remembers what is known at this moment for the rules."""
        self.situation = situation
        decision = super().admit(job, situation)
        if not self.state.free_gpus:
            self.into_the_last += len(decision.before)
        return decision

    def choose(self, job: Job) -> list[int] | None:
        """Single instances by the rule, a new node only where none in use has room."""
        nodes, rule = self.state.nodes, self.placement
        if rule is not None and job.instances == 1:
            used = [i for free in range(job.gpus, self.state.capacity) for i in self.state.by_free[free]]
            if used:
                return [min(used, key=lambda i: (*rule(job, nodes[i], self.situation), nodes[i].free, i))]
        return super().choose(job)

    def plan_room(self, job: Job, allowance: Allowance, limits: Limits) -> Plan | Impossible:
        """The fewest moves; ties by the rule."""
        if self.tie is None:
            return super().plan_room(job, allowance, limits)
        costs = Tied(self.tie, self.weight, self.situation)
        return plan(self.state, Room(job.instances, job.gpus), costs, limits, self.policy.effort)


class Tied:
    """One for each move, and a little of what the rule says."""

    def __init__(self, rule: Tie, weight: float, situation: Situation) -> None:
        self.rule, self.weight, self.situation = rule, weight, situation

    def charge(self, job: Job) -> Charge:
        """The charge of each instance."""
        return Charge(0.0, 1.0 + self.weight * self.rule(job, self.situation))


def left(job: Job, situation: Situation) -> float:
    """The share of a day that the job still takes, at most 1."""
    return min(1.0, (situation.ends[job.id] - situation.now) / (24 * HOUR))


def last_end(node: Node, situation: Situation) -> float:
    """When a node will be empty."""
    return max(situation.ends[instance.job_id] for instance in node.contents)


PLACEMENTS: dict[str, Placement] = {
    "the most instances": lambda job, node, now: (-len(node.contents),),
    "full then, else the most instances": lambda job, node, now: (node.free != job.gpus, -len(node.contents)),
    "best fit, then the most instances": lambda job, node, now: (node.free, -len(node.contents)),
    "best fit, then the fewest instances": lambda job, node, now: (node.free, len(node.contents)),
    "the most of its own size": lambda job, node, now: (-sum(g == job.gpus for g in node.contents.values()),),
    "best fit, then the most of its own size": lambda job, node, now: (
        node.free,
        -sum(g == job.gpus for g in node.contents.values()),
    ),
    "slots: holes that its size divides": lambda job, node, now: (node.free % (4 if job.gpus == 1 else job.gpus),),
    "where the last job ends when it does": lambda job, node, now: (
        abs(last_end(node, now) - now.now - (job.duration or 0.0)),
    ),
    "best fit, then where the last job ends when it does": lambda job, node, now: (
        node.free,
        abs(last_end(node, now) - now.now - (job.duration or 0.0)),
    ),
    "worst fit": lambda job, node, now: (-node.free,),
}
TIES: dict[str, Tie] = {
    "those that end last stay": left,
    "those that end first stay": lambda job, now: 1.0 - left(job, now),
    "the oldest stay": lambda job, now: min(1.0, (now.now - job.submitted) / (24 * HOUR)),
    "the youngest stay": lambda job, now: 1.0 - min(1.0, (now.now - job.submitted) / (24 * HOUR)),
    "the large stay": lambda job, now: job.gpus / 8,
    "the small stay": lambda job, now: 1.0 - job.gpus / 8,
    **{f"at random ({seed})": lambda job, now, seed=seed: dice(seed, job.id, now.now) for seed in range(4)},  # type: ignore[misc]
}


def dice(*words: object) -> float:
    """A number from 0 to 1 that these words always give."""
    return random.Random(repr(words)).random()


def main() -> None:
    """Prints how many moves each rule makes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", nargs="?", default="venus")
    parser.add_argument("--every", type=int, default=4, help="only every so many days")
    parser.add_argument("--eta", type=float, default=0.85)
    parser.add_argument("--hindsight", type=int, default=0, help="changes to try on each day; instead of the rules")
    arguments = parser.parse_args()
    trace = read_trace(arguments.trace)
    days = [day_workload(trace, number) for number in trace.days()[:: arguments.every]]
    clusters = [(work, work.nodes(arguments.eta)) for work in days]
    default, last = total(clusters, None, None)
    print(
        f"{len(days)} days, η = {arguments.eta}: {default} moves, {default / jobs_of(days):.4f} per job, "
        f"{100 * last / default:.0f} % of them for a job that takes the last free GPU"
    )
    if arguments.hindsight:
        chance = random.Random(0)
        best = sum(hindsight(work, nodes, arguments.hindsight, chance) for work, nodes in clusters)
        print(f"with hindsight: {best} ({100 * (best / default - 1):+.1f} %)")
        return
    for title, placement in PLACEMENTS.items():
        report("newcomers", title, total(clusters, placement, None)[0], default)
    for title, tie in TIES.items():
        report("plans", title, total(clusters, None, tie)[0], default)


def report(what: str, title: str, moves: int, default: int) -> None:
    """One line."""
    print(f"{what:10} {title:52} {moves:6} {100 * (moves / default - 1):+6.1f} %", flush=True)


def jobs_of(days: Sequence[Workload]) -> int:
    """Jobs of all days."""
    return sum(len(work.jobs) for work in days)


def total(clusters: Sequence[tuple[Workload, int]], placement: Placement | None, tie: Tie | None) -> tuple[int, int]:
    """Moves on all days, and those of them after which no GPU was free."""
    every = last = 0
    for work, nodes in clusters:
        scheduler = Chooser(ClusterState(nodes), placement, tie)
        every += moves(work, scheduler)
        last += scheduler.into_the_last
    return every, last


def moves(work: Workload, scheduler: Chooser) -> int:
    """Moves on a day."""
    return simulate(work.jobs, scheduler).migrations


def hindsight(work: Workload, nodes: int, attempts: int, chance: random.Random) -> int:
    """The fewest moves of a day that changing the choices at some jobs' admissions found."""
    seeds: dict[str, int] = {}

    def attempt() -> int:
        return moves(work, Hindsight(ClusterState(nodes), seeds))

    best, ids = attempt(), [job.id for job in work.jobs]
    for _ in range(attempts if best else 0):
        before = dict(seeds)
        many = max(1, int(len(ids) * chance.choice((0.005, 0.02, 0.1))))
        seeds.update((job_id, chance.getrandbits(30)) for job_id in chance.sample(ids, many))
        found = attempt()
        if found <= best:
            best = found
        else:
            seeds.clear()
            seeds.update(before)
    return best


class Hindsight(Chooser):
    """Default choices, but for some jobs others, drawn by a seed; a plan may then also take some moves more."""

    def __init__(self, state: ClusterState, seeds: dict[str, int]) -> None:
        super().__init__(state)
        self.seeds = seeds

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Rules of its own for each job that has a seed."""
        seed = self.seeds.get(job.id)
        self.placement = self.tie = None
        if seed is not None:
            self.placement = lambda job, node, now: (dice(seed, node.index),)
            self.tie, self.weight = lambda job, now: dice(seed, job.id), 2.0
        return super().admit(job, situation)


if __name__ == "__main__":
    main()
