"""Whatever a policy allows, nothing moves that it doesn't: in random lives with waiting, tidying and draining."""

import random
from collections import Counter
from collections.abc import Callable

import pytest

from compass_abs.model import ClusterState, Decision, Job, NodeStatus, Verdict
from compass_abs.planner.allowance import Allowance
from compass_abs.planner.policy import Policy
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.jit import CompassJit

HOUR = 3600.0


class Life:
    """Arrivals, departures and drains on a manual clock; checks every move against the policy at its time."""

    def __init__(self, policy: Policy, seed: int) -> None:
        self.policy, self.chance = policy, random.Random(seed)
        self.scheduler, self.situation = CompassJit.under(ClusterState(7), policy), Situation()
        self.waiting: list[Job] = []
        self.situation.waiting = self.waiting
        #: When each instance was moved; who was moved how often; why jobs had to wait.
        self.moved: list[tuple[float, str]] = []
        self.pauses: Counter[str] = Counter()
        self.verdicts: Counter[Verdict] = Counter()

    def run(self, steps: int) -> "Life":
        for k in range(steps):
            self.situation.now += self.chance.choice((20.0, 200.0, 900.0))
            self.waiting.append(self.job(k))
            for job_id in [j for j, end in self.situation.ends.items() if end <= self.situation.now]:
                self.finish(job_id)
            if self.chance.random() < 0.1:
                node = self.chance.choice(self.scheduler.state.nodes)
                status = NodeStatus.DRAINING if node.status is NodeStatus.UP else NodeStatus.UP
                self.watch(lambda n=node, s=status: self.scheduler.set_status(n.name, s, self.situation))
            while self.waiting:
                decision = self.watch(lambda: self.scheduler.admit(self.waiting[0], self.situation))
                if decision.reason is not None:
                    self.verdicts[decision.reason.verdict] += 1
                    break
                job = self.waiting.pop(0)
                assert job.duration is not None
                self.situation.ends[job.id] = self.situation.now + job.duration
                self.situation.progress[job.id] = self.situation.now
            self.scheduler.check_invariants()
        return self

    def job(self, k: int) -> Job:
        duration = 10 ** self.chance.uniform(2, 4.5)
        return Job(
            f"j{k:03d}",
            self.chance.choice((1, 1, 1, 2)),
            self.chance.choice((1, 1, 2, 3, 4, 6, 8)),
            self.situation.now,
            duration,
            priority=self.chance.choice((0, 0, 2)),
            movable=self.chance.random() > 0.1,
            pause=self.chance.choice((None, 3.0, 60.0)),
            deadline=self.chance.choice((None, None, self.situation.now + duration + self.chance.choice((1, 500)))),
        )

    def finish(self, job_id: str) -> None:
        self.situation.ends.pop(job_id)
        self.situation.progress.pop(job_id)
        self.watch(lambda: self.scheduler.finish(job_id, self.situation))

    def watch(self, act: Callable[[], Decision]) -> Decision:
        """Does something and checks each of its moves against what was allowed before it."""
        now, ends, progress = self.situation.now, dict(self.situation.ends), dict(self.situation.progress)
        before = Allowance(self.policy, self.scheduler.ledger, now, ends, progress)
        jobs = {job_id: gang.job for job_id, gang in self.scheduler.state.gangs.items()}
        protected = {job_id for job_id, job in jobs.items() if not job.movable or before.protection(job)}
        decision = act()
        if decision.migrations:
            assert before.closed() is None
        for job_id in dict.fromkeys(move.instance.job_id for move in decision.migrations):
            if job_id in jobs:
                assert job_id not in protected
                pause = before.pause(jobs[job_id])
                if jobs[job_id].deadline is not None:
                    assert ends[job_id] + pause <= jobs[job_id].deadline  # type: ignore[operator]
                self.situation.ends[job_id] += pause
                self.situation.progress[job_id] = now + pause
            self.pauses[job_id] += 1
        self.moved += [(now, move.instance.job_id) for move in decision.migrations]
        return decision


@pytest.mark.parametrize("tidiness", ["never", "peak", "always"])
@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"moves_per_hour": 3},
        {"moves_in_flight": 2, "pause": 30},
        {"moves_per_job": 1},
        {"cooldown": 1800, "objective": "lightest"},
        {"spare_last": 600, "objective": "disruption"},
        {"windows": "22:00-06:00 12:00-13:00"},
        {"moves_per_hour": 4, "moves_per_job": 2, "cooldown": 300, "windows": "00:00-12:00", "value": 2},
    ],
    ids=lambda knobs: ",".join(knobs) or "free",
)
def test_life_under_a_policy_never_moves_what_it_forbids(tidiness: str, knobs: dict[str, object]) -> None:
    policy = Policy.from_mapping({"tidiness": tidiness, **knobs})
    life = Life(policy, seed=3).run(110)
    assert life.moved
    times = [time for time, _ in life.moved]
    if policy.moves_per_hour is not None:
        for time in times:
            assert sum(time - HOUR < other <= time for other in times) <= policy.moves_per_hour
    if policy.moves_per_job is not None:
        assert max(life.pauses.values()) <= policy.moves_per_job
    if policy.moves_in_flight is not None:
        # A move takes its job's own pause where it was measured.
        for time in times:
            assert sum(other == time for other in times) <= policy.moves_in_flight
    for time in times:
        assert not policy.windows or any(window.contains(time) for window in policy.windows)


def test_life_under_a_strict_policy_says_policy_and_a_free_one_never_does() -> None:
    def verdicts(**knobs: object) -> Counter[Verdict]:
        life = Life(Policy.from_mapping(knobs), seed=4)
        # Nothing is pinned and nobody has a deadline: only the knobs can be in the way.
        plain = life.job
        life.job = lambda k: Job(f"j{k:03d}", 1, plain(k).gpus, life.situation.now, 4000.0)  # type: ignore[method-assign]
        return life.run(110).verdicts

    free, strict = verdicts(), verdicts(moves_per_hour=0)
    assert free[Verdict.POLICY] == free[Verdict.FRAGMENTATION] == 0
    assert free[Verdict.CAPACITY] > 5
    assert strict[Verdict.POLICY] > 5


def test_measured_pause_decides_whose_disruption_is_the_smaller() -> None:
    for slow in ("j0", "j1"):
        state = ClusterState(2)
        for index in (0, 1):
            name = f"j{index}"
            state.place(Job(name, 1, 4, pause=60.0 if name == slow else 5.0), [index])
        decision = CompassJit(state, objective="disruption").admit(Job("new", 1, 8), Situation())  # type: ignore[arg-type]
        assert [move.instance.job_id for move in decision.before] == ["j1" if slow == "j0" else "j0"]
