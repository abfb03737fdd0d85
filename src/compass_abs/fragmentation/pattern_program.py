"""Φ*, U* and their packings by integer programming over patterns: exact for every capacity.

Unknown are the numbers of nodes of each pattern, so the size of the program depends on the capacity and on which
sizes occur, never on the cluster. Full nodes hold exactly their pattern; what they leave is *covered* by partial
nodes, whose patterns may name instances that do not exist (left out again in the packing), so that only those
with no room for one more are needed.
"""

from collections.abc import Sequence

from compass_abs.fragmentation.integer_program import UNBOUNDED, IntegerProgram, SolverError, solve
from compass_abs.fragmentation.packing import Group, Packing, Pattern, packing_of
from compass_abs.fragmentation.pairs import complementary_pairs


def fewest_partial(counts: Sequence[int], capacity: int) -> Packing:
    """A packing with the fewest partial nodes (Φ*), and among those with the fewest used ones."""
    pairs, rest = complementary_pairs(counts, capacity)
    program = _PartialProgram(rest, capacity)
    partial = program.minimise(full_cost=0, partial_cost=1)
    at_most = sum(count for pattern, count in partial if sum(pattern) < capacity)
    program.limit_partial(at_most)
    return packing_of(capacity, pairs + program.minimise(full_cost=1, partial_cost=1))


def fewest_partial_count(counts: Sequence[int], capacity: int) -> int:
    """Φ* alone: half the work of a packing."""
    _, rest = complementary_pairs(counts, capacity)
    groups = _PartialProgram(rest, capacity).minimise(full_cost=0, partial_cost=1)
    return sum(count for pattern, count in groups if sum(pattern) < capacity)


def fewest_used(counts: Sequence[int], capacity: int) -> Packing:
    """A packing with the fewest used nodes (U*)."""
    pairs, rest = complementary_pairs(counts, capacity)
    sizes = [gpus for gpus, count in enumerate(rest) if count]
    patterns = maximal_patterns(sizes, capacity)
    program = IntegerProgram([1] * len(patterns))
    for gpus in sizes:
        program.add_row(_holding(patterns, gpus), rest[gpus], UNBOUNDED)
    solution = _solved(program)
    return packing_of(capacity, pairs + _leave_out_phantoms(zip(patterns, solution, strict=True), rest))


def maximal_patterns(sizes: Sequence[int], room: int) -> list[Pattern]:
    """Every multiset of these sizes within the room to which no more can be added."""
    return [pattern for pattern in _multisets(sizes, room) if room - sum(pattern) < sizes[0]] if sizes else []


def full_patterns(sizes: Sequence[int], room: int) -> list[Pattern]:
    """Every multiset of these sizes that fills the room exactly."""
    return [pattern for pattern in _multisets(sizes, room) if sum(pattern) == room]


def _multisets(sizes: Sequence[int], room: int) -> list[Pattern]:
    found: list[Pattern] = []

    def extend(prefix: Pattern, start: int, left: int) -> None:
        if prefix:
            found.append(prefix)
        for k in range(start, len(descending)):
            if descending[k] <= left:
                extend((*prefix, descending[k]), k, left - descending[k])

    descending = sorted(sizes, reverse=True)
    extend((), 0, room)
    return found


class _PartialProgram:
    """Full nodes hold what they say, partial nodes cover the rest."""

    def __init__(self, counts: Sequence[int], capacity: int) -> None:
        sizes = [gpus for gpus, count in enumerate(counts) if count]
        self.counts = counts
        self.capacity = capacity
        self.full = full_patterns(sizes, capacity)
        self.partial = maximal_patterns(sizes, capacity - 1)
        self.program = IntegerProgram([0] * (len(self.full) + len(self.partial)))
        for gpus in sizes:
            in_full = _holding(self.full, gpus)
            self.program.add_row(in_full, 0, counts[gpus])
            in_all = in_full | {len(self.full) + k: n for k, n in _holding(self.partial, gpus).items()}
            self.program.add_row(in_all, counts[gpus], UNBOUNDED)

    def limit_partial(self, at_most: int) -> None:
        start = len(self.full)
        self.program.add_row({start + k: 1 for k in range(len(self.partial))}, 0, at_most)

    def minimise(self, full_cost: int, partial_cost: int) -> list[Group]:
        self.program.costs = [full_cost] * len(self.full) + [partial_cost] * len(self.partial)
        # Full nodes alone hold a multiple of the capacity.
        odd = sum(gpus * count for gpus, count in enumerate(self.counts)) % self.capacity > 0
        self.program.least_cost = partial_cost * odd
        solution = _solved(self.program)
        full = list(zip(self.full, solution, strict=False))
        left = list(self.counts)
        for pattern, count in full:
            for gpus in pattern:
                left[gpus] -= count
        return full + _leave_out_phantoms(zip(self.partial, solution[len(self.full) :], strict=True), left)


def _holding(patterns: Sequence[Pattern], gpus: int) -> dict[int, int]:
    """The patterns in which a size occurs, and how often."""
    return {k: pattern.count(gpus) for k, pattern in enumerate(patterns) if gpus in pattern}


def _solved(program: IntegerProgram) -> list[int]:
    solution = solve(program)
    if solution is None:
        raise SolverError("HiGHS found no packing, although a node for each instance is one")
    return solution


def _leave_out_phantoms(groups: "zip[Group]", counts: Sequence[int]) -> list[Group]:
    """The same nodes with only as many instances of each size as there are."""
    left = list(counts)
    kept: list[Group] = []
    for pattern, nodes in groups:
        # Nodes of one pattern run out of a size at different points; each split is one group more.
        remaining = nodes
        while remaining:
            short = [g for g in dict.fromkeys(pattern) if left[g] < pattern.count(g)]
            fitted = pattern
            for gpus in short:
                others = tuple(g for g in fitted if g != gpus)
                fitted = tuple(sorted((*others, *[gpus] * left[gpus]), reverse=True))
            if not fitted:
                break
            times = min([remaining] + [left[g] // fitted.count(g) for g in dict.fromkeys(fitted)])
            kept.append((fitted, times))
            for gpus in fitted:
                left[gpus] -= times
            remaining -= times
    return kept
