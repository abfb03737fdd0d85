"""Tidying with one move at most: what nearly every event asks for, found by looking at all of them."""

from compass_abs.planner.problem import NodeClass, Option, Problem
from compass_abs.planner.solution import Solution


def single_move(problem: Problem) -> Solution | None:
    """The cheapest plan for the targets on partial and used nodes that moves one instance or none; None without one.

    Its bound is the cheapest move there is: where nothing meets the targets already, every plan makes one.
    """
    histogram, capacity = problem.histogram, problem.capacity
    empty, full = histogram[capacity], histogram[0]
    # What moves have to gain: used = nodes - empty, partial = nodes - empty - full.
    want_empty = -problem.nodes if problem.most_used is None else problem.nodes - problem.most_used - empty
    want_both = -problem.nodes if problem.most_partial is None else problem.nodes - problem.most_partial - empty - full
    if want_empty <= 0 and want_both <= 0:
        return Solution((), (), problem.forced_cost, problem.forced_cost)
    if problem.most_moves == 0:
        return None
    cheapest, best = None, None
    for c, node_class in enumerate(problem.classes):
        for o, option in enumerate(node_class.options):
            if option.moves != 1:
                continue
            cost = problem.price(option)
            cheapest = cost if cheapest is None else min(cheapest, cost)
            if best is not None and (cost, option.freed) >= best[:2]:
                continue
            target = _target(problem, node_class, option, want_empty, want_both)
            if target is not None:
                best = (cost, option.freed, c, o, target)
    if best is None or cheapest is None:
        return None
    cost, _, c, o, target = best
    taken = problem.classes[c].options[o].taken
    return Solution(((c, o, 1),), ((target, taken, 1),), problem.forced_cost + cost, problem.forced_cost + cheapest)


def _target(problem: Problem, node_class: NodeClass, option: Option, want_empty: int, want_both: int) -> int | None:
    """The fewest free GPUs of another node with which this move meets the targets."""
    histogram, capacity, gpus = problem.histogram, problem.capacity, option.freed
    emptied = node_class.free + gpus == capacity
    left_full = node_class.free == 0
    for free in range(gpus, capacity + 1):
        if histogram[free] - (free == node_class.free) < 1:
            continue
        gained_empty = emptied - (free == capacity)
        gained_full = (free == gpus) - left_full
        if gained_empty >= want_empty and gained_empty + gained_full >= want_both:
            return free
    return None
