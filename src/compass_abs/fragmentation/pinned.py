"""What moves could really reclaim: the same questions with pinned instances held where they are. Exact.

Nodes on which the pinned instances hold equally many GPUs are alike, so one class for each such load, and one
unknown for each class and pattern of movable instances, describes every repacking: its size does not depend on
the cluster's. Only nodes that are up take part, and no more of them than there are.
"""

from dataclasses import dataclass

from compass_abs.fragmentation.demand import check_size
from compass_abs.fragmentation.integer_program import UNBOUNDED, IntegerProgram, SolverError, solve
from compass_abs.fragmentation.packing import Pattern
from compass_abs.fragmentation.pattern_program import full_patterns, maximal_patterns
from compass_abs.model import ClusterState, NodeStatus


@dataclass(frozen=True, slots=True)
class Reclaimable:
    """What is left of the fragmentation when the movable instances are repacked around the pinned ones."""

    partial_nodes: int
    #: The fewest partial nodes in any repacking of the movable instances.
    fewest_partial_nodes: int
    available_nodes: int

    @property
    def nodes(self) -> int:
        """Partial nodes that moves could do away with."""
        return self.partial_nodes - self.fewest_partial_nodes

    @property
    def sif(self) -> float:
        """Their share of all nodes: SIF, when only what may move counts as the scheduler's doing."""
        return self.nodes / self.available_nodes if self.available_nodes else 0.0


@dataclass(frozen=True, slots=True)
class HeldNodes:
    """`nodes[load]` nodes on which pinned instances hold `load` GPUs; `movable[g]` instances of g GPUs around them."""

    nodes: tuple[int, ...]
    movable: tuple[int, ...]

    @property
    def has_pinned(self) -> bool:
        """Whether anything is held at all."""
        return any(self.nodes[1:])


def held_nodes(state: ClusterState) -> HeldNodes:
    """The pool by pinned load, and what may move."""
    nodes = [0] * (state.capacity + 1)
    movable = list(state.demand)
    for node in state.nodes:
        if node.status is not NodeStatus.UP:
            continue
        load = 0
        if node.pinned:
            for instance, gpus in node.contents.items():
                if not state.gangs[instance.job_id].job.movable:
                    load += gpus
                    movable[gpus] -= 1
        nodes[load] += 1
    return HeldNodes(tuple(nodes), tuple(movable))


def reclaimable(state: ClusterState) -> Reclaimable:
    """What moving the movable instances could reclaim, exactly."""
    fewest = fewest_partial_around(held_nodes(state), state.capacity)
    return Reclaimable(state.partial_nodes, fewest, state.available_nodes)


def fewest_partial_around(held: HeldNodes, capacity: int) -> int:
    """The fewest partial nodes in any repacking of the movable instances around the pinned ones."""
    sizes = [gpus for gpus, count in enumerate(held.movable) if count]
    program = IntegerProgram()
    in_full: dict[int, dict[int, int]] = {gpus: {} for gpus in sizes}
    in_all: dict[int, dict[int, int]] = {gpus: {} for gpus in sizes}
    for load, nodes in enumerate(held.nodes):
        room = capacity - load
        if not nodes or not room:
            continue
        columns: list[int] = []
        for pattern in full_patterns(sizes, room):
            columns.append(program.add_column(0))
            _enter(pattern, columns[-1], in_full, in_all)
        # A partial node covers: its pattern may name instances that do not exist, so maximal patterns are enough.
        for pattern in maximal_patterns(sizes, room - 1) or [()]:
            columns.append(program.add_column(1))
            _enter(pattern, columns[-1], in_all)
        # Nodes without pinned instances may stay empty, the others are partial if they are not full.
        program.add_row(dict.fromkeys(columns, 1), nodes if load else 0, nodes)
    for gpus in sizes:
        program.add_row(in_full[gpus], 0, held.movable[gpus])
        program.add_row(in_all[gpus], held.movable[gpus], UNBOUNDED)
    solution = solve(program)
    if solution is None:
        raise SolverError("HiGHS found no repacking, although what is there now is one")
    return sum(cost * count for cost, count in zip(program.costs, solution, strict=True))


def largest_gang_around(held: HeldNodes, gpus: int, capacity: int) -> int:
    """How many instances of this size more fit in the best repacking around the pinned ones."""
    check_size(gpus, capacity)
    sizes = [g for g, count in enumerate(held.movable) if count or g == gpus]
    program = IntegerProgram()
    holding: dict[int, dict[int, int]] = {g: {} for g in sizes}
    for load, nodes in enumerate(held.nodes):
        columns: list[int] = []
        for pattern in maximal_patterns(sizes, capacity - load) if nodes else ():
            columns.append(program.add_column(0))
            _enter(pattern, columns[-1], holding)
        program.add_row(dict.fromkeys(columns, 1), 0, nodes)
    more = program.add_column(-1)
    holding[gpus][more] = -1
    for g in sizes:
        program.add_row(holding[g], held.movable[g], UNBOUNDED)
    solution = solve(program)
    if solution is None:
        raise SolverError("HiGHS found no repacking, although what is there now is one")
    return solution[more]


def _enter(pattern: Pattern, column: int, *tables: dict[int, dict[int, int]]) -> None:
    for gpus in dict.fromkeys(pattern):
        for table in tables:
            table[gpus][column] = pattern.count(gpus)
