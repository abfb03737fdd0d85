"""What the controller would tell people: moves that it proposes and that still make sense, and why jobs wait."""

from collections.abc import Mapping
from dataclasses import dataclass

from compass_abs.controller.pool import Pool, Proposal
from compass_abs.controller.proposals import current
from compass_abs.controller.reconcile import Controller
from compass_abs.controller.views import why_waiting
from compass_abs.model import ClusterState, Job, NodeStatus, Verdict
from compass_abs.planner.costs import Disruption
from compass_abs.planner.explain import Answer, Explanation, explain
from compass_abs.planner.request import Room

#: Seconds that a move pauses a job which doesn't say itself.
PAUSE = 8.0
#: Waiting jobs that are told why, in the order of the queue; those behind them learn it when they come nearer.
MOST_WAITING = 500


@dataclass(frozen=True, slots=True)
class Waiting:
    """A job that waits, and what its scheduler says of it."""

    job: Job
    pool: str
    #: None for one that nobody has tried yet: others are before it.
    verdict: Verdict | None
    text: str
    admitted: bool


@dataclass(frozen=True, slots=True)
class PoolPicture:
    """A pool as it is, to think about on another thread."""

    name: str
    capacity: int
    nodes: tuple[tuple[str, NodeStatus], ...]
    gangs: tuple[tuple[Job, tuple[int, ...]], ...]

    def state(self) -> ClusterState:
        """The pool's state, as an object of its own."""
        state = ClusterState([name for name, _ in self.nodes], self.capacity, self.name)
        state.restore((job, list(nodes)) for job, nodes in self.gangs)
        for name, status in self.nodes:
            state.set_status(name, status)
        return state


@dataclass(frozen=True, slots=True)
class Advice:
    """Everything at one moment."""

    waiting: tuple[Waiting, ...]
    pools: Mapping[str, PoolPicture]
    #: Proposals with the name of their pool, each with what it would cost in GPU-seconds.
    proposals: tuple[tuple[str, Proposal, float], ...]


def advice(c: Controller) -> Advice:
    """Taken on the controller's thread: copies, no thinking."""
    waiting = [_waiting(c, pool, job) for pool in c.pools.values() for job in _queue(pool)]
    proposals = [
        (pool.name, proposal, _cost(c, proposal)) for pool in c.pools.values() for proposal in current(c, pool)
    ]
    return Advice(tuple(waiting), {pool.name: _picture(pool) for pool in c.pools.values()}, tuple(proposals))


def _queue(pool: Pool) -> list[Job]:
    return [*pool.admitted.values(), *pool.waiting][:MOST_WAITING]


def _waiting(c: Controller, pool: Pool, job: Job) -> Waiting:
    reason = pool.reasons.get(job.id)
    text = why_waiting(c, c.book.jobs[job.id])
    return Waiting(job, pool.name, reason.verdict if reason is not None else None, text, job.id in pool.admitted)


def _picture(pool: Pool) -> PoolPicture:
    state = pool.state
    nodes = tuple((node.name, node.status) for node in state.nodes)
    return PoolPicture(
        pool.name, state.capacity, nodes, tuple((gang.job, tuple(gang.nodes)) for gang in state.gangs.values())
    )


def _cost(c: Controller, proposal: Proposal) -> float:
    jobs = [c.book.jobs[job_id].job for job_id in dict.fromkeys(move.instance.job_id for move in proposal.moves)]
    return sum(job.total_gpus * (PAUSE if job.pause is None else job.pause) for job in jobs)


# ---- what would fix it


def remedy(state: ClusterState, job: Job) -> Explanation:
    """What keeps this job from starting on this state, and the cheapest moves that would let it."""
    return explain(state, Room(job.instances, job.gpus), Disruption(PAUSE), PAUSE)


def remedy_in_words(found: Explanation) -> str:
    """What would help, in a sentence."""
    if found.answer is Answer.FITS:
        return "there is room by now; it is tried again soon"
    if found.plan is None or not found.plan.moves:
        return found.text
    moves = [
        f"{move.instance.job_id} #{move.instance.number} ({move.gpus} GPUs) {found.names[move.source]} → "
        f"{found.names[move.target]}"
        for move in found.plan.moves
    ]
    listed = ", ".join(moves[:4]) + (f" and {len(moves) - 4} more" if len(moves) > 4 else "")
    return f"{found.text}: {listed}"
