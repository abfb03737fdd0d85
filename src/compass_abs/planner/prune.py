"""Fewer classes where charges differ between jobs, so that the exact program stays small without being less exact."""

from dataclasses import replace
from math import ceil, inf

from compass_abs.planner.missing_holes import MissingHoles
from compass_abs.planner.problem import NodeClass, Problem

#: Classes with items of gangs that share a charge. Past this many the cheapest are kept and the plan is bounded
#: instead of proven: each is some ten columns, and a program of a few thousand takes a second.
SHARED_CLASSES = 240


def prune(problem: Problem, upper: float) -> tuple[Problem, bool]:
    """The problem without classes that no optimal plan needs, and whether that is sure.

    Among the nodes whose jobs don't share a charge with instances elsewhere, a plan that costs at most `upper` evicts
    from at most T = upper / (their cheapest option). Those with equally much free and equal sizes stand in for each
    other, whatever is evicted or received: so of those that could give up the same sizes, the T cheapest suffice.
    """
    shared: list[NodeClass] = []
    alone: list[NodeClass] = []
    classes = _affordable(problem, upper)
    for node_class in classes:
        (shared if any(label for _, label, _ in node_class.items) else alone).append(node_class)
    kept_shared = _cheapest_shared(problem, shared)
    cheapest = min((option.cost for c in alone for option in c.options), default=0.0)
    if cheapest > 0.0 and upper < inf:
        most = max(1, ceil((upper - problem.forced_cost) / cheapest + 1e-9))
        shapes: dict[tuple[int, tuple[int, ...]], list[NodeClass]] = {}
        for c in alone:
            shapes.setdefault((c.free, tuple(size for size, _, _ in c.items)), []).append(c)
        alone = [c for group in shapes.values() for c in _enough(group, most)]
    # In the old order, so that equal programs stay equal.
    wanted = {id(c) for c in (*alone, *kept_shared)}
    classes = [c for c in classes if id(c) in wanted]
    return replace(problem, classes=classes), len(kept_shared) == len(shared)


def _affordable(problem: Problem, upper: float) -> list[NodeClass]:
    """The classes without the options that cost too much to be in a plan for `upper`.

    Where every charge is the same the program is small, and stays the same whatever was known.
    """
    charges = {cost for c in problem.classes for _, _, cost in c.items}
    if upper == inf or (len(charges) <= 1 and not problem.gang_costs):
        return problem.classes
    return MissingHoles(problem).within(upper)


def _enough(group: list[NodeClass], most: int) -> list[NodeClass]:
    """For each thing that could be evicted, the cheapest classes that together have `most` nodes."""
    if len(group) == 1:
        return group
    prices: dict[tuple[int, ...], list[tuple[float, int]]] = {}
    for position, node_class in enumerate(group):
        for option in node_class.options:
            prices.setdefault(option.taken, []).append((option.cost, position))
    wanted: dict[int, None] = {}
    for offers in prices.values():
        nodes = 0
        for _, position in sorted(offers):
            wanted[position] = None
            nodes += len(group[position].nodes)
            if nodes >= most:
                break
    return [group[position] for position in sorted(wanted)]


def _cheapest_shared(problem: Problem, shared: list[NodeClass]) -> list[NodeClass]:
    if len(shared) <= SHARED_CLASSES:
        return shared
    ranked = sorted(
        range(len(shared)),
        key=lambda i: (
            sum(cost for _, _, cost in shared[i].items)
            + sum(problem.gang_costs[label] for label in {label for _, label, _ in shared[i].items if label}),
            i,
        ),
    )
    return [shared[i] for i in sorted(ranked[:SHARED_CLASSES])]
