"""Whole numbers from a vertex of the relaxation, by Gomory's group relaxation; exact, in integers throughout.

At an optimal vertex the basic unknowns follow from the others: B·y = b − N·z. Forget that y can't be negative, but not
that it is whole: what is left to choose is z such that b − N·z is a multiple of B, as cheaply as possible. That is a
shortest path in the group Zᵐ / B·Zᵐ. Its order |det B| has nothing to do with how large b is; here it is a few dozen.
The path's cost bounds every answer from below. If y comes out without a negative, as it does for large b (Gomory 1965),
the answer is optimal.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: A path may visit every element of the group; beyond this many a search by the solver is as fast.
_LARGEST_ORDER = 256
#: Products of numbers up to this are exact in 64 bits.
_LARGEST_EXACT = 1 << 24

Element = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Lifted:
    """What a vertex says of whole numbers."""

    #: No assignment costs less.
    bound: int
    #: The assignment that costs as much; None when it would have a negative in it.
    answer: list[int] | None


def lift(matrix: Any, costs: Sequence[int], right: Sequence[int], basic: Sequence[int]) -> Lifted | None:
    """The cheapest whole x with matrix·x = right, some basic ones perhaps negative.

    `basic` are the columns of an optimal vertex; column n + i stands for a unit vector in row i that is to stay 0. None
    when whole numbers don't confirm that they are, which only a solver's rounding errors can cause.
    """
    import numpy

    rows, columns = matrix.shape
    wide = numpy.hstack([matrix, numpy.eye(rows, dtype=numpy.int64)])
    chosen = wide[:, basic]
    order = round(abs(float(numpy.linalg.det(chosen))))
    if not 1 <= order <= _LARGEST_EXACT:
        return None
    # `order` times the inverse is whole; the floats only help to guess it.
    inverse = numpy.rint(numpy.linalg.inv(chosen) * order).astype(numpy.int64)
    if (chosen @ inverse != order * numpy.eye(rows, dtype=numpy.int64)).any():
        return None
    prices = numpy.array([*costs, *[0] * rows], dtype=numpy.int64)[list(basic)] @ inverse
    reduced = order * numpy.array(costs, dtype=numpy.int64) - prices @ matrix
    if (reduced < 0).any():
        return None

    # Right sides may be so large that products don't fit a machine's word.
    exact: list[list[int]] = inverse.tolist()
    at_vertex = _dot(prices.tolist(), right)
    if order > _LARGEST_ORDER:
        return Lifted(-(-at_vertex // order), None)
    goal = tuple(_dot(row, right) % order for row in exact)
    path = _cheapest_path(goal, order, ((inverse @ matrix) % order).T.tolist(), reduced.tolist())
    if path is None:
        return None
    answer, left = [0] * (columns + rows), list(right)
    for column in path:
        answer[column] += 1
        left = [have - int(takes) for have, takes in zip(left, matrix[:, column], strict=True)]
    for column, row in zip(basic, exact, strict=True):
        answer[column] += _dot(row, left) // order
    bound = sum(cost * x for cost, x in zip(costs, answer, strict=False))
    feasible = min(answer) >= 0 and not any(answer[columns:])
    return Lifted(bound, answer[:columns] if feasible else None)


def _cheapest_path(goal: Element, order: int, elements: list[list[int]], costs: list[int]) -> list[int] | None:
    """Columns whose elements add up to the goal, as cheaply as possible, then as few as possible."""
    import numpy

    nothing = (0,) * len(goal)
    steps: dict[Element, int] = {}
    for column in sorted(range(len(costs)), key=costs.__getitem__):
        steps.setdefault(tuple(elements[column]), column)
    steps.pop(nothing, None)
    moves = numpy.array(list(steps), dtype=numpy.int64).reshape(len(steps), len(goal))
    best: dict[Element, tuple[int, int]] = {nothing: (0, 0)}
    came: dict[Element, tuple[Element, int]] = {}
    queue = [(0, 0, nothing)]
    while queue:
        cost, length, here = heapq.heappop(queue)
        if here == goal:
            path = []
            while here != nothing:
                here, column = came[here]
                path.append(column)
            return path
        if best[here] < (cost, length):
            continue
        for column, there in zip(steps.values(), ((moves + here) % order).tolist(), strict=True):
            reached = (cost + costs[column], length + 1)
            element = tuple(there)
            if element not in best or reached < best[element]:
                best[element] = reached
                came[element] = (here, column)
                heapq.heappush(queue, (*reached, element))
    return None


def _dot(row: Sequence[int], column: Sequence[int]) -> int:
    return sum(a * b for a, b in zip(row, column, strict=True))
