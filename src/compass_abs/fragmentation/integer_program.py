"""A thin door to HiGHS: integer programs in, whole numbers out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compass_abs.fragmentation.group_relaxation import Lifted, lift
from compass_abs.model import CompassError


class SolverError(CompassError):
    """The solver stopped without an answer."""


@dataclass(slots=True)
class IntegerProgram:
    """Minimise Σ cost·x over whole x ≥ 0 such that Σ entries·x = right in every row. All are whole; costs ≥ 0."""

    costs: list[int] = field(default_factory=list)
    rows: list[dict[int, int]] = field(default_factory=list)
    right: list[int] = field(default_factory=list)
    #: What no assignment costs less than, where more is known than the relaxation tells.
    least_cost: int = 0

    def add_column(self, cost: int) -> int:
        """A new unknown; says its index."""
        self.costs.append(cost)
        return len(self.costs) - 1

    def add_row(self, entries: Mapping[int, int], right: int) -> None:
        """A constraint: Σ entries[column]·x = right."""
        self.rows.append(dict(entries))
        self.right.append(right)


#: How far below the relaxation's values the first search starts; any number gives the same optimum.
_MARGIN = 2
#: What a column's cost weighs against its length, which is to choose only among vertices that cost the same.
_COST_WEIGHT = 4096


def solve(program: IntegerProgram) -> list[int] | None:
    """An optimal assignment; None when there is none at all.

    First the relaxation. Its vertex gives a bound on every answer, and an answer that meets it if numbers are large.
    If they aren't, whole numbers near the vertex are searched, which is little however large the cluster is; an answer
    that meets the bound is optimal. Only when none does, everything.
    """
    if not program.costs:
        return None if any(program.right) else []
    vertex = _vertex(program)
    if vertex is None:
        return None
    relaxed, lifted = vertex
    if lifted is None:
        return _cheapest(program, program.least_cost)
    if lifted.answer is not None:
        return _checked(program, lifted.answer)
    bound = max(lifted.bound, program.least_cost)
    near = _cheapest(program, bound, [max(0, math.floor(x) - _MARGIN) for x in relaxed])
    if near is not None and _cost(program, near) <= bound:
        return near
    return _cheapest(program, bound)


def _vertex(program: IntegerProgram) -> tuple[list[float], Lifted | None] | None:
    """Where the relaxation is cheapest, and what that says of whole numbers; None when there is no assignment.

    Of vertices that cost the same, the one with short columns: no determinant is larger than the product of their
    lengths, and with the determinant grows the group that has to be searched.
    """
    import highspy
    import numpy

    matrix = numpy.zeros((len(program.rows), len(program.costs)), dtype=numpy.int64)
    for row, entries in zip(matrix, program.rows, strict=True):
        row[list(entries)] = list(entries.values())
    solver = _run(program, _COST_WEIGHT * numpy.array(program.costs) + (matrix * matrix).sum(axis=0))
    if solver is None:
        return None
    basis = solver.getBasis()
    basic = [
        index
        for index, status in enumerate([*basis.col_status, *basis.row_status])
        if status == highspy.HighsBasisStatus.kBasic
    ]
    return list(solver.getSolution().col_value), lift(matrix, program.costs, program.right, basic)


def _cheapest(program: IntegerProgram, bound: int, least: Sequence[int] | None = None) -> list[int] | None:
    """The cheapest assignment no smaller than `least`, by the solver's own search; None when there is none.

    That nothing costs less than `bound` is told to the solver, so that it need not look for it.
    """
    solver = _run(program, program.costs, whole=True, bound=bound, least=least)
    return None if solver is None else _checked(program, [round(x) for x in solver.getSolution().col_value])


def _run(
    program: IntegerProgram,
    costs: Any,
    *,
    whole: bool = False,
    bound: int = 0,
    least: Sequence[int] | None = None,
) -> Any:
    """HiGHS with the optimum; None when there is no assignment."""
    import highspy
    import numpy

    rows = program.rows
    lower: list[float] = [*program.right]
    upper: list[float] = [*program.right]
    if bound > 0:
        # No cost is negative, so that a bound of 0 would say nothing.
        rows = [*rows, {column: cost for column, cost in enumerate(program.costs) if cost}]
        lower.append(bound)
        upper.append(highspy.kHighsInf)
    starts: list[int] = [0]
    indices: list[int] = []
    values: list[int] = []
    for row in rows:
        indices.extend(row)
        values.extend(row.values())
        starts.append(len(indices))
    columns = len(program.costs)
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, len(rows)
    model.col_cost_ = numpy.array(costs, dtype=numpy.float64)
    model.col_lower_ = numpy.zeros(columns) if least is None else numpy.array(least, dtype=numpy.float64)
    model.col_upper_ = numpy.full(columns, highspy.kHighsInf)
    model.row_lower_ = numpy.array(lower, dtype=numpy.float64)
    model.row_upper_ = numpy.array(upper, dtype=numpy.float64)
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = numpy.array(starts)
    model.a_matrix_.index_ = numpy.array(indices)
    model.a_matrix_.value_ = numpy.array(values, dtype=numpy.float64)
    if whole:
        model.integrality_ = [highspy.HighsVarType.kInteger] * columns
    solver = highspy.Highs()
    solver.silent()
    # The optimum is a whole number: less than one from the bound is proof.
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_abs_gap", 0.99)
    solver.passModel(model)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return None
    if status != highspy.HighsModelStatus.kOptimal:
        raise SolverError(f"HiGHS stopped with {status} on a program of {columns} columns and {len(rows)} rows")
    return solver


def _cost(program: IntegerProgram, solution: Sequence[int]) -> int:
    return sum(cost * x for cost, x in zip(program.costs, solution, strict=True))


def _checked(program: IntegerProgram, solution: list[int]) -> list[int]:
    """The same, every row having been checked in whole numbers: the solver's tolerances are not ours."""
    for row, right in zip(program.rows, program.right, strict=True):
        if min(solution) < 0 or sum(entry * solution[column] for column, entry in row.items()) != right:
            raise SolverError("HiGHS returned a solution that does not keep the program's rows in whole numbers")
    return solution
