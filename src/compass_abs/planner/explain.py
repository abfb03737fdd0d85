"""Why a job that somebody has in mind could not start now, and what would let it: the verdict and the exact plan."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from compass_abs.model import ClusterState, Job
from compass_abs.planner.costs import Charge, Costs
from compass_abs.planner.plan import plan
from compass_abs.planner.request import Effort, Impossible, Limits, Obstacle, Plan, Room


class Answer(StrEnum):
    """What keeps the job from starting; the last three are those of a refusal."""

    FITS = "fits"
    """Nothing: there is room as it is."""
    CAPACITY = "capacity"
    """GPUs are missing, or nothing that could be done with those there are would make it fit."""
    FRAGMENTATION = "fragmentation"
    """It fits after moves."""
    POLICY = "policy"
    """It would fit after moves that a pin or a budget forbids, or in a pool that doesn't exist."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """The verdict on one pool, with its numbers and the plan that would make room."""

    pool: str
    answer: Answer
    #: The verdict in a sentence.
    text: str
    job: Room
    numbers: Mapping[str, int]
    #: For a policy verdict, what would have to be done against it.
    plan: Plan | None = None
    #: GPU-seconds that the moved gangs stand still.
    disruption: float = 0.0
    #: Pinned jobs that the plan moves all the same.
    unpinned: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values, nodes by name."""
        found: dict[str, Any] = {
            "pool": self.pool,
            "verdict": str(self.answer),
            "text": self.text,
            "job": {"instances": self.job.instances, "gpus": self.job.gpus},
            **self.numbers,
        }
        if self.plan is not None:
            found["plan"] = {
                "moves": len(self.plan.moves),
                "jobs": list(self.plan.jobs),
                "gpu_seconds": self.disruption,
                "optimal": self.plan.proven,
                "pinned_jobs_moved": list(self.unpinned),
                "nodes": [self.names[node] for node in self.plan.nodes],
                "waves": [
                    {
                        "together": wave.together,
                        "moves": [
                            {
                                "job": move.instance.job_id,
                                "instance": move.instance.number,
                                "gpus": move.gpus,
                                "from": self.names[move.source],
                                "to": self.names[move.target],
                            }
                            for move in wave.moves
                        ],
                    }
                    for wave in self.plan.waves
                ],
            }
        return found


class Disruptive(Costs):
    """What the policy charges, and a pinned job only where nothing else helps."""

    def __init__(self, costs: Costs, pinned: Mapping[str, None]) -> None:
        self._costs = costs
        self._pinned = pinned

    def charge(self, job: Job) -> Charge:
        """The usual charge, a thousand times as much for a pinned job."""
        gang, instance = self._costs.charge(job)
        weight = 1000.0 if job.id in self._pinned else 1.0
        return Charge(gang * weight, instance * weight)


def explain(
    state: ClusterState, room: Room, costs: Costs, pause: float = 8.0, most_moves: int | None = None
) -> Explanation:
    """The verdict on a job of this shape on this pool, with the cheapest plan."""
    names = tuple(node.name for node in state.nodes)
    numbers = {"wanted": room.instances * room.gpus, "free": state.free_gpus, "fits_now": state.room(room.gpus)}
    outcome = plan(state, room, costs, Limits(moves=most_moves), Effort.EXACT)
    if isinstance(outcome, Plan):
        found = Explanation(
            state.pool, Answer.FITS, "room as it is", room, numbers, outcome, _still(state, outcome, pause), (), names
        )
        if not outcome.moves:
            return found
        text = f"fits after {_count(len(outcome.moves), 'move')} that cost {found.disruption:,.0f} GPU-seconds"
        return replace(found, answer=Answer.FRAGMENTATION, text=text)
    return _refusal(state, room, costs, pause, outcome, numbers, names)


def _refusal(
    state: ClusterState,
    room: Room,
    costs: Costs,
    pause: float,
    outcome: Impossible,
    numbers: dict[str, int],
    names: tuple[str, ...],
) -> Explanation:
    numbers = {**numbers, **outcome.numbers}
    base = Explanation(state.pool, Answer.CAPACITY, outcome.detail, room, numbers, names=names)
    obstacle = outcome.obstacle
    if obstacle is Obstacle.CAPACITY:
        return replace(base, text=f"short by {_count(outcome.numbers['short'], 'GPU')}")
    if obstacle is Obstacle.BUDGET:
        cheapest = plan(state, room, costs, effort=Effort.EXACT)
        if isinstance(cheapest, Plan):
            still = _still(state, cheapest, pause)
            return replace(
                base, answer=Answer.POLICY, text=f"budget: {outcome.detail}", plan=cheapest, disruption=still
            )
    if obstacle is Obstacle.PINNED:
        pinned = {job_id: None for job_id, gang in state.gangs.items() if not gang.job.movable}
        freed = _without_pins(state)
        cheapest = plan(freed, room, Disruptive(costs, pinned), effort=Effort.EXACT)
        if isinstance(cheapest, Plan):
            moved = tuple(job_id for job_id in cheapest.jobs if job_id in pinned)
            text = f"pinned: fits only if {', '.join(moved)} could move"
            still = _still(freed, cheapest, pause)
            return replace(base, answer=Answer.POLICY, text=text, plan=cheapest, disruption=still, unpinned=moved)
        return replace(base, answer=Answer.POLICY, text=f"pinned: {outcome.detail}")
    return base


def _without_pins(state: ClusterState) -> ClusterState:
    """The same placements, nothing pinned."""
    freed = ClusterState([node.name for node in state.nodes], state.capacity, state.pool)
    freed.restore((replace(gang.job, movable=True), list(gang.nodes)) for gang in state.gangs.values())
    for node in state.nodes:
        freed.set_status(node.name, node.status)
    return freed


def _still(state: ClusterState, chosen: Plan, pause: float) -> float:
    jobs = [state.gangs[job_id].job for job_id in chosen.jobs]
    return sum(job.total_gpus * (pause if job.pause is None else job.pause) for job in jobs)


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")
