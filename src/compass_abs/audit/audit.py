"""The audit: for each pool what is fragmented and why, who waits for what, and the cheapest moves that would help."""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from compass_abs.audit.admission import Admissions, Planner, in_queue_order
from compass_abs.audit.cheapest import LARGE, cheapest
from compass_abs.audit.observation import Observation, Remark
from compass_abs.audit.reading import nothing_collected
from compass_abs.audit.waiting import Fit, Judge, Pool, Verdict
from compass_abs.fragmentation import Survey, fewest_partial_around, held_nodes, survey
from compass_abs.model import ClusterState, Job, Migration
from compass_abs.planner import Plan, Tidy
from compass_abs.planner.explain import Answer


class Movability(StrEnum):
    """Whose moves are planned."""

    DECLARED = "declared"
    """Only of jobs that declare that they may be moved."""
    ASSUMED = "assumed"
    """Of all that is not fixed, to see what would be possible."""


@dataclass(frozen=True, slots=True)
class AuditOptions:
    """What to take for granted."""

    movability: Movability = Movability.DECLARED
    #: Seconds that a move makes a gang stand still, where it doesn't say itself.
    pause: float = 8.0
    #: How often moves are sought, at most: a number, so that every machine finds the same. None for one that fits
    #: the size of the cluster, so that the answer comes in seconds.
    most_plans: int | None = None
    #: Whether to look for the moves that tidy up in large pools, too, where that takes seconds.
    tidy_large_pools: bool = False

    def plans_for(self, nodes: int) -> int:
        """How often moves are sought."""
        return max(4, min(100, 10_000 // max(1, nodes))) if self.most_plans is None else self.most_plans


@dataclass(frozen=True, slots=True)
class Blame:
    """The partial nodes of a pool, by what makes them so."""

    #: No packing of these sizes has fewer: the workload.
    sizes: int
    #: Moves of what is declared movable would do away with them: placement.
    placement: int
    #: Moves of jobs that don't declare that they may be moved would.
    undeclared: int
    #: What is fixed stands in the way.
    fixed: int


@dataclass(frozen=True, slots=True)
class Tidying:
    """The moves that would leave as few partial nodes as what may move allows."""

    nodes: int
    moves: tuple[Migration, ...]
    jobs: tuple[str, ...]
    gpu_seconds: float
    proven: bool


@dataclass(frozen=True, slots=True)
class Drawn:
    """Who is where before anything moves, for the picture."""

    names: tuple[str, ...]
    capacity: int
    not_up: tuple[int, ...]
    gangs: tuple[tuple[Job, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True)
class PoolAudit:
    """One pool."""

    survey: Survey
    blame: Blame
    #: GPUs of nodes that are up and held by what is fixed, or by what declares nothing.
    fixed_gpus: int
    undeclared_gpus: int
    admissions: Admissions
    tidying: Tidying | None
    before: Drawn

    @property
    def name(self) -> str:
        """The pool's name."""
        return self.survey.pool

    @property
    def proposed(self) -> tuple[Migration, ...]:
        """The moves to look at: those that let jobs start, else those that tidy up."""
        if self.admissions.steps or self.tidying is None:
            return self.admissions.moves
        return self.tidying.moves


@dataclass(frozen=True, slots=True)
class Audit:
    """Everything that was found."""

    source: str
    time: float | None
    movability: Movability
    pause: float
    pools: tuple[PoolAudit, ...]
    verdicts: tuple[Verdict, ...]
    fixed: tuple[Remark, ...]
    left_out: tuple[Remark, ...]
    #: Waiting jobs for which no moves were sought any more.
    untried: tuple[str, ...]

    def waiting_for(self, answer: Answer) -> int:
        """How many jobs wait for this."""
        return sum(verdict.job.copies for verdict in self.verdicts if verdict.answer is answer)

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values, nodes by name."""
        names = {pool.name: pool.before.names for pool in self.pools}
        return {
            "source": self.source,
            "time": self.time,
            "movable": str(self.movability),
            "pause": self.pause,
            "pools": [_pool_dict(pool) for pool in self.pools],
            "waiting": {
                **{str(answer): self.waiting_for(answer) for answer in Answer},
                "jobs": [_verdict_dict(verdict, names) for verdict in self.verdicts],
                "untried": list(self.untried),
            },
            "fixed": [remark._asdict() for remark in self.fixed],
            "left_out": [remark._asdict() for remark in self.left_out],
        }


def audit(observation: Observation, options: AuditOptions | None = None) -> Audit:
    """Looks at a cluster; changes nothing."""
    with nothing_collected():
        return _audit(observation, options or AuditOptions())


def _audit(observation: Observation, options: AuditOptions) -> Audit:
    assumed = observation.assumed_pools()
    all_declared = all(job.movable or job.fixed for job in observation.running.values())
    if options.movability is Movability.ASSUMED or all_declared:
        # One state will do for both, but not one object: admissions change the one they are planned on.
        pools = {name: Pool(state, state) for name, state in assumed.items()}
    else:
        pools = {name: Pool(state, assumed[name]) for name, state in observation.declared_pools().items()}
    looks = {name: _look(pool, options) for name, pool in pools.items()}
    most = options.plans_for(sum(len(pool.state.nodes) for pool in pools.values()))
    judge = Judge(pools, options.pause, most)
    by_turn = {job.id: judge.verdict(job) for job in in_queue_order(observation.pending)}
    verdicts = tuple(by_turn.values())
    planner = Planner(pools, options.pause, max(most, 2 * len(pools)) if options.most_plans is None else most)
    started = planner.admit_all(verdicts)
    return Audit(
        observation.source,
        observation.time,
        options.movability,
        options.pause,
        tuple(replace(look, admissions=started[name]) for name, look in looks.items()),
        verdicts,
        observation.fixed,
        observation.left_out,
        tuple(planner.untried),
    )


def _look(pool: Pool, options: AuditOptions) -> PoolAudit:
    state = pool.state
    found = survey(state)
    if pool.assumed is state:
        fewest, undeclared_gpus = found.fewest_partial_nodes_around_pinned, 0
        fixed_gpus = _pinned_gpus(state)
    else:
        held = held_nodes(pool.assumed)
        fewest = fewest_partial_around(held, state.capacity) if held.has_pinned else found.unavoidable_partial_nodes
        fixed_gpus = _pinned_gpus(pool.assumed)
        undeclared_gpus = _pinned_gpus(state) - fixed_gpus
    blame = Blame(
        sizes=found.unavoidable_partial_nodes,
        placement=found.reclaimable_partial_nodes,
        undeclared=found.fewest_partial_nodes_around_pinned - fewest,
        fixed=fewest - found.unavoidable_partial_nodes,
    )
    before = Drawn(
        tuple(node.name for node in state.nodes),
        state.capacity,
        tuple(node.index for node in state.nodes if str(node.status) != "up"),
        tuple((gang.job, tuple(gang.nodes)) for gang in state.gangs.values()),
    )
    wanted = found.reclaimable_partial_nodes > 0 and (options.tidy_large_pools or len(state.nodes) < LARGE)
    tidying = _tidy(state, found, options) if wanted else None
    return PoolAudit(found, blame, fixed_gpus, undeclared_gpus, Admissions(), tidying, before)


def _pinned_gpus(state: ClusterState) -> int:
    """GPUs of nodes that are up and that something holds which may not move."""
    held = held_nodes(state)
    return sum(load * nodes for load, nodes in enumerate(held.nodes))


def _tidy(state: ClusterState, found: Survey, options: AuditOptions) -> Tidying | None:
    request = Tidy(partial=found.fewest_partial_nodes_around_pinned)
    outcome = cheapest(state, request, options.pause)
    if not isinstance(outcome, Plan):
        return None
    jobs = [state.gangs[job_id].job for job_id in outcome.jobs]
    gpu_seconds = sum(job.total_gpus * (options.pause if job.pause is None else job.pause) for job in jobs)
    return Tidying(found.reclaimable_partial_nodes, outcome.moves, outcome.jobs, gpu_seconds, outcome.proven)


# ---- as plain values


def _pool_dict(pool: PoolAudit) -> dict[str, Any]:
    names = pool.before.names
    found = pool.survey.as_dict()
    found["partial_nodes_by_cause"] = {
        "sizes": pool.blame.sizes,
        "placement": pool.blame.placement,
        "undeclared": pool.blame.undeclared,
        "fixed": pool.blame.fixed,
    }
    found["fixed_gpus"], found["undeclared_gpus"] = pool.fixed_gpus, pool.undeclared_gpus
    admissions = pool.admissions
    found["plan"] = {
        "starts": [
            {
                "jobs": list(step.jobs),
                "moves": [_move_dict(move, names) for move in step.moves],
                "gpu_seconds": step.gpu_seconds,
                "optimal": step.proven,
                "nodes": {gang.id: [names[node] for node in nodes] for gang, nodes in step.gangs},
            }
            for step in admissions.steps
        ],
        "jobs": admissions.starts,
        "jobs_without_moves": len(admissions.without_moves),
        "moves": len(admissions.moves),
        "jobs_moved": list(admissions.disturbed),
        "gpu_seconds": admissions.gpu_seconds,
        "optimal": admissions.proven,
    }
    tidying = pool.tidying
    found["tidying"] = None
    if tidying is not None:
        found["tidying"] = {
            "partial_nodes_fewer": tidying.nodes,
            "moves": [_move_dict(move, names) for move in tidying.moves],
            "jobs_moved": list(tidying.jobs),
            "gpu_seconds": tidying.gpu_seconds,
            "optimal": tidying.proven,
        }
    return found


def _move_dict(move: Migration, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "job": move.instance.job_id,
        "instance": move.instance.number,
        "gpus": move.gpus,
        "from": names[move.source],
        "to": names[move.target],
    }


def _verdict_dict(verdict: Verdict, names: dict[str, tuple[str, ...]]) -> dict[str, Any]:
    job = verdict.job
    found: dict[str, Any] = {
        "job": job.id,
        "owner": job.owner,
        "copies": job.copies,
        "shapes": [shape._asdict() for shape in job.shapes],
        "gpus": job.total_gpus,
        "submitted": job.submitted,
        "priority": job.priority,
        "verdict": str(verdict.answer),
        "text": verdict.text,
        "pool": verdict.pool,
        "could_start_in": list(verdict.homes),
        "said": job.said,
        "caveat": job.caveat,
    }
    if verdict.fit is not None:
        found["plan"] = _fit_dict(verdict.fit, names[verdict.fit.pool])
        found["plan"]["undeclared_jobs_moved"] = list(verdict.undeclared)
    return found


def _fit_dict(fit: Fit, names: tuple[str, ...]) -> dict[str, Any]:
    return {
        "moves": [_move_dict(move, names) for move in fit.moves],
        "jobs_moved": list(fit.jobs),
        "gpu_seconds": fit.gpu_seconds,
        "optimal": fit.proven,
        "nodes": [names[node] for part in fit.nodes for node in part],
    }
