"""The cheapest evictions, as an integer program whose size depends on the patterns in use, not on the nodes.

Two families of whole numbers: how many nodes of a class take an option (evict some of what they hold), and how
many nodes that then have f GPUs free receive a multiset r. Three families of rows tie them together:

* a class has only so many nodes;
* nodes with f free that receive something ≤ nodes with f free after the evictions;
* for each size, received = evicted + arriving.

That a receiving node is known by its free GPUs alone is what keeps it small. A gang with a charge of its own adds
a binary that its options need. Targets for partial and used nodes are one row each. Solved by HiGHS.

Nodes of more than 8 GPUs, and domains of more than 8 panels, receive by arcs instead: `arcs.py`.
"""

from dataclasses import dataclass, field
from math import inf
from typing import Any

from compass_abs.planner.arcs import Arcs, add_arcs
from compass_abs.planner.patterns import Counts, multisets, weight
from compass_abs.planner.problem import Problem
from compass_abs.planner.solution import Infeasible, Solution

#: Costs that differ by less than this share are equal: what a solver in floating point can promise.
TOLERANCE = 1e-6
#: Nodes of more members than this receive by arcs. For 8 listing is as fast; 18 have 1,600 multisets, with which the
#: program takes some 60 times as long, and 72 have millions.
MOST_LISTED = 8

Receiving = dict[tuple[int, Counts], int]


@dataclass(slots=True)
class _Model:
    """Columns and rows as they are added."""

    costs: list[float] = field(default_factory=list)
    uppers: list[float] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)

    def row(self, lower: float, upper: float) -> int:
        self.row_lower.append(lower)
        self.row_upper.append(upper)
        return len(self.row_lower) - 1

    def column(self, cost: float, upper: float, entries: dict[int, float]) -> int:
        self.costs.append(cost)
        self.uppers.append(upper)
        self.starts.append(len(self.rows))
        for row, value in entries.items():
            if value:
                self.rows.append(row)
                self.values.append(value)
        return len(self.costs) - 1


def solve(problem: Problem, branches: int) -> Solution | Infeasible:
    """The cheapest evictions that meet the request, or the proof that there are none."""
    if problem.forced_cost == inf:
        return Infeasible()
    model, taking, receiving = _formulate(problem)
    outcome = _run(model, branches)
    if isinstance(outcome, Infeasible):
        return outcome
    values, bound = outcome
    evictions = tuple((*key, number) for key, column in taking.items() if (number := round(values[column])))
    if isinstance(receiving, Arcs):
        receipts = tuple(receiving.receipts(values))
    else:
        receipts = tuple((*key, number) for key, column in receiving.items() if (number := round(values[column])))
    # Added up again, since the solver's own sum is rounded.
    cost, due = problem.forced_cost, dict[str, None]()
    for c, o, number in evictions:
        option = problem.classes[c].options[o]
        cost += number * option.cost
        due.update(dict.fromkeys(option.gangs))
    cost += sum(problem.gang_costs[gang] for gang in due)
    found = bound + problem.forced_cost
    return Solution(evictions, receipts, cost, cost if abs(found - cost) <= TOLERANCE * max(1.0, cost) else found)


def _formulate(problem: Problem) -> tuple[_Model, dict[tuple[int, int], int], Receiving | Arcs]:
    model, capacity, histogram = _Model(), problem.capacity, problem.histogram
    supply = [model.row(-inf, histogram[free]) for free in range(capacity + 1)]
    balance = [model.row(count, count) for count in problem.arrivals]
    moves = None
    if problem.most_moves is not None:
        moves = model.row(-inf, problem.most_moves - len(problem.forced))
    # Σ of (empty, empty + full) nodes gained: used = N - empty, partial = N - empty - full.
    used = partial = None
    if problem.most_used is not None:
        used = model.row(problem.nodes - problem.most_used - histogram[capacity], inf)
    if problem.most_partial is not None:
        partial = model.row(problem.nodes - problem.most_partial - histogram[capacity] - histogram[0], inf)

    def gained(entries: dict[int, float], before: int, after: int) -> dict[int, float]:
        """Adds what turning a node with `before` free into one with `after` free does to the targets."""
        empty = (after == capacity) - (before == capacity)
        full = (after == 0) - (before == 0)
        if used is not None:
            entries[used] = empty
        if partial is not None:
            entries[partial] = empty + full
        return entries

    gangs = {name: model.column(cost, 1, {}) for name, cost in problem.gang_costs.items()}
    links: dict[tuple[str, int], int] = {}
    pending = {size for size, count in enumerate(problem.arrivals) if count}
    frees = {free for free in range(1, capacity + 1) if histogram[free]}
    taking: dict[tuple[int, int], int] = {}
    for c, node_class in enumerate(problem.classes):
        free, many = node_class.free, len(node_class.nodes)
        limit = model.row(-inf, many)
        for o, option in enumerate(node_class.options):
            entries: dict[int, float] = {limit: 1, supply[free]: 1, supply[free + option.freed]: -1}
            frees.add(free + option.freed)
            for size, number in enumerate(option.taken):
                if number:
                    entries[balance[size]] = -number
                    pending.add(size)
            if moves is not None:
                entries[moves] = option.moves
            for gang in option.gangs:
                if (gang, c) not in links:
                    links[gang, c] = model.row(-inf, 0)
                entries[links[gang, c]] = 1
            column = model.column(option.cost, many, gained(entries, free, free + option.freed))
            taking[c, o] = column
    sizes = tuple(sorted(pending))
    receiving: Receiving | Arcs
    if capacity > MOST_LISTED:
        receiving = add_arcs(model, capacity, problem.nodes, supply, balance, frees, sizes, gained)
    else:
        receiving = {}
        for free in range(1, capacity + 1):
            for received in multisets(free, sizes, capacity)[1:]:
                entries = {supply[free]: 1}
                for size in sizes:
                    entries[balance[size]] = received[size]
                gained(entries, free, free - weight(received))
                receiving[free, received] = model.column(0.0, problem.nodes, entries)
    paying: dict[int, list[tuple[int, float]]] = {column: [] for column in gangs.values()}
    for (gang, c), row in links.items():
        paying[gangs[gang]].append((row, -len(problem.classes[c].nodes)))
    _fill_first_columns(model, paying)
    return model, taking, receiving


def _fill_first_columns(model: _Model, entries: dict[int, list[tuple[int, float]]]) -> None:
    """Gives the first columns, which were added empty, the entries that are known only now."""
    rows: list[int] = []
    values: list[float] = []
    for column, found in entries.items():
        model.starts[column] = len(rows)
        rows += [row for row, _ in found]
        values += [value for _, value in found]
    many = len(entries)
    model.starts[many:] = [start + len(rows) for start in model.starts[many:]]
    model.rows[:0] = rows
    model.values[:0] = values


def _run(model: _Model, branches: int) -> tuple[Any, float] | Infeasible:
    """Hands the model to HiGHS: the values and the proven bound."""
    if not model.costs:
        # Nothing runs, or nothing may move: HiGHS calls that an empty model, whatever its rows ask for.
        met = all(low <= 0 <= high for low, high in zip(model.row_lower, model.row_upper, strict=True))
        return ([], 0.0) if met else Infeasible()
    import highspy
    import numpy

    program = highspy.HighsLp()
    program.num_col_ = len(model.costs)
    program.num_row_ = len(model.row_lower)
    program.col_cost_ = numpy.array(model.costs, dtype=float)
    program.col_lower_ = numpy.zeros(len(model.costs))
    program.col_upper_ = numpy.array(model.uppers, dtype=float)
    program.row_lower_ = numpy.array(model.row_lower, dtype=float)
    program.row_upper_ = numpy.array(model.row_upper, dtype=float)
    program.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    program.a_matrix_.start_ = numpy.array([*model.starts, len(model.rows)], dtype=numpy.int32)
    program.a_matrix_.index_ = numpy.array(model.rows, dtype=numpy.int32)
    program.a_matrix_.value_ = numpy.array(model.values, dtype=float)
    program.integrality_ = [highspy.HighsVarType.kInteger] * len(model.costs)
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    # One thread and a fixed seed: the same state gets the same plan everywhere.
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("parallel", "off")
    solver.setOptionValue("random_seed", 0)
    solver.setOptionValue("mip_rel_gap", 0.0)
    solver.setOptionValue("mip_max_nodes", branches)
    solver.passModel(program)
    solver.run()
    status = solver.getModelStatus()
    if status == highspy.HighsModelStatus.kInfeasible:
        return Infeasible()
    info = solver.getInfo()
    if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
        return Infeasible(proven=False)
    bound = info.objective_function_value
    if status != highspy.HighsModelStatus.kOptimal:
        bound = min(bound, info.mip_dual_bound)
    return solver.getSolution().col_value, bound
