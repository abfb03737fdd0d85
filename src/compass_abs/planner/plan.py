"""The planner's one question: the cheapest moves after which a request is met, or why there are none."""

from dataclasses import replace
from math import inf

from compass_abs.fragmentation.arc_flow import minimum_used_at
from compass_abs.model import Cause, ClusterState, CompassError, Job, NodeStatus
from compass_abs.planner import exact
from compass_abs.planner.carry_out import carry_out
from compass_abs.planner.costs import FORBIDDEN, Charge, Costs, FewestMoves
from compass_abs.planner.problem import Problem, Sharing, build
from compass_abs.planner.prune import prune
from compass_abs.planner.request import (
    Drain,
    Effort,
    EmptyNodes,
    Impossible,
    Limits,
    Obstacle,
    Plan,
    Request,
    Room,
    Tidy,
)
from compass_abs.planner.search import search
from compass_abs.planner.single_move import single_move
from compass_abs.planner.solution import Infeasible, Solution


class RequestError(CompassError):
    """A request that makes no sense on this cluster."""


_CAUSES = {Room: Cause.ADMISSION, EmptyNodes: Cause.DRAIN, Drain: Cause.DRAIN, Tidy: Cause.TIDY}
_NO_LIMITS = Limits()
_FEWEST_MOVES = FewestMoves()


def plan(
    state: ClusterState,
    request: Request,
    costs: Costs = _FEWEST_MOVES,
    limits: Limits = _NO_LIMITS,
    effort: Effort = Effort.BALANCED,
    cause: Cause | None = None,
) -> Plan | Impossible:
    """The cheapest moves after which `request` is met, in waves; or why there are none. Changes nothing."""
    _check(state, request)
    shortage = _shortage(state, request)
    if shortage is not None:
        return shortage
    found = _solve(state, request, costs, limits, effort)
    if isinstance(found, Infeasible):
        return _explain(state, request, costs, limits, found)
    problem, solution = found
    excluded = frozenset(request.nodes) if isinstance(request, Drain) else frozenset()
    moves = carry_out(state, problem, solution, request, excluded, cause or _CAUSES[type(request)])
    return Plan(moves.waves, moves.nodes, solution.cost, min(solution.bound, solution.cost), moves.scratch)


# ---- before anything is searched


def _check(state: ClusterState, request: Request) -> None:
    if isinstance(request, Room):
        if not 1 <= request.gpus <= state.capacity:
            raise RequestError(f"gpus is {request.gpus!r}, expected 1 to {state.capacity} (the GPUs of a node)")
        if request.instances < 1:
            raise RequestError(f"instances is {request.instances!r}, expected a whole number ≥ 1")
    elif isinstance(request, EmptyNodes) and request.count < 1:
        raise RequestError(f"empty nodes wanted: {request.count!r}, expected a whole number ≥ 1")
    elif isinstance(request, Drain):
        for index in request.nodes:
            if not 0 <= index < len(state.nodes):
                raise RequestError(f"there is no node {index} in pool {state.pool!r}")


def _shortage(state: ClusterState, request: Request) -> Impossible | None:
    """A refusal that counting alone proves, in O(1) of the cluster's size."""
    if isinstance(request, Tidy):
        return None
    demand, nodes, free = list(state.demand), state.available_nodes, state.free_gpus
    wanted = 0
    if isinstance(request, Room):
        demand[request.gpus] += request.instances
        wanted = request.instances * request.gpus
    elif isinstance(request, EmptyNodes):
        demand[state.capacity] += request.count
        wanted = request.count * state.capacity
    else:
        for index in dict.fromkeys(request.nodes):
            node = state.nodes[index]
            wanted += state.capacity - node.free
            if node.status is NodeStatus.UP:
                nodes -= 1
                free -= node.free
            else:
                for gpus in node.contents.values():
                    demand[gpus] += 1
    if wanted > free:
        detail = f"{wanted} GPUs wanted, {free} free, {wanted - free} short"
        return Impossible(Obstacle.CAPACITY, detail, {"wanted": wanted, "free": free, "short": wanted - free})
    needed = minimum_used_at(demand, state.capacity)
    if needed > nodes:
        detail = f"{wanted} of {free} free GPUs wanted, but everything together needs {needed} nodes of {nodes}"
        numbers = {"wanted": wanted, "free": free, "nodes_needed": needed, "nodes": nodes}
        return Impossible(Obstacle.PACKING, detail, numbers)
    return None


# ---- the search for the cheapest


def _solve(
    state: ClusterState, request: Request, costs: Costs, limits: Limits, effort: Effort
) -> tuple[Problem, Solution] | Infeasible:
    problem = replace(build(state, request, costs), most_moves=limits.moves)
    best = _search_both(problem) if not isinstance(request, Tidy) else _single(problem)
    if best is not None and (effort is Effort.FAST or (effort is Effort.BALANCED and _is_proven(best[1]))):
        return best
    return _solve_exactly(state, request, costs, limits, problem, best)


def _search_both(problem: Problem) -> tuple[Problem, Solution] | None:
    """The better plan of two searches, one of which leaves full nodes alone; bounded by the one that does not."""
    frozen = problem.freeze()
    plans = [(p, s) for p in (problem, frozen) if (s := search(p)) is not None]
    if not plans:
        return None
    best = min(plans, key=lambda plan: plan[1].cost)
    bound = plans[0][1].bound if plans[0][0] is problem else problem.forced_cost
    return best[0], replace(best[1], bound=bound)


def _single(problem: Problem) -> tuple[Problem, Solution] | None:
    found = single_move(problem)
    return None if found is None else (problem, found)


def _is_proven(solution: Solution) -> bool:
    return solution.cost <= solution.bound + 1e-6 * max(1.0, abs(solution.bound))


def _solve_exactly(
    state: ClusterState,
    request: Request,
    costs: Costs,
    limits: Limits,
    problem: Problem,
    best: tuple[Problem, Solution] | None,
) -> tuple[Problem, Solution] | Infeasible:
    if not limits.branches:
        return best or Infeasible(proven=False)
    smaller, sure = prune(problem, inf if best is None else best[1].cost)
    found = exact.solve(smaller, limits.branches)
    bound = 0.0
    if isinstance(found, Infeasible):
        if best is None:
            return found if sure else Infeasible(proven=False)
    else:
        bound = found.bound
        if best is None or found.cost <= best[1].cost:
            best = smaller, found
    if not sure:
        bound = _relaxed_bound(state, request, costs, limits, best[1].cost)
    return best[0], replace(best[1], bound=bound)


def _relaxed_bound(state: ClusterState, request: Request, costs: Costs, limits: Limits, upper: float) -> float:
    """A bound from the program in which each moved instance pays its part of the gang's charge."""
    relaxed = replace(build(state, request, costs, sharing=Sharing.EQUALLY), most_moves=limits.moves)
    found = exact.solve(prune(relaxed, upper)[0], limits.branches)
    return 0.0 if isinstance(found, Infeasible) else found.bound


# ---- why there is no plan


def _explain(state: ClusterState, request: Request, costs: Costs, limits: Limits, found: Infeasible) -> Impossible:
    if not found.proven:
        detail = f"no plan found and none ruled out within {limits.branches} branches; allow more"
        return Impossible(Obstacle.EFFORT, detail, {"branches": limits.branches})
    if limits.moves is not None:
        free = plan(state, request, _FewestMovesOf(costs), replace(limits, moves=None), Effort.EXACT)
        if isinstance(free, Plan):
            needed = len(free.moves) - free.scratch
            detail = f"{needed} moves needed, {limits.moves} allowed"
            return Impossible(Obstacle.BUDGET, detail, {"moves_needed": needed, "moves_allowed": limits.moves})
    held = _held(state, costs)
    detail = f"a packing exists, but not around the {held} instances that may not move"
    return Impossible(Obstacle.PINNED, detail, {"held": held})


def _held(state: ClusterState, costs: Costs) -> int:
    jobs = [gang.job for gang in state.gangs.values()]
    return sum(job.instances for job in jobs if not job.movable or inf in costs.charge(job))


class _FewestMovesOf:
    """Counts moves, and forbids what the other costs forbid."""

    def __init__(self, costs: Costs) -> None:
        self._costs = costs

    def charge(self, job: Job) -> Charge:
        """One for each instance, or what the other costs say."""
        return FORBIDDEN if inf in self._costs.charge(job) else _FEWEST_MOVES.charge(job)
