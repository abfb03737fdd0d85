"""Φ* and U* of nodes of any capacity, by an integer program whose size grows with the capacity, not with its patterns.

A node with K members is a path through the fill levels 0, 1, ... K: an arc from a to a + p is an item of p members,
an arc from a to K is what stays free (Valério de Carvalho's arc-flow formulation). A path that takes the last arc is
a partial node. Items lie on each path from the largest to the smallest, which leaves one path for each packing.
"""

from collections.abc import Sequence
from functools import lru_cache

from compass_abs.fragmentation.demand import DemandError, check_counts, slot_width
from compass_abs.fragmentation.exact import inherent, minimum_used
from compass_abs.fragmentation.integer_program import IntegerProgram, SolverError, solve
from compass_abs.model import CAPACITIES


def inherent_at(counts: Sequence[int], capacity: int) -> int:
    """Φ* of nodes with this many members: the fewest partial ones in any packing."""
    if capacity in CAPACITIES:
        return inherent(counts, capacity)
    _check(counts, capacity)
    least = int(sum(size * count for size, count in enumerate(counts)) % capacity > 0)
    if is_filled(counts, capacity) or fills_one_by_one(counts, capacity):
        return least
    return _solved(tuple(counts), capacity, 0, 1, least)


def minimum_used_at(counts: Sequence[int], capacity: int) -> int:
    """U* of nodes with this many members: the fewest used ones in any packing."""
    if capacity in CAPACITIES:
        return minimum_used(counts, capacity)
    _check(counts, capacity)
    least = -(-sum(size * count for size, count in enumerate(counts)) // capacity)
    if first_fit_decreasing(counts, capacity) == least or fills_one_by_one(counts, capacity):
        return least
    return _solved(tuple(counts), capacity, 1, 1, least)


def filling_margin(counts: Sequence[int], capacity: int) -> int:
    """1-member items beyond those that fill every slot, and the remainder of every node of joined slots.

    The composition condition at a level of K members is that this isn't negative. With K = P + r, P the largest power
    of two in K and W the width of all slots narrower than K, it is n1 − Σ (w*(p) − p)·n_p − r·⌊W / P⌋; for a power of
    two, where r = 0, that is the paper's condition.
    """
    if capacity in CAPACITIES:
        check_counts(counts, capacity)
    else:
        _check(counts, capacity)
    widest = 1 << (capacity.bit_length() - 1)
    margin, joined = counts[1], 0
    for size, count in enumerate(counts[2:], start=2):
        width = min(slot_width(size), capacity)
        margin -= (width - size) * count
        if width < capacity:
            joined += width * count
    return margin - (capacity - widest) * (joined // widest)


def is_filled(counts: Sequence[int], capacity: int) -> bool:
    """Whether the condition holds: one partial node is then enough."""
    return filling_margin(counts, capacity) >= 0


def first_fit_decreasing(counts: Sequence[int], capacity: int) -> int:
    """Nodes that first-fit-decreasing uses: an upper bound on U*."""
    free = [0] * (capacity + 1)
    used = 0
    for size in range(capacity, 0, -1):
        for _ in range(counts[size]):
            room = next((f for f in range(size, capacity + 1) if free[f]), 0)
            if room:
                free[room] -= 1
            else:
                used, room = used + 1, capacity
            free[room - size] += 1
    return used


def fills_one_by_one(counts: Sequence[int], capacity: int) -> bool:
    """Whether nodes are filled to the last member by taking the largest item and whatever completes it.

    What is left then fits one node, so no packing has fewer partial nodes, nor fewer used ones. Many small items are
    nearly always packed so, and take the solver longest: minutes on nodes of 72.
    """
    left = list(counts)
    total = sum(size * count for size, count in enumerate(left))
    while total >= capacity:
        largest = max(size for size, count in enumerate(left) if count)
        left[largest] -= 1
        if not _take_exactly(left, capacity - largest):
            return False
        total -= capacity
    return True


def _take_exactly(left: list[int], wanted: int) -> bool:
    """Takes items that add up to this, as large ones as can be; False, and nothing taken, if none do."""
    sizes = [size for size in range(1, wanted + 1) if left[size]]
    # Bit s of reached[k] is set when the first k sizes have items that add up to s.
    reached, within = [1], (2 << wanted) - 1
    for size in sizes:
        sums, more, number = reached[-1], left[size], 1
        while more:
            taken = min(number, more)
            sums |= sums << taken * size & within
            more, number = more - taken, 2 * number
        reached.append(sums)
    if not reached[-1] >> wanted & 1:
        return False
    for k in range(len(sizes) - 1, -1, -1):
        size = sizes[k]
        most = min(left[size], wanted // size)
        number = next(n for n in range(most, -1, -1) if reached[k] >> wanted - n * size & 1)
        left[size] -= number
        wanted -= number * size
    return True


@lru_cache(maxsize=4096)
def _solved(counts: tuple[int, ...], capacity: int, full_cost: int, partial_cost: int, least: int) -> int:
    program = IntegerProgram(least_cost=least)
    sizes = [size for size, count in enumerate(counts) if count]
    leaving: list[dict[int, int]] = [{} for _ in range(capacity + 1)]
    demand: dict[int, dict[int, int]] = {size: {} for size in sizes}
    # From each level on only items no larger than the largest that can have led there in descending order.
    reached = {0: capacity}
    for level in range(capacity):
        if level not in reached:
            continue
        for size in sizes:
            if size <= reached[level] and level + size <= capacity:
                column = program.add_column(full_cost if level == 0 else 0)
                leaving[level][column] = 1
                leaving[level + size][column] = leaving[level + size].get(column, 0) - 1
                demand[size][column] = 1
                reached[level + size] = max(reached.get(level + size, 0), size)
        if level:
            # What stays free makes a partial node; its full cost is paid on its first arc already.
            column = program.add_column(partial_cost - full_cost)
            leaving[level][column] = 1
    for level in range(1, capacity):
        if leaving[level]:
            program.add_row(leaving[level], 0)
    for size in sizes:
        program.add_row(demand[size], counts[size])
    solution = solve(program)
    if solution is None:
        raise SolverError("HiGHS found no packing, although a node for each instance is one")
    return sum(cost * count for cost, count in zip(program.costs, solution, strict=True))


def _check(counts: Sequence[int], capacity: int) -> None:
    if type(capacity) is not int or capacity < 1:
        raise DemandError(f"capacity is {capacity!r}, expected a whole number ≥ 1")
    if len(counts) != capacity + 1 or min(counts) < 0 or counts[0]:
        raise DemandError(f"counts is {list(counts)}, expected {capacity + 1} whole numbers ≥ 0, the first of them 0")
