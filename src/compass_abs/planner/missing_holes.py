"""What room costs at least, by counting the holes that are missing; and what no plan that cheap can contain."""

from functools import cached_property

from compass_abs.planner.problem import NodeClass, Option, Problem

#: Sums of charges in another order differ by less.
SAFE = 1e-6


class MissingHoles:
    """The holes of the largest wanted size that evictions have to gain, and what each option gains and costs.

    A gang that pays once pays an equal part with each of its instances here, so never more than its charge.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.size = max((size for size, count in enumerate(problem.arrivals) if count), default=0)
        size = self.size
        held = sum(many * (free // size) for free, many in enumerate(problem.histogram)) if size else 0
        self.missing = problem.arrivals[size] - held if size else 0
        instances: dict[str, int] = {}
        for node_class in problem.classes:
            for _, gang, _ in node_class.items:
                if gang:
                    instances[gang] = instances.get(gang, 0) + len(node_class.nodes)
        self._parts = {gang: problem.gang_costs[gang] / many for gang, many in instances.items()}

    def gain(self, free: int, option: Option) -> int:
        """Holes that it makes; an instance of this size, or a larger one, that leaves takes one with it."""
        size = self.size
        return (free + option.freed) // size - free // size - sum(option.taken[size:])

    def cost(self, option: Option) -> float:
        """The charge, of gangs the part of each instance."""
        if not option.gangs:
            return option.cost
        return option.cost + sum(many * self._parts[gang] for _, gang, many in option.groups if gang)

    @cached_property
    def _taken(self) -> tuple[float, float]:
        """What the cheapest offers cost that together gain enough, and the price of a hole in the last of them."""
        offers = []
        for node_class in self.problem.classes if self.missing > 0 else ():
            found = ((self.gain(node_class.free, option), option) for option in node_class.options)
            gains = [(self.cost(option) / gain, gain) for gain, option in found if gain > 0]
            if gains:
                offers.append((min(gains)[0], max(gain for _, gain in gains) * len(node_class.nodes)))
        total, missing, last = 0.0, self.missing, 0.0
        for price, number in sorted(offers):
            if missing <= 0:
                break
            total += price * min(number, missing)
            missing -= number
            last = price
        return total, last

    @property
    def bound(self) -> float:
        """No plan is cheaper: each missing hole costs at least its cheapest option."""
        return self._taken[0]

    def within(self, upper: float) -> list[NodeClass]:
        """The classes with only those options that a plan for at most `upper` can contain.

        At the price p of a hole, a plan costs at least p · missing + Σ (cost - p · gain) of its options; each node
        adds the least that any of its options can, or nothing.
        """
        problem, price = self.problem, self._taken[1]
        most = (upper - problem.forced_cost) * (1 + SAFE) + SAFE
        rests = [
            [self._rest(node_class, option, price) for option in node_class.options] for node_class in problem.classes
        ]
        least = [min(0.0, *rest) for rest in rests]
        base = price * self.missing + sum(low * len(c.nodes) for low, c in zip(least, problem.classes, strict=True))
        found = []
        for node_class, rest, low in zip(problem.classes, rests, least, strict=True):
            options = tuple(
                option
                for option, own in zip(node_class.options, rest, strict=True)
                if base - low + own <= most and problem.price(option) <= most
            )
            if options:
                found.append(node_class._replace(options=options))
        return found

    def _rest(self, node_class: NodeClass, option: Option, price: float) -> float:
        return self.cost(option) - (price * self.gain(node_class.free, option) if price else 0.0)
