"""Why each waiting job waits: capacity, fragmentation or policy, and the moves that would let it start by itself."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import inf

from compass_abs.audit.cheapest import cheapest
from compass_abs.audit.observation import PendingJob, Shape
from compass_abs.fragmentation import HeldNodes, held_nodes, largest_gang_around, largest_gang_repacked
from compass_abs.model import ClusterState, Decision, Job, Migration, NodeStatus
from compass_abs.planner import Impossible, Plan, Room
from compass_abs.planner.explain import Answer
from compass_abs.schedulers.histogram import choose_nodes

#: Searches for moves that must be left for each pool if several are to be compared by what they would cost.
_PLENTY = 5


@dataclass(frozen=True, slots=True)
class Fit:
    """Where a gang would start, after which moves."""

    pool: str
    moves: tuple[Migration, ...]
    #: Nodes of each shape.
    nodes: tuple[tuple[int, ...], ...]
    #: GPU-seconds that the moved gangs stand still.
    gpu_seconds: float
    #: True when no plan is cheaper.
    proven: bool

    @property
    def jobs(self) -> tuple[str, ...]:
        """The gangs that are paused, in order."""
        return tuple(dict.fromkeys(move.instance.job_id for move in self.moves))


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one job waits for on the cluster as it is."""

    job: PendingJob
    answer: Answer
    text: str
    #: The pool that the verdict speaks of; empty when there is none for it.
    pool: str = ""
    #: Pools in which it could start, as it is or after allowed moves, the best first.
    homes: tuple[str, ...] = ()
    #: Whether moves of what declares nothing are needed.
    undeclared_needed: bool = False
    #: GPUs that the pool lacks.
    short: int = 0
    #: The cheapest moves for this job alone, where they were looked for.
    fit: Fit | None = None
    #: Jobs that these moves need and that don't declare that they may be moved.
    undeclared: tuple[str, ...] = ()


@dataclass(slots=True)
class Pool:
    """One pool, as it may be changed and as it could be if more were declared."""

    state: ClusterState
    #: The same with everything movable that is not fixed.
    assumed: ClusterState
    _around: dict[tuple[str, int], int] = field(default_factory=dict)
    _held: dict[str, HeldNodes] = field(default_factory=dict)

    def reached(self, reach: frozenset[str] | None) -> frozenset[str] | None:
        """The part of this pool that a job may use; None for all of it."""
        if reach is None:
            return None
        mine = frozenset(node.name for node in self.state.nodes if node.name in reach)
        return None if len(mine) == len(self.state.nodes) else mine

    def most_after_allowed_moves(self, gpus: int) -> int:
        """Instances of a size that fit when all moves that what declares itself allows."""
        return self._most("declared", self.state, gpus)

    def most_after_assumed_moves(self, gpus: int) -> int:
        """Instances of a size that fit when everything moves that is not fixed."""
        return self._most("assumed", self.assumed, gpus)

    def forget(self) -> None:
        """The states have changed."""
        self._around.clear()
        self._held.clear()

    def _most(self, which: str, state: ClusterState, gpus: int) -> int:
        if (which, gpus) not in self._around:
            held = self._held.get(which)
            if held is None:
                held = self._held[which] = held_nodes(state)
            if held.has_pinned:
                found = largest_gang_around(held, gpus, state.capacity)
            else:
                found = largest_gang_repacked(state.demand, state.available_nodes, gpus, state.capacity)
            self._around[which, gpus] = found
        return self._around[which, gpus]


@contextmanager
def confined(pool: Pool, reach: frozenset[str] | None) -> Iterator[None]:
    """For a while, only these nodes of a pool can be used."""
    if reach is None:
        yield
        return
    states = [pool.state] if pool.state is pool.assumed else [pool.state, pool.assumed]
    away = [n.name for n in pool.state.nodes if n.status is NodeStatus.UP and n.name not in reach]
    for name in away:
        for state in states:
            state.set_status(name, NodeStatus.CORDONED)
    pool.forget()
    try:
        yield
    finally:
        for name in away:
            for state in states:
                state.set_status(name, NodeStatus.UP)
        pool.forget()


def find_fit(
    state: ClusterState, shapes: Sequence[Shape], pause: float, unasked: Mapping[str, None] | None = None
) -> Fit | Impossible:
    """The cheapest moves after which these shapes fit, one after the other; the state is as before in the end."""
    moves: list[Migration] = []
    nodes: list[tuple[int, ...]] = []
    done: list[Decision] = []
    proven = True
    try:
        for number, (instances, gpus) in enumerate(shapes):
            chosen = choose_nodes(state, gpus, instances, range(gpus, state.capacity + 1))
            if chosen is not None:
                found = Plan((), tuple(chosen), 0.0, 0.0)
            else:
                outcome = cheapest(state, Room(instances, gpus), pause, unasked)
                if isinstance(outcome, Impossible):
                    return outcome
                found = outcome
            proven = proven and found.proven and len(shapes) == 1
            moves += found.moves
            nodes.append(found.nodes)
            if number < len(shapes) - 1:
                arrival = Job(f"\0{number}", instances, gpus, movable=False)
                decision = Decision(arrival, found.nodes, before=found.moves)
                state.apply(decision)
                done.append(decision)
    finally:
        for decision in reversed(done):
            state.undo(decision)
    return Fit(state.pool, tuple(moves), tuple(nodes), still(state, moves, pause), proven)


def still(state: ClusterState, moves: Sequence[Migration], pause: float) -> float:
    """GPU-seconds that the gangs of these moves stand still, each once."""
    jobs = [state.gangs[job_id].job for job_id in dict.fromkeys(move.instance.job_id for move in moves)]
    return sum(job.total_gpus * (pause if job.pause is None else job.pause) for job in jobs)


class Judge:
    """Verdicts on the cluster as it is; jobs of equal shape and reach share one.

    A gang of one size is judged by counting alone, exactly. Moves are looked for as long as searches are left; in all
    pools that would do, as long as there are plenty.
    """

    def __init__(self, pools: Mapping[str, Pool], pause: float, most_plans: int) -> None:
        self._pools = pools
        self._pause = pause
        self._left = most_plans
        self._known: dict[tuple[object, ...], Verdict] = {}

    def verdict(self, job: PendingJob) -> Verdict:
        """Why this job waits."""
        if job.policy:
            return Verdict(job, Answer.POLICY, job.policy)
        key = (job.shapes, job.reach)
        if key not in self._known:
            self._known[key] = self._decide(job)
        return replace(self._known[key], job=job)

    def _decide(self, job: PendingJob) -> Verdict:
        size = max(shape.gpus for shape in job.shapes)
        open_to = {name: pool for name, pool in self._pools.items() if is_open(pool.state, job.reach)}
        if not open_to:
            return Verdict(job, Answer.POLICY, self._closed_to(job))
        wide = {name: pool for name, pool in open_to.items() if pool.state.capacity >= size}
        if not wide:
            largest = max(pool.state.capacity for pool in open_to.values())
            return Verdict(
                job, Answer.POLICY, f"an instance of {size} GPUs fits no node of {largest}; use smaller ones"
            )
        # Of pools that are as good, the one of the smallest nodes: the larger ones are for those who need them.
        judged = (self._on(job, name, pool) for name, pool in wide.items())
        ranked = sorted(judged, key=lambda verdict: (_rank(verdict), wide[verdict.pool].state.capacity, verdict.short))
        if ranked[0].answer is Answer.FRAGMENTATION:
            ranked = self._priced(ranked, wide)
        homes = tuple(each.pool for each in ranked if each.homes)
        return replace(ranked[0], homes=homes if ranked[0].homes else ())

    def _priced(self, ranked: list[Verdict], wide: Mapping[str, Pool]) -> list[Verdict]:
        """The same with the cheapest moves of the first, or of all that are as good as it, the cheapest first."""
        first = ranked[0]
        alike = (_rank(first), wide[first.pool].state.capacity)
        rivals = [each for each in ranked if (_rank(each), wide[each.pool].state.capacity) == alike]
        if self._left < _PLENTY * len(rivals):
            rivals = rivals[: 1 if self._left > 0 else 0]
        priced = [self._with_moves(each, wide[each.pool]) for each in rivals]
        priced.sort(key=lambda verdict: (_rank(verdict), inf if verdict.fit is None else verdict.fit.gpu_seconds))
        return priced + ranked[len(rivals) :]

    def _closed_to(self, job: PendingJob) -> str:
        """Why no node is open to a job."""
        if job.reach is None:
            return "no node is up"
        if job.reach:
            return f"the nodes that match {job.rules or 'its rules'} are not up"
        return f"no node matches {job.rules or 'its rules'}"

    def _on(self, job: PendingJob, name: str, pool: Pool) -> Verdict:
        """The verdict on one pool, by counting; for gangs of several sizes each size by itself."""
        with confined(pool, pool.reached(job.reach)):
            state = pool.state
            wanted, free = job.total_gpus, state.free_gpus
            if wanted > free:
                text = f"{wanted:,} GPUs wanted, {free:,} free, {wanted - free:,} short"
                return Verdict(job, Answer.CAPACITY, text, name, short=wanted - free)
            if all(state.room(gpus) >= number for number, gpus in job.shapes) and len(job.shapes) == 1:
                text = "there is room as it is: something other than GPUs, or a job before it, holds it back"
                return Verdict(job, Answer.FITS, text, name, (name,))
            if all(pool.most_after_allowed_moves(gpus) >= number for number, gpus in job.shapes):
                return Verdict(job, Answer.FRAGMENTATION, "fits after moves", name, (name,))
            if all(pool.most_after_assumed_moves(gpus) >= number for number, gpus in job.shapes):
                text = "would fit if jobs could be moved that don't declare it"
                return Verdict(job, Answer.FRAGMENTATION, text, name, undeclared_needed=True)
            nodes = state.available_nodes
            for number, gpus in job.shapes:
                if largest_gang_repacked(state.demand, nodes, gpus, state.capacity) < number:
                    text = f"{free:,} GPUs are free, but no packing of what runs leaves room for {number} × {gpus}"
                    return Verdict(job, Answer.CAPACITY, text, name)
            text = "enough GPUs are free, but what is fixed keeps them from being brought together"
            return Verdict(job, Answer.POLICY, text, name)

    def _with_moves(self, verdict: Verdict, pool: Pool) -> Verdict:
        """The same with the cheapest moves for this job alone."""
        self._left -= 1
        unasked: dict[str, None] = {}
        state = pool.state
        if verdict.undeclared_needed:
            state = pool.assumed
            unasked = {job_id: None for job_id, gang in pool.state.gangs.items() if not gang.job.movable}
        with confined(pool, pool.reached(verdict.job.reach)):
            found = find_fit(state, verdict.job.shapes, self._pause, unasked)
        if isinstance(found, Impossible):
            return replace(verdict, text=found.detail, homes=())
        if not found.moves:
            return replace(verdict, answer=Answer.FITS, text="there is room as it is", fit=found)
        moved = tuple(job_id for job_id in found.jobs if job_id in unasked)
        text = f"fits after {_count(len(found.moves), 'move')} of {_count(len(found.jobs), 'job')}"
        if moved:
            text = f"would fit if {_some(moved)} could be moved, which {_does(moved)} declare that"
        return replace(verdict, text=text, fit=found, undeclared=moved)


def is_open(state: ClusterState, reach: frozenset[str] | None) -> bool:
    """Whether a job may use any node that is up."""
    return any(n.status is NodeStatus.UP and (reach is None or n.name in reach) for n in state.nodes)


def _rank(verdict: Verdict) -> tuple[object, ...]:
    """The best pool first: fits, fits after allowed moves, after others, forbidden, too small."""
    order = [Answer.FITS, Answer.FRAGMENTATION, Answer.POLICY, Answer.CAPACITY].index(verdict.answer)
    return order, verdict.undeclared_needed


def _count(number: int, thing: str) -> str:
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def _some(jobs: Sequence[str]) -> str:
    return ", ".join(jobs[:3]) + (f" and {len(jobs) - 3} more" if len(jobs) > 3 else "")


def _does(jobs: Sequence[str]) -> str:
    return "doesn't" if len(jobs) == 1 else "don't"
