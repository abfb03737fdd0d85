"""The cluster as the planner sees it: classes of nodes that no plan needs to tell apart."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import product
from math import inf
from typing import NamedTuple

from compass_abs.model import ClusterState, Instance, NodeStatus
from compass_abs.planner.costs import Costs
from compass_abs.planner.patterns import Counts
from compass_abs.planner.request import Drain, EmptyNodes, Request, Room, Tidy

#: A movable instance in a class: its size, the gang with which it shares a charge ("" when it shares none), and
#: its own charge.
Item = tuple[int, str, float]


class Option(NamedTuple):
    """Some of what a node holds leaves it."""

    taken: Counts
    freed: int
    cost: float
    #: Gangs whose charge falls due.
    gangs: tuple[str, ...]
    moves: int
    #: (size, gang, number): which items these are.
    groups: tuple[tuple[int, str, int], ...]


class NodeClass(NamedTuple):
    """Nodes with equally much free and equal movable contents."""

    free: int
    items: tuple[Item, ...]
    options: tuple[Option, ...]
    nodes: list[int]


@dataclass(slots=True)
class Problem:
    """Which instances leave their nodes, so that they and the arrivals fit into what is free then?"""

    capacity: int
    #: Nodes by free GPUs.
    histogram: list[int]
    classes: list[NodeClass]
    #: Instances by size that must find a place besides those that leave one.
    arrivals: list[int]
    #: What arrivals that run already (on drained nodes) are charged, whatever the plan.
    forced_cost: float
    #: Instances on drained nodes.
    forced: list[Instance]
    gang_costs: dict[str, float]
    #: Movable instances left out because of a pin or a forbidding charge.
    unmovable: int
    #: How an instance looks in a class; None for one that may not move.
    item: Callable[[Instance, int], Item | None]
    most_partial: int | None = None
    most_used: int | None = None
    most_moves: int | None = None

    @property
    def nodes(self) -> int:
        """Nodes that may hold something afterwards."""
        return sum(self.histogram)

    def movable(self, state: ClusterState, index: int, size: int, gang: str) -> list[Instance]:
        """The movable instances of a size on a node, of this gang or of those on their own; cheapest first."""
        found = []
        for instance, gpus in state.nodes[index].contents.items():
            item = self.item(instance, gpus) if gpus == size else None
            if item is not None and item[1] == gang:
                found.append((item[2], instance))
        return [instance for _, instance in sorted(found)]

    def price(self, option: Option) -> float:
        """What an option costs when nothing else has paid for its gangs."""
        return option.cost + sum(self.gang_costs[gang] for gang in option.gangs)

    def freeze(self) -> "Problem":
        """The same without the full nodes: much smaller, hardly worse."""
        return replace(self, classes=[c for c in self.classes if c.free])


class Sharing(StrEnum):
    """How the charge of a gang with several instances is counted."""

    ONCE = "once"
    """In full with the first instance that moves: what it costs."""
    EQUALLY = "equally"
    """An equal part with each instance that moves: never more than it costs, so good for bounds."""


def build(
    state: ClusterState,
    request: Request,
    costs: Costs,
    sharing: Sharing = Sharing.ONCE,
) -> Problem:
    """The classes of this state."""
    excluded = request.nodes if isinstance(request, Drain) else ()
    reader = _Reader(state, costs, sharing)
    problem = Problem(
        state.capacity,
        state.histogram(),
        [],
        [0] * (state.capacity + 1),
        0.0,
        [],
        reader.gang_costs,
        0,
        reader.item,
    )
    for index in dict.fromkeys(excluded):
        _force_out(problem, state, reader, index)
    if isinstance(request, Room):
        problem.arrivals[request.gpus] += request.instances
    elif isinstance(request, EmptyNodes):
        problem.arrivals[state.capacity] += request.count
    elif isinstance(request, Tidy):
        problem.most_partial, problem.most_used = request.partial, request.used
    problem.classes = reader.classes(frozenset(excluded))
    problem.unmovable = reader.unmovable
    return problem


def _force_out(problem: Problem, state: ClusterState, reader: "_Reader", index: int) -> None:
    node = state.nodes[index]
    if node.status is NodeStatus.UP:
        problem.histogram[node.free] -= 1
    for instance, gpus in node.contents.items():
        problem.arrivals[gpus] += 1
        problem.forced.append(instance)
        item = reader.item(instance, gpus)
        if item is None:
            problem.forced_cost = inf
        elif item[1] and item[1] in reader.gang_costs:
            problem.forced_cost += reader.gang_costs.pop(item[1]) + item[2]
            reader.settled(item[1])
        else:
            problem.forced_cost += item[2]


class _Reader:
    """Sorts nodes into classes; asks for each job's charge once."""

    def __init__(self, state: ClusterState, costs: Costs, sharing: Sharing) -> None:
        self.state = state
        self.sharing = sharing
        self.costs = costs
        self.gang_costs: dict[str, float] = {}
        self.unmovable = 0
        self._charges: dict[str, tuple[str, float] | None] = {}

    def settled(self, job_id: str) -> None:
        """The gang's charge is due anyhow: its other instances move at their own charge alone."""
        known = self._charges[job_id]
        if known is not None:
            self._charges[job_id] = ("", known[1])

    def item(self, instance: Instance, gpus: int) -> Item | None:
        """How an instance looks in a class; None when it may not move."""
        job_id = instance.job_id
        if job_id not in self._charges:
            self._charges[job_id] = self._charge(job_id)
        known = self._charges[job_id]
        return None if known is None else (gpus, known[0], known[1])

    def _charge(self, job_id: str) -> tuple[str, float] | None:
        job = self.state.gangs[job_id].job
        if not job.movable:
            return None
        gang, instance = self.costs.charge(job)
        if gang == inf or instance == inf:
            return None
        if gang == 0.0 or job.instances == 1:
            return "", gang + instance
        if self.sharing is Sharing.EQUALLY:
            return "", gang / job.instances + instance
        self.gang_costs[job_id] = gang
        return job_id, instance

    def classes(self, excluded: frozenset[int]) -> list[NodeClass]:
        """The classes that have something to evict, in the order of their lowest nodes within a free count."""
        table: dict[tuple[int, tuple[Item, ...]], list[int]] = {}
        nodes, capacity, item = self.state.nodes, self.state.capacity, self.item
        for free in range(capacity):
            for index in self.state.by_free[free]:
                contents = nodes[index].contents
                # Evicting an instance that fills its node frees only what it needs elsewhere.
                if index in excluded or (free == 0 and len(contents) == 1):
                    continue
                items = []
                for instance, gpus in contents.items():
                    entry = item(instance, gpus)
                    if entry is None:
                        self.unmovable += 1
                    else:
                        items.append(entry)
                if items:
                    table.setdefault((free, tuple(sorted(items))), []).append(index)
        return [NodeClass(free, items, options_of(items, capacity), nodes) for (free, items), nodes in table.items()]


# Bounded, because charges of single jobs make ever new contents.
@lru_cache(maxsize=1 << 14)
def options_of(items: tuple[Item, ...], capacity: int) -> tuple[Option, ...]:
    """Every way to evict something: of each size and gang the cheapest first, cheapest options first."""
    groups: dict[tuple[int, str], list[float]] = {}
    for size, label, cost in items:
        groups.setdefault((size, label), []).append(cost)
    keys = list(groups)
    options = []
    for numbers in product(*(range(len(groups[key]) + 1) for key in keys)):
        if not any(numbers):
            continue
        taken = [0] * (capacity + 1)
        cost, gangs = 0.0, []
        for (size, label), number in zip(keys, numbers, strict=True):
            taken[size] += number
            cost += sum(groups[size, label][:number])
            if label and number:
                gangs.append(label)
        freed = sum(size * number for size, number in enumerate(taken))
        chosen = tuple((*key, number) for key, number in zip(keys, numbers, strict=True) if number)
        options.append(Option(tuple(taken), freed, cost, tuple(dict.fromkeys(gangs)), sum(numbers), chosen))
    options.sort(key=lambda option: (option.cost, option.moves, option.freed, option.taken, option.gangs))
    return tuple(options)
