"""Placement rules that see a node as its number of free GPUs: a preference among counts, at any scale.

Without GPU sharing every published placement rule of the paper's comparison is an `argmin` of a key over the free
counts that exist, so a gang costs O(capacity) an instance on the histogram.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice

from compass_abs.model import ClusterState

#: For each free count that an instance may be put on, best first.
Order = Sequence[int]


def preference(capacity: int, gpus: int, key: Callable[[int], int]) -> tuple[int, ...]:
    """The free counts that hold an instance of `gpus`, by ascending key; the smaller count on ties."""
    return tuple(free for _, free in sorted((key(free), free) for free in range(gpus, capacity + 1)))


def choose_node(state: ClusterState, order: Order) -> int:
    """The lowest node of the first free count in `order` that some node has; -1 where none has."""
    buckets = state.by_free
    for free in order:
        bucket = buckets[free]
        if bucket.size:
            return bucket.first()
    return -1


def choose_nodes(state: ClusterState, gpus: int, count: int, order: Order) -> list[int] | None:
    """A node for each of `count` instances, each chosen as if those before it were placed; None if they don't fit."""
    if count == 1:
        node = choose_node(state, order)
        return None if node < 0 else [node]
    if 2 * gpus > state.capacity:
        return _on_separate_nodes(state, count, order)
    if state.room(gpus) < count:
        return None
    after = Hypothetical(state)
    left, nodes = after.histogram, []
    for _ in range(count):
        for free in order:
            if left[free]:
                nodes.append(after.take(free, gpus))
                break
    return nodes


def _on_separate_nodes(state: ClusterState, count: int, order: Order) -> list[int] | None:
    """A node for each instance where no node takes two of them."""
    nodes: list[int] = []
    for free in order:
        bucket = state.by_free[free]
        if bucket.size:
            nodes += islice(bucket, count - len(nodes))
            if len(nodes) == count:
                return nodes
    return None


class Hypothetical:
    """The nodes by free GPUs as they would be after some placements, while the state stays as it is."""

    __slots__ = ("_cursors", "_entered", "_heads", "_state", "histogram")

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.histogram = state.histogram()
        # The nodes of a bucket leave it lowest first, so a cursor is enough; those that enter it wait in a heap.
        self._cursors: dict[int, Iterator[int]] = {}
        self._heads: dict[int, int] = {}
        self._entered: dict[int, list[int]] = {}

    def take(self, free: int, gpus: int) -> int:
        """Puts an instance on the lowest node with this many free GPUs, which exists, and says which node that is."""
        if free not in self._cursors:
            self._cursors[free] = iter(self._state.by_free[free])
            self._heads[free] = next(self._cursors[free], -1)
        head, heap = self._heads[free], self._entered.get(free)
        if heap and not 0 <= head < heap[0]:
            node = heappop(heap)
        else:
            node = head
            self._heads[free] = next(self._cursors[free], -1)
        self.histogram[free] -= 1
        self.histogram[free - gpus] += 1
        heappush(self._entered.setdefault(free - gpus, []), node)
        return node


def choose_empty(state: ClusterState, count: int) -> list[int] | None:
    """As `choose_nodes` for whole nodes, on which no rule has a preference: the lowest that are empty."""
    bucket = state.by_free[state.capacity]
    return list(islice(bucket, count)) if bucket.size >= count else None


def choose_by_growth(
    state: ClusterState, gpus: int, count: int, table: Sequence[int], pull: int = 0
) -> list[int] | None:
    """As `choose_nodes`, where free count f is the better the smaller `table[f - gpus] - table[f] + pull · f`."""
    if count > 1:
        order = preference(state.capacity, gpus, lambda free: table[free - gpus] - table[free] + pull * free)
        return choose_nodes(state, gpus, count, order)
    # Rules whose table changes with every job come here: looking at what exists beats sorting what might.
    buckets = state.by_free
    best, least = None, 0
    for free in range(gpus, state.capacity + 1):
        if buckets[free].size:
            growth = table[free - gpus] - table[free] + pull * free
            if best is None or growth < least:
                best, least = buckets[free], growth
    return None if best is None else [best.first()]


def added(state: ClusterState, gpus: int, nodes: Sequence[int], table: Sequence[int]) -> int:
    """By how much the sum of `table` over all nodes grows when instances of this size are put on these nodes."""
    taken = dict.fromkeys(nodes, 0)
    for node in nodes:
        taken[node] += gpus
    free = state.nodes
    return sum(table[free[node].free - k] - table[free[node].free] for node, k in taken.items())
