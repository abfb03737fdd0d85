"""What moves could really reclaim: the same questions with pinned instances held where they are. Exact.

Nodes on which the pinned instances hold equally many GPUs are alike, so one class for each such load, and one
unknown for each class and pattern of movable instances, describes every repacking: its size does not depend on
the cluster's. Only nodes that are up take part, and no more of them than there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from compass_abs.fragmentation.demand import check_size
from compass_abs.fragmentation.integer_program import IntegerProgram, SolverError, solve
from compass_abs.fragmentation.packing import Pattern
from compass_abs.fragmentation.pattern_program import holding, patterns_of
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
    program, loads, _ = _repackings(held, held.movable, capacity)
    program.costs = [int(0 < load < capacity) for load in loads]
    return sum(cost * nodes for cost, nodes in zip(program.costs, _solved(program), strict=True))


def largest_gang_around(held: HeldNodes, gpus: int, capacity: int) -> int:
    """How many instances of this size more fit in the best repacking around the pinned ones."""
    check_size(gpus, capacity)
    at_most = sum(nodes * ((capacity - load) // gpus) for load, nodes in enumerate(held.nodes))
    if not at_most:
        return 0
    demand = list(held.movable)
    demand[gpus] += at_most
    program, _, row_of = _repackings(held, demand, capacity)
    left_out = program.add_column(1)
    program.rows[row_of[gpus]][left_out] = 1
    return at_most - _solved(program)[left_out]


def _repackings(
    held: HeldNodes, demand: Sequence[int], capacity: int
) -> tuple[IntegerProgram, list[int], dict[int, int]]:
    """Every repacking of this demand around the pinned instances: an unknown for each class of nodes and pattern.

    Says also how many GPUs are held on a node of each, and which row counts the instances of each size.
    """
    program = IntegerProgram()
    loads: list[int] = []
    patterns: list[Pattern] = []
    for load, nodes in enumerate(held.nodes):
        if nodes:
            here = [(), *patterns_of(demand, capacity - load)]
            program.add_row({len(patterns) + k: 1 for k in range(len(here))}, nodes)
            patterns += here
            loads += [load + sum(pattern) for pattern in here]
    program.costs = [0] * len(patterns)
    row_of: dict[int, int] = {}
    for gpus, count in enumerate(demand):
        if count:
            row_of[gpus] = len(program.rows)
            program.add_row(holding(patterns, gpus), count)
    return program, loads, row_of


def _solved(program: IntegerProgram) -> list[int]:
    solution = solve(program)
    if solution is None:
        raise SolverError("HiGHS found no repacking, although what is there now is one")
    return solution
