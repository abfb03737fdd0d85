"""Φ*, U* and their packings by integer programming over patterns: exact for every capacity.

Unknown are the numbers of nodes that hold each pattern, so the size of the program depends on the capacity and on which
sizes occur, never on the cluster. Every pattern is what a node really holds, so that all rows are equations.
"""

from collections.abc import Sequence

from compass_abs.fragmentation.integer_program import IntegerProgram, SolverError, solve
from compass_abs.fragmentation.packing import Packing, Pattern, packing_of
from compass_abs.fragmentation.pairs import complementary_pairs


def fewest_partial(counts: Sequence[int], capacity: int) -> Packing:
    """A packing with the fewest partial nodes (Φ*), and among those with the fewest used ones."""
    pairs, rest = complementary_pairs(counts, capacity)
    patterns = patterns_of(rest, capacity)
    program = _program(rest, patterns)
    partial = [int(sum(pattern) < capacity) for pattern in patterns]
    program.costs = partial
    fewest = sum(cost * nodes for cost, nodes in zip(partial, _solved(program), strict=True))
    program.costs = [1] * len(patterns)
    program.add_row({column: 1 for column, cost in enumerate(partial) if cost}, fewest)
    return packing_of(capacity, [*pairs, *zip(patterns, _solved(program), strict=True)])


def fewest_partial_count(counts: Sequence[int], capacity: int) -> int:
    """Φ* alone: half the work of a packing."""
    _, rest = complementary_pairs(counts, capacity)
    patterns = patterns_of(rest, capacity)
    program = _program(rest, patterns)
    program.costs = [int(sum(pattern) < capacity) for pattern in patterns]
    return sum(cost * nodes for cost, nodes in zip(program.costs, _solved(program), strict=True))


def fewest_used(counts: Sequence[int], capacity: int) -> Packing:
    """A packing with the fewest used nodes (U*)."""
    pairs, rest = complementary_pairs(counts, capacity)
    patterns = patterns_of(rest, capacity)
    program = _program(rest, patterns)
    program.costs = [1] * len(patterns)
    return packing_of(capacity, [*pairs, *zip(patterns, _solved(program), strict=True)])


def patterns_of(counts: Sequence[int], room: int) -> list[Pattern]:
    """Everything that a node with this room can hold of these instances, but nothing."""
    found: list[Pattern] = []

    def extend(prefix: Pattern, largest: int, left: int) -> None:
        for gpus in range(min(largest, left), 0, -1):
            if prefix.count(gpus) < counts[gpus]:
                found.append((*prefix, gpus))
                extend(found[-1], gpus, left - gpus)

    extend((), len(counts) - 1, room)
    return found


def holding(patterns: Sequence[Pattern], gpus: int) -> dict[int, int]:
    """The patterns in which a size occurs, and how often."""
    return {k: pattern.count(gpus) for k, pattern in enumerate(patterns) if gpus in pattern}


def _program(counts: Sequence[int], patterns: Sequence[Pattern]) -> IntegerProgram:
    program = IntegerProgram([0] * len(patterns))
    for gpus, count in enumerate(counts):
        if count:
            program.add_row(holding(patterns, gpus), count)
    return program


def _solved(program: IntegerProgram) -> list[int]:
    solution = solve(program)
    if solution is None:
        raise SolverError("HiGHS found no packing, although a node for each instance is one")
    return solution
