"""A constructive search: place the largest pending instance, evicting smaller ones where no hole is large enough.

Works on counts of nodes, never on nodes, so its cost is that of the patterns in use and of what has to move. A beam
keeps the most promising partial plans; an evicted instance joins the pending ones, and since it is smaller than
what it made room for, every branch ends. What this can't find: plans that evict an instance at least as large as
the one they make room for. That is why a failure here proves nothing.
"""

from math import inf
from typing import NamedTuple

from compass_abs.planner.missing_holes import MissingHoles
from compass_abs.planner.patterns import Counts
from compass_abs.planner.problem import Option, Problem
from compass_abs.planner.solution import Solution

#: Partial plans kept after each eviction, and ways to make a hole tried for each: past these the plans found on
#: sampled decisions get no cheaper (docs/planner.md), below them they do.
WIDTH = 6
BRANCHES = 8


class _Hole(NamedTuple):
    """A way to make a hole: an option of a class."""

    node_class: int
    option: int
    free: int
    value: Option


class _State:
    """A partial plan."""

    __slots__ = ("cost", "early", "gangs", "hole", "moves", "parent", "pending", "plain", "touched", "used")

    def __init__(self, plain: list[int], touched: list[int], pending: list[int]) -> None:
        #: Nodes by free GPUs that nothing was evicted from or placed on; and holes of the others.
        self.plain, self.touched, self.pending = plain, touched, pending
        self.used: dict[int, int] = {}
        self.gangs: frozenset[str] = frozenset()
        self.cost = 0.0
        self.moves = 0
        self.parent: _State | None = None
        #: Evicted before anything was placed.
        self.early = False
        self.hole: _Hole | None = None


def search(problem: Problem) -> Solution | None:
    """A cheap plan, with a simple lower bound; None when the search finds none."""
    if problem.forced_cost == inf or problem.most_partial is not None or problem.most_used is not None:
        return None
    if problem.most_moves is not None and problem.most_moves < len(problem.forced):
        return None
    return _Search(problem).run()


class _Search:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.capacity = problem.capacity
        self._holes: dict[int, list[_Hole]] = {}
        self._prices: dict[int, float] = {}
        self.most_moves = inf if problem.most_moves is None else problem.most_moves - len(problem.forced)

    def run(self) -> Solution | None:
        problem = self.problem
        first = _State(list(problem.histogram), [0] * (self.capacity + 1), list(problem.arrivals))
        beam, best = [first, *self._heads_start(first)], None
        while beam:
            children: list[tuple[float, float, int, _State]] = []
            for state in beam:
                size = self._settle(state)
                if not size:
                    if best is None or (state.cost, state.moves) < (best.cost, best.moves):
                        best = state
                    continue
                self._branch(state, size, children)
            limit = inf if best is None else best.cost
            children.sort(key=lambda child: child[:3])
            beam, seen = [], set()
            for estimate, _, _, child in children:
                if estimate >= limit or len(beam) >= WIDTH:
                    break
                # The same counts reached in another order.
                key = (tuple(child.plain), tuple(child.touched), tuple(child.pending), child.cost)
                if key not in seen:
                    seen.add(key)
                    beam.append(child)
        return None if best is None else self._solution(best)

    def _heads_start(self, first: _State) -> list[_State]:
        """Starts that send an instance larger than those wanted into a larger hole, before they fill that hole.

        Where a node makes way for several of the wanted size, that can be cheaper than anything smaller: a 5 out of
        {5} into 7 free GPUs leaves room for two 4s.
        """
        size = max((size for size, count in enumerate(first.pending) if count), default=0)
        if not size or 2 * size > self.capacity:
            return []
        room = self._room(first.plain, first.touched)
        starts: list[tuple[float, int, _Hole]] = []
        for c, node_class in enumerate(self.problem.classes):
            for o, option in enumerate(node_class.options):
                gain = (node_class.free + option.freed) // size - node_class.free // size
                larger = [t for t in range(size, self.capacity + 1) if option.taken[t]]
                if gain < 2 or not larger or option.moves > self.most_moves:
                    continue
                if all(room[t] >= option.taken[t] for t in larger):
                    starts.append((option.cost / gain, len(starts), _Hole(c, o, node_class.free, option)))
        chosen = [self._evict(first, hole, self._due(first, hole)) for _, _, hole in sorted(starts)[:BRANCHES]]
        for state in chosen:
            state.early = True
        return chosen

    def _due(self, state: _State, hole: _Hole) -> float:
        """What this eviction costs after those of the state."""
        gangs = self.problem.gang_costs
        return hole.value.cost + sum(gangs[gang] for gang in hole.value.gangs if gang not in state.gangs)

    def _evict(self, state: _State, hole: _Hole, cost: float) -> _State:
        """The state after an eviction."""
        child = _State(list(state.plain), list(state.touched), list(state.pending))
        child.plain[hole.free] -= 1
        child.touched[hole.free + hole.value.freed] += 1
        for size, number in enumerate(hole.value.taken):
            child.pending[size] += number
        child.used = {**state.used, hole.node_class: state.used.get(hole.node_class, 0) + 1}
        child.gangs = state.gangs.union(hole.value.gangs) if hole.value.gangs else state.gangs
        child.cost = state.cost + cost
        child.moves = state.moves + hole.value.moves
        child.parent, child.hole = state, hole
        return child

    def _settle(self, state: _State) -> int:
        """Places pending instances, largest first, while there are holes; the size that has none, or 0."""
        plain, touched, pending = state.plain, state.touched, state.pending
        for size in range(self.capacity, 0, -1):
            free = size
            while pending[size]:
                while free <= self.capacity and not plain[free] and not touched[free]:
                    free += 1
                if free > self.capacity:
                    return size
                # Holes in use first: a plain node may yet give something up.
                source = touched if touched[free] else plain
                source[free] -= 1
                touched[free - size] += 1
                pending[size] -= 1
                # What is left of this hole may hold the next one, and is smaller.
                free = min(free, max(size, free - size))
        return 0

    def _branch(self, state: _State, size: int, children: list[tuple[float, float, int, _State]]) -> None:
        """The best ways to make a hole of this size."""
        problem, plain, used, pending = self.problem, state.plain, state.used, state.pending
        room = self._room(plain, state.touched)
        ranked = []
        for rank, hole in enumerate(self._ways(size)):
            if not plain[hole.free] or used.get(hole.node_class, 0) >= len(problem.classes[hole.node_class].nodes):
                continue
            if state.moves + hole.value.moves > self.most_moves:
                continue
            cost = self._due(state, hole)
            tight = cost
            for small in range(1, size):
                if hole.value.taken[small] and pending[small] + hole.value.taken[small] > room[small]:
                    tight += self._price(small)
            ranked.append((tight, hole.free + hole.value.freed, rank, cost))
        ranked.sort()
        ways = self._ways(size)
        for tight, _, rank, cost in ranked[:BRANCHES]:
            child = self._evict(state, ways[rank], cost)
            children.append((child.cost + self._estimate(child), tight, rank, child))

    def _room(self, plain: list[int], touched: list[int]) -> list[int]:
        room = [0] * (self.capacity + 1)
        for free in range(1, self.capacity + 1):
            many = plain[free] + touched[free]
            if many:
                for size in range(1, free + 1):
                    room[size] += many * (free // size)
        return room

    def _estimate(self, state: _State) -> float:
        """What the pending instances that don't fit as it is will cost at least, more or less."""
        holes = [a + b for a, b in zip(state.plain, state.touched, strict=True)]
        total = 0.0
        for size in range(self.capacity, 0, -1):
            missing, free = state.pending[size], size
            while missing:
                while free <= self.capacity and not holes[free]:
                    free += 1
                if free > self.capacity:
                    total += missing * self._price(size)
                    break
                holes[free] -= 1
                holes[free - size] += 1
                missing -= 1
                free = min(free, max(size, free - size))
        return total

    def _ways(self, size: int) -> list[_Hole]:
        """Every option that makes a hole of this size from less, evicting only smaller instances and none in vain."""
        known = self._holes.get(size)
        if known is None:
            known = [
                _Hole(c, o, node_class.free, option)
                for c, node_class in enumerate(self.problem.classes)
                if node_class.free < size
                for o, option in enumerate(node_class.options)
                if node_class.free + option.freed >= size
                and not any(option.taken[size:])
                and _none_in_vain(option.taken, node_class.free + option.freed - size)
            ]
            known.sort(key=lambda hole: hole.value.cost)
            self._holes[size] = known
        return known

    def _price(self, size: int) -> float:
        known = self._prices.get(size)
        if known is None:
            ways = self._ways(size)
            # Nothing makes such a hole: worse than anything that does.
            known = ways[0].value.cost if ways else 1e9
            self._prices[size] = known
        return known

    def _solution(self, state: _State) -> Solution:
        """Replays the evictions that led here, this time keeping track of which hole received what."""
        evictions: dict[tuple[int, int], int] = {}
        path = []
        end, early = state, False
        while state.parent is not None and state.hole is not None:
            path.append(state.hole)
            early = state.early
            state = state.parent
        for hole in path:
            evictions[hole.node_class, hole.option] = evictions.get((hole.node_class, hole.option), 0) + 1
        receipts = _Replay(self.problem).receipts(path[::-1], early)
        return Solution(
            tuple((c, o, number) for (c, o), number in sorted(evictions.items())),
            receipts,
            end.cost + self.problem.forced_cost,
            MissingHoles(self.problem).bound + self.problem.forced_cost,
        )


def _none_in_vain(taken: Counts, spare: int) -> bool:
    """Whether leaving any one of these out would leave too little."""
    return not any(number and size <= spare for size, number in enumerate(taken))


class _Replay:
    """The search's own steps, with every hole remembered."""

    def __init__(self, problem: Problem) -> None:
        self.capacity = problem.capacity
        self.plain = list(problem.histogram)
        self.pending = list(problem.arrivals)
        #: By free GPUs left: what each touched hole had free at first, and has received.
        self.touched: list[list[tuple[int, list[int]]]] = [[] for _ in range(self.capacity + 1)]

    def receipts(self, path: list[_Hole], early: bool) -> tuple[tuple[int, Counts, int], ...]:
        """What each hole receives; when `early`, the first eviction came before anything was placed."""
        if not early:
            self._settle()
        for hole in path:
            self.plain[hole.free] -= 1
            after = hole.free + hole.value.freed
            self.touched[after].append((after, [0] * (self.capacity + 1)))
            for size, number in enumerate(hole.value.taken):
                self.pending[size] += number
            self._settle()
        found: dict[tuple[int, Counts], int] = {}
        for holes in self.touched:
            for first, received in holes:
                if any(received):
                    key = (first, tuple(received))
                    found[key] = found.get(key, 0) + 1
        return tuple((first, received, number) for (first, received), number in sorted(found.items()))

    def _settle(self) -> None:
        for size in range(self.capacity, 0, -1):
            free = size
            while self.pending[size]:
                while free <= self.capacity and not self.plain[free] and not self.touched[free]:
                    free += 1
                if free > self.capacity:
                    return
                if self.touched[free]:
                    first, received = self.touched[free].pop()
                else:
                    self.plain[free] -= 1
                    first, received = free, [0] * (self.capacity + 1)
                received[size] += 1
                self.touched[free - size].append((first, received))
                self.pending[size] -= 1
                free = min(free, max(size, free - size))
