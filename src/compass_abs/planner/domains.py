"""Room on every level of a topology: the planner asked about panels, then about domains, then about their tiers.

What is free as GPUs is of no use to an instance that wants panels, and free panels of no use to one that wants racks.
So room on a level is made on that level alone, or by first emptying more members on the level below. Three ways are
tried and the cheapest taken:

* *whole members*: the planner on this level; what is inside a member moves with it;
* *dissolving*: the members that are cheapest to empty are emptied into whatever other panels have free;
* *members first*: so many more members are emptied below, cheapest first, and then whole members move.

The last one, with as few members in use as any packing has, finds room whenever it exists and everything may move:
fewer members in use never need more domains.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf

from compass_abs.fragmentation.levels import demand_by_level, fewest_used_by_level
from compass_abs.model import Cause, Instance, Job, Migration
from compass_abs.planner.costs import FORBIDDEN, Charge, Costs
from compass_abs.planner.plan import plan
from compass_abs.planner.request import Drain, Effort, EmptyNodes, Impossible, Limits, Obstacle, Plan, Room, Wave
from compass_abs.planner.tier_view import TierView
from compass_abs.topology import DomainState

_NO_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class _Way:
    """Moves, what is where after them, and the panels for the newcomer."""

    waves: tuple[Wave, ...]
    panels: tuple[int, ...]
    cost: float
    #: No way costs less.
    bound: float = 0.0


def plan_domains(
    state: DomainState,
    job: Job,
    costs: Costs,
    limits: Limits = _NO_LIMITS,
    effort: Effort = Effort.BALANCED,
    cause: Cause = Cause.ADMISSION,
) -> Plan | Impossible:
    """Moves after which a job fits its level of domains, and the panels it then gets; or why there are none.

    `limits` hold for jobs that fit panels; moves for larger ones are to be counted by who asks.
    """
    level, units = state.topology.demand(job.gpus)
    if level == 0:
        return plan(state, Room(job.instances, job.gpus), SmallOnly(state, costs), limits, effort, cause)
    shortage = _shortage(state, job)
    if shortage is not None:
        return shortage
    way = _Planner(state, costs, effort, cause).room(state, level, Room(job.instances, units))
    if way is None:
        return _in_the_way(state, costs)
    moves = [move for wave in way.waves for move in wave.moves]
    detours = len(moves) - len({move.instance for move in moves})
    return Plan(way.waves, way.panels, way.cost, way.bound, detours)


def _shortage(state: DomainState, job: Job) -> Impossible | None:
    if job.total_gpus > state.free_gpus:
        numbers = {"wanted": job.total_gpus, "free": state.free_gpus, "short": job.total_gpus - state.free_gpus}
        return Impossible(Obstacle.CAPACITY, f"{numbers['short']} GPUs short", numbers)
    demands = demand_by_level(state)
    level, units = state.topology.demand(job.gpus)
    demands[level][units] += job.instances
    needed, domains = fewest_used_by_level(state, demands)[-1], len(state.nodes) // state.topology.panels_per_domain
    if needed <= domains:
        return None
    name = state.topology.levels[-1].name
    detail = f"everything together needs {needed} {name}s of {domains}"
    return Impossible(Obstacle.PACKING, detail, {"domains_needed": needed, "domains": domains})


def _in_the_way(state: DomainState, costs: Costs) -> Impossible:
    """Why there is no plan although enough domains exist."""
    held = sum(not job.movable or inf in costs.charge(job) for job in map(state.job, state.gangs))
    away = len(state.nodes) - state.available_nodes
    name = state.topology.panel_name
    ways = [f"{held} {'job' if held == 1 else 'jobs'} that may not move"] if held else []
    ways += [f"{away} {name if away == 1 else name + 's'} that {'is' if away == 1 else 'are'} not up"] if away else []
    detail = (
        f"a packing exists, but not around {' and '.join(ways)}" if ways else "a packing exists, but no plan was found"
    )
    return Impossible(Obstacle.PINNED if held else Obstacle.EFFORT, detail, {"held": held})


class SmallOnly:
    """The costs of what lives on panels; what is larger stays where it is when panels are packed."""

    def __init__(self, state: DomainState, costs: Costs) -> None:
        self._state = state
        self._costs = costs

    def charge(self, job: Job) -> Charge:
        """The usual charge, or a prohibition for whole panels of a larger instance."""
        return FORBIDDEN if job.id in self._state.whole else self._costs.charge(job)


class _Planner:
    def __init__(self, state: DomainState, costs: Costs, effort: Effort, cause: Cause) -> None:
        self.costs = costs
        self.effort = effort
        self.cause = cause
        self.fewest = fewest_used_by_level(state, demand_by_level(state))

    def room(self, state: DomainState, level: int, request: Room | EmptyNodes) -> _Way | None:
        """The cheapest way found to what is wanted on a level."""
        if level == 0:
            found = plan(state, request, SmallOnly(state, self.costs), effort=self.effort, cause=self.cause)
            return None if isinstance(found, Impossible) else _Way(found.waves, found.nodes, found.cost)
        view = TierView(state, level, self.costs)
        # Whatever else is done, what is on the members that the newcomer gets has to leave them.
        bound = sum(price for price, _ in _cheapest_members(view, request, view.least_prices) or ())
        best: _Way | None = None
        for way in self._ways(state, view, level, request):
            if best is None or way.cost < best.cost:
                best = replace(way, bound=bound)
            if best.cost <= bound:
                break
        return best

    def _ways(self, state: DomainState, view: TierView, level: int, request: Room | EmptyNodes) -> Iterator[_Way]:
        cheapest = _cheapest_members(view, request, view.small_prices)
        whole = self._whole_members(state, view, request)
        if whole is not None:
            yield whole
        if cheapest is not None:
            members = [member for _, members in cheapest for member in members]
            dissolving = self._dissolving(state, view.panels_of(members))
            if dissolving is not None:
                yield dissolving
        yield from self._members_first(state, level, request)

    def _whole_members(self, state: DomainState, view: TierView, request: Room | EmptyNodes) -> _Way | None:
        found = plan(view.state, request, view, effort=self.effort)
        if isinstance(found, Impossible):
            return None
        waves = view.waves(found.waves, self.cause)
        units = request.gpus if isinstance(request, Room) else view.size
        panels = [panel for domain in found.nodes for panel in view.panels_of(view.take(domain, units))]
        return _Way(waves, tuple(panels), self._cost(state, waves))

    def _dissolving(self, state: DomainState, panels: Sequence[int]) -> _Way | None:
        """Empties these panels, wherever there is room for what is on them."""
        found = plan(state, Drain(tuple(panels)), SmallOnly(state, self.costs), effort=self.effort, cause=self.cause)
        return None if isinstance(found, Impossible) else _Way(found.waves, tuple(panels), found.cost)

    def _members_first(self, state: DomainState, level: int, request: Room | EmptyNodes) -> Iterator[_Way]:
        below = level - 1
        used, empty = _used_and_empty(state, below, self.costs)
        for more in _growing(used - self.fewest[below]):
            first = self.room(state, below, EmptyNodes(empty + more))
            if first is None:
                continue
            after = _moved(state, first.waves)
            then = self._whole_members(after, TierView(after, level, self.costs), request)
            if then is not None:
                waves = _straightened(state, first.waves + then.waves)
                yield _Way(waves, then.panels, self._cost(state, waves))

    def _cost(self, state: DomainState, waves: Sequence[Wave]) -> float:
        moves = [move for wave in waves for move in wave.moves]
        charges = {move.instance.job_id: self.costs.charge(state.job(move.instance.job_id)) for move in moves}
        return sum(charge.gang for charge in charges.values()) + sum(
            charges[move.instance.job_id].instance for move in moves
        )


def _cheapest_members(
    view: TierView, request: Room | EmptyNodes, prices_of: Callable[[int], list[tuple[float, int]]]
) -> list[tuple[float, list[int]]] | None:
    """Members for each instance of a request, with what they cost to empty: the cheapest of the cheapest domains."""
    if isinstance(request, Room):
        wanted, units = request.instances, request.gpus
    else:
        wanted, units = request.count, view.size
    offers = []
    for domain in range(len(view.state.nodes)):
        prices = sorted(prices_of(domain))
        for first in range(0, len(prices) - units + 1, units):
            own = prices[first : first + units]
            offers.append((sum(price for price, _ in own), [member for _, member in own]))
    return sorted(offers)[:wanted] if len(offers) >= wanted else None


def _used_and_empty(state: DomainState, level: int, costs: Costs) -> tuple[int, int]:
    """Nodes of a level that hold something that lives there or below, and empty ones."""
    if level == 0:
        pieces = sum(len(state.gangs[job_id].nodes) for job_id in state.whole)
        return state.used_nodes - pieces, state.empty_nodes
    view = TierView(state, level, costs).state
    return view.used_nodes, view.empty_nodes


def _growing(most: int) -> Iterator[int]:
    """1, 2, 4, ... and then the most."""
    number = 1
    while number < most:
        yield number
        number *= 2
    if most > 0:
        yield most


def _moved(state: DomainState, waves: Sequence[Wave]) -> DomainState:
    """The state after these moves; the given one stays as it is."""
    after = DomainState([node.name for node in state.nodes], state.topology, state.pool)
    after.restore((state.job(job_id), list(gang.nodes)) for job_id, gang in state.gangs.items())
    for node in state.nodes:
        after.set_status(node.name, node.status)
    for wave in waves:
        after.move_all(wave.moves)
    return after


def _straightened(state: DomainState, waves: tuple[Wave, ...]) -> tuple[Wave, ...]:
    """The waves; or, where that fits, moves in which what would move twice goes straight to its end."""
    moves = [move for wave in waves for move in wave.moves]
    last: dict[Instance, Migration] = {}
    for move in moves:
        known = last.pop(move.instance, None)
        last[move.instance] = move if known is None else move._replace(source=known.source)
    direct = [move for move in last.values() if move.source != move.target]
    if len(direct) == len(moves) or not state.fits_in_order(direct):
        return waves
    return tuple(Wave((move,)) for move in direct)
