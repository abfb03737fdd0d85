"""The cheapest moves for a request, in seconds on clusters of any size."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from compass_abs.model import Cause, ClusterState, Job
from compass_abs.planner import (
    Charge,
    Costs,
    Disruption,
    Effort,
    Impossible,
    Limits,
    Plan,
    Room,
    Tidy,
    exact,
    plan,
)
from compass_abs.planner.carry_out import carry_out
from compass_abs.planner.explain import Disruptive
from compass_abs.planner.problem import build
from compass_abs.planner.prune import prune
from compass_abs.planner.solution import Infeasible

#: Branches of an exact program: enough for almost all, and few enough to wait for.
BRANCHES = 400
#: Nodes from which on a gang is charged in full for each of its instances that moves, rather than once. Charging once
#: takes an unknown for each gang and makes programs as large as the cluster; it matters only where several instances
#: of one gang move, which in a large cluster the cheapest moves hardly ever want.
LARGE = 400
#: Instances from which on the exact program of a large cluster is faster than the search, which goes one by one.
MANY = 24


@dataclass(frozen=True, slots=True)
class EachInstance:
    """GPU-seconds as if every instance that moves paused its gang anew."""

    pause: float

    def charge(self, job: Job) -> Charge:
        """GPUs of the gang times its pause, for each instance."""
        return Charge(0.0, job.total_gpus * (self.pause if job.pause is None else job.pause))


def cheapest(
    state: ClusterState, request: Room | Tidy, pause: float, unasked: Mapping[str, None] | None = None
) -> Plan | Impossible:
    """The cheapest moves in GPU-seconds, those of `unasked` jobs only where nothing else helps.

    `proven` says so only where gangs are charged as they pause.
    """
    large = len(state.nodes) >= LARGE
    costs: Costs = EachInstance(pause) if large else Disruption(pause)
    if unasked:
        costs = Disruptive(costs, unasked)
    limits = Limits(branches=BRANCHES)
    if not large:
        return plan(state, request, costs, limits, Effort.BALANCED)
    if isinstance(request, Tidy) or request.instances >= MANY:
        found = _by_program(state, request, costs)
        if found is not None:
            return found
    outcome = plan(state, request, costs, limits, Effort.FAST)
    return (
        Plan(outcome.waves, outcome.nodes, outcome.cost, 0.0, outcome.scratch) if isinstance(outcome, Plan) else outcome
    )


def _by_program(state: ClusterState, request: Room | Tidy, costs: Costs) -> Plan | None:
    """The plan of the exact program alone; None when it has none or gives up."""
    problem, _ = prune(build(state, request, costs), inf)
    solution = exact.solve(problem, BRANCHES)
    if isinstance(solution, Infeasible):
        return None
    cause = Cause.ADMISSION if isinstance(request, Room) else Cause.TIDY
    moves = carry_out(state, problem, solution, request, frozenset(), cause)
    return Plan(moves.waves, moves.nodes, solution.cost, 0.0, moves.scratch)
