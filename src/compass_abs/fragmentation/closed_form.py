"""Φ* and U* of nodes of up to 8 GPUs, in constant time. The proof of every step is in docs/fragmentation.md.

In short: two instances that fill a node between them may share one in some best packing (lemma 1), so such pairs
are taken out first. Of {7, 1}, of {6, 2} and of {5, 3} at most one size is left then, and of size 4 at most one
instance. What is left is one of four cases (lemmas 2, 3, 4 and 6), in each of which a packing attains both minima.
"""

from collections.abc import Sequence

#: Capacities for which the closed forms are proven; the smaller ones by counting in units of 8 / capacity GPUs.
PROVEN_CAPACITIES = (1, 2, 4, 8)

Residue = tuple[int, int, int, int, int, int, int, int]


def in_eighths(counts: Sequence[int], capacity: int) -> Sequence[int]:
    """The same demand on nodes of 8 GPUs: sizes times 8 / capacity, which changes what fits where in nothing."""
    if capacity == 8:
        return counts
    scaled = [0] * 9
    scaled[:: 8 // capacity] = counts
    return scaled


def without_pairs(counts: Sequence[int]) -> Residue:
    """How many nodes 8s and complementary pairs fill, and what is left of the sizes 1 to 7 (lemma 1)."""
    _, n1, n2, n3, n4, n5, n6, n7, n8 = counts
    with7 = n1 if n1 < n7 else n7
    with6 = n2 if n2 < n6 else n6
    with5 = n3 if n3 < n5 else n5
    full = n8 + with7 + with6 + with5 + (n4 >> 1)
    return full, n1 - with7, n2 - with6, n3 - with5, n4 & 1, n5 - with5, n6 - with6, n7 - with7


def inherent_of_8(counts: Sequence[int]) -> int:
    """Φ*: the fewest partial nodes of 8 GPUs in any packing."""
    _, n1, n2, n3, n4, n5, n6, n7 = without_pairs(counts)
    if n5:
        return n7 + (_with_fives_and_twos(n1, n2, n4, n5) if n2 else _one_to_a_node(n1, n4, n5, n6))
    triples = min(n2, n3 >> 1)
    n2 -= triples
    n3 -= triples << 1
    if n2:
        rest = (n1 + 2 * n2 + 3 * n3 + 4 * n4) & 7
        # Lemma 6: one partial node would have to hold a single GPU, but nobody asks for a single one.
        return n7 + (2 if rest == 1 and not n1 else rest > 0)
    return n7 + _two_to_a_node(n1, n3, n4, n6)


def minimum_used_of_8(counts: Sequence[int]) -> int:
    """U*: the fewest used nodes of 8 GPUs in any packing."""
    full, n1, n2, n3, n4, n5, n6, n7 = without_pairs(counts)
    total = n1 + 2 * n2 + 3 * n3 + 4 * n4 + 5 * n5 + 6 * n6
    twos = n2 - n5 if n2 > n5 else 0
    by_items = n6 + n5 + max((n3 + n4 + 1) >> 1, (2 * n4 + twos + 3) >> 2)
    return full + n7 + max(by_items, (total + 7) >> 3)


def _two_to_a_node(n1: int, n3: int, n4: int, n6: int) -> int:
    """Lemma 2: each node takes one 6, or two of the 3s and the 4; 1s fill gaps."""
    nodes = n6 + ((n3 + n4 + 1) >> 1)
    gaps = 8 * nodes - 6 * n6 - 3 * n3 - 4 * n4
    if n1 >= gaps:
        return int((n1 - gaps) & 7 > 0)
    # {6}, {3, 3} take two 1s each; {4, 3} takes one; the half-filled node, if any, is filled last.
    doubles = n6 + ((n3 + n4) >> 1)
    filled = (n1 + (n4 if n3 else 0)) >> 1
    return nodes - min(filled, doubles)


def _one_to_a_node(n1: int, n4: int, n5: int, n6: int) -> int:
    """Lemma 3: each 6, 5, 4 has a node to itself; 1s fill the smallest gaps first."""
    nodes = n6 + n5 + n4
    gaps = 2 * n6 + 3 * n5 + 4 * n4
    if n1 >= gaps:
        return int((n1 - gaps) & 7 > 0)
    sixes = min(n6, n1 >> 1)
    return nodes - sixes - min(n5, (n1 - 2 * sixes) // 3)


def _with_fives_and_twos(n1: int, n2: int, n4: int, n5: int) -> int:
    """Lemma 4: a 5 is filled by {2, 1} or {1, 1, 1}; what is left of 2s and the 4 packs without waste."""
    with_two = min(n5, n2, n1)
    open_fives = n5 - with_two - min(n5 - with_two, (n1 - with_two) // 3)
    if not open_fives:
        return int((n1 + 2 * n2 + 4 * n4 + 5 * n5) & 7 > 0)
    if n1 > n2:
        return open_fives + n4
    # No 1 is left. Open 5s absorb so many 2s that the others and the 4 fill their nodes, where they can.
    twos = n2 - n1
    return open_fives + ((twos + 2 * n4) & 3 > min(open_fives, twos))
