"""A policy at one moment: what each job's move costs now, how many may move, and what a refusal says."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from compass_abs.model import Job, Migration
from compass_abs.planner.costs import FORBIDDEN, Charge
from compass_abs.planner.ledger import Entry, Ledger
from compass_abs.planner.policy import Objective, Policy

#: Priorities beyond this weigh no more, so that charges stay numbers a solver can compare.
_STEPS = 6
#: Of a GPU that moves, in moves: so little that a thousand moves of 8 GPUs don't add up to one more, and much more than
#: what costs may differ by and still be equal.
_LITTLE = 1e-4


class Denial(NamedTuple):
    """Why nothing may move now, and when to ask again, where that is known."""

    text: str
    until: float | None


@dataclass(frozen=True, slots=True)
class Allowance:
    """`Costs` for the planner, by this policy at this time."""

    policy: Policy
    ledger: Ledger
    now: float
    #: Expected end of running jobs, where known, and when each last started or resumed.
    ends: Mapping[str, float]
    progress: Mapping[str, float]

    def pause(self, job: Job) -> float:
        """Seconds that a move makes this job stand still."""
        return self.policy.pause if job.pause is None else job.pause

    def charge(self, job: Job) -> Charge:
        """The charge by the policy's objective, weighed by priority; `FORBIDDEN` for a protected job."""
        if self.protection(job):
            return FORBIDDEN
        policy = self.policy
        weight = policy.priority_factor ** max(-_STEPS, min(_STEPS, job.priority))
        if policy.objective is Objective.MOVES:
            return Charge(0.0, weight)
        if policy.objective is Objective.LIGHTEST:
            return Charge(0.0, weight * (1.0 + _LITTLE * job.gpus))
        return Charge(job.total_gpus * self.pause(job) * weight, 0.0)

    def protection(self, job: Job) -> str:
        """What protects a movable job from being moved now; empty when nothing does."""
        policy, end = self.policy, self.ends.get(job.id)
        if job.deadline is not None and (end is None or end + self.pause(job) > job.deadline):
            return "its deadline"
        if policy.spare_last and end is not None and end - self.now <= policy.spare_last:
            return "its last minutes"
        if policy.cooldown and self.now - self.progress.get(job.id, -policy.cooldown) < policy.cooldown:
            return "its cooldown"
        if policy.moves_per_job is not None and self.ledger.moves_of(job.id) >= policy.moves_per_job:
            return "its budget of moves"
        return ""

    def held(self, jobs: Iterable[Job]) -> dict[str, int]:
        """How many instances may not move now, by what keeps them."""
        counts: dict[str, int] = {}
        for job in jobs:
            if not job.movable:
                reason = "pinned"
            elif why := self.protection(job):
                reason = f"for {why}"
            else:
                continue
            counts[reason] = counts.get(reason, 0) + job.instances
        return counts

    def moves(self) -> int | None:
        """How many instances may move now; None for any number."""
        policy, left = self.policy, []
        if policy.moves_per_hour is not None:
            left.append(policy.moves_per_hour - self.ledger.last_hour(self.now))
        if policy.moves_in_flight is not None:
            left.append(policy.moves_in_flight - self.ledger.in_flight(self.now))
        return max(0, min(left)) if left else None

    def closed(self) -> Denial | None:
        """A denial outside the maintenance windows."""
        windows = self.policy.windows
        if not windows or any(window.contains(self.now) for window in windows):
            return None
        opening = min(window.next_opening(self.now) for window in windows)
        return Denial(
            f"outside the maintenance windows, the next of which opens in {opening - self.now:.0f} s", opening
        )

    def exhausted(self, needed: int) -> Denial:
        """The denial of a plan that needs more moves than may happen now."""
        policy, ledger, now = self.policy, self.ledger, self.now
        texts, times = [], []
        if policy.moves_per_hour is not None and policy.moves_per_hour - ledger.last_hour(now) < needed:
            texts.append(f"{ledger.last_hour(now)} of {policy.moves_per_hour} moves an hour made")
            times.append(ledger.hour_frees(now))
        if policy.moves_in_flight is not None and policy.moves_in_flight - ledger.in_flight(now) < needed:
            texts.append(f"{ledger.in_flight(now)} of {policy.moves_in_flight} moves at once in flight")
            times.append(ledger.flight_ends(now))
        known = [time for time in times if time is not None]
        return Denial(f"budget: {needed} moves needed, {', '.join(texts)}", max(known, default=None))

    def entry(self, moves: tuple[Migration, ...], jobs: Mapping[str, Job]) -> Entry:
        """What the ledger is to note of these moves."""
        moved = tuple(dict.fromkeys(move.instance.job_id for move in moves))
        longest = max((self.pause(jobs[job_id]) for job_id in moved), default=0.0)
        return Entry(self.now, len(moves), moved, self.now + longest)

    def disruption(self, moves: tuple[Migration, ...], jobs: Mapping[str, Job]) -> float:
        """GPU-seconds that these moves make stand still."""
        moved = dict.fromkeys(move.instance.job_id for move in moves)
        return sum(jobs[job_id].total_gpus * self.pause(jobs[job_id]) for job_id in moved)

    def next_release(self, jobs: Mapping[str, Job]) -> float | None:
        """When the first job comes out of its cooldown."""
        cooldown = self.policy.cooldown
        times = [self.progress[j] + cooldown for j in jobs if j in self.progress]
        return min((time for time in times if time > self.now), default=None) if cooldown else None
