"""A thin door to HiGHS: integer programs in, whole numbers out."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from compass_abs.model import CompassError


class SolverError(CompassError):
    """The solver stopped without an answer."""


@dataclass(slots=True)
class IntegerProgram:
    """Minimise Σ cost·x over whole x ≥ 0 within the rows' bounds. Costs are whole too, and so is the optimum."""

    costs: list[int] = field(default_factory=list)
    lower: list[float] = field(default_factory=list)
    upper: list[float] = field(default_factory=list)
    rows: list[dict[int, int]] = field(default_factory=list)
    #: What no assignment costs less than, where more is known than the relaxation tells.
    least_cost: int = 0

    def add_column(self, cost: int) -> int:
        """A new unknown; says its index."""
        self.costs.append(cost)
        return len(self.costs) - 1

    def add_row(self, entries: Mapping[int, int], lower: float, upper: float) -> None:
        """A constraint: lower ≤ Σ entries[column]·x ≤ upper."""
        self.rows.append(dict(entries))
        self.lower.append(lower)
        self.upper.append(upper)


#: No bound.
UNBOUNDED = float("inf")


#: How far below the relaxation's values the first search starts; any number gives the same optimum. Of 0, 2, 4 and
#: 8 this had the best worst case on random demands: with 0 an optimum is missed more often and all is searched.
_MARGIN = 2
#: Relative error granted to the relaxation's optimum, well above the solver's 1e-7.
_RELAXATION_ERROR = 1e-6


def solve(program: IntegerProgram) -> list[int] | None:
    """An optimal assignment; None when there is none at all.

    First the relaxation, whose optimum rounded up bounds every answer. Then whole numbers near it, which is a small
    search however large the cluster is: an answer that meets the bound is optimal. Only when none does, everything.
    """
    if not program.costs:
        return [] if all(low <= 0 <= high for low, high in zip(program.lower, program.upper, strict=True)) else None
    relaxed = _run(program, whole=False, least=None)
    if relaxed is None:
        return None
    value = sum(cost * x for cost, x in zip(program.costs, relaxed, strict=True))
    bound = max(program.least_cost, math.ceil(value - _RELAXATION_ERROR * max(1.0, abs(value))))
    near = _run(program, whole=True, least=[max(0, math.floor(x) - _MARGIN) for x in relaxed])
    if near is not None:
        answer = _whole(program, near)
        if sum(cost * x for cost, x in zip(program.costs, answer, strict=True)) <= bound:
            return answer
    found = _run(program, whole=True, least=None)
    return None if found is None else _whole(program, found)


def _run(program: IntegerProgram, *, whole: bool, least: Sequence[int] | None) -> list[float] | None:
    """What HiGHS says, with these least values for the unknowns; None when there is no assignment."""
    import highspy
    import numpy

    lower, upper, matrix = program.lower, program.upper, program.rows
    if whole and program.least_cost > 0:
        # So that the solver knows that it need not look for less.
        lower, upper = [*lower, program.least_cost], [*upper, UNBOUNDED]
        matrix = [*matrix, {column: cost for column, cost in enumerate(program.costs) if cost}]
    columns, rows = len(program.costs), len(matrix)
    starts: list[int] = [0]
    indices: list[int] = []
    values: list[int] = []
    for row in matrix:
        indices.extend(row)
        values.extend(row.values())
        starts.append(len(indices))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = columns, rows
    model.col_cost_ = numpy.array(program.costs, dtype=numpy.float64)
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
        raise SolverError(f"HiGHS stopped with {status} on a program of {columns} columns and {rows} rows")
    return list(solver.getSolution().col_value)


def _whole(program: IntegerProgram, found: Sequence[float]) -> list[int]:
    """The answer in whole numbers, checked exactly: the solver's tolerances are not ours."""
    solution = [round(value) for value in found]
    for row, low, high in zip(program.rows, program.lower, program.upper, strict=True):
        if min(solution) < 0 or not low <= sum(c * solution[k] for k, c in row.items()) <= high:
            raise SolverError("HiGHS returned a solution that does not keep the program's rows in whole numbers")
    return solution
