"""What may be settled before anything is searched for: complementary pairs, and demands that flow like water."""

from collections.abc import Sequence

from compass_abs.fragmentation.demand import wcc_holds
from compass_abs.fragmentation.packing import Group


def complementary_pairs(counts: Sequence[int], capacity: int) -> tuple[list[Group], list[int]]:
    """As many nodes as can be filled by one or two instances, and what is left (lemma 1 of docs/fragmentation.md)."""
    rest = list(counts)
    groups: list[Group] = [((capacity,), rest[capacity])]
    rest[capacity] = 0
    for large in range(capacity - 1, capacity // 2, -1):
        pairs = min(rest[large], rest[capacity - large])
        groups.append(((large, capacity - large), pairs))
        rest[large] -= pairs
        rest[capacity - large] -= pairs
    if capacity > 1:
        half = capacity // 2
        groups.append(((half, half), rest[half] // 2))
        rest[half] %= 2
    return groups, rest


def is_fluid(counts: Sequence[int], capacity: int) -> bool:
    """Whether the condition holds of what complementary pairs leave: then only one node need be partial.

    With its 1s each instance is a block of a power of two, and those pack without waste (lemma 5).
    """
    _, rest = complementary_pairs(counts, capacity)
    return wcc_holds(rest, capacity)


def without_waste(blocks: Sequence[Group], capacity: int) -> list[Group]:
    """Nodes of blocks whose sizes are powers of two, largest first: all full, but for one at most."""
    groups: list[Group] = []
    open_node: tuple[int, ...] = ()
    for block, blocks_left in blocks:
        width, count = sum(block), blocks_left
        # What is free on the open node is a multiple of every later width.
        taken = min(count, (capacity - sum(open_node)) // width if open_node else 0)
        open_node += block * taken
        count -= taken
        if sum(open_node) == capacity:
            groups.append((open_node, 1))
            open_node = ()
        if count:
            per_node = capacity // width
            groups.append((block * per_node, count // per_node))
            open_node += block * (count % per_node)
    return [*groups, (open_node, 1)]
