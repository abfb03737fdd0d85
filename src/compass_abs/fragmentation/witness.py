"""P*: a packing that attains Φ*, and U* with it on nodes of up to 8 GPUs. Its cost does not depend on the counts.

Follows the case analysis of `closed_form` step by step; docs/fragmentation.md has the lemmas.
"""

from collections.abc import Sequence

from compass_abs.fragmentation.closed_form import PROVEN_CAPACITIES, in_eighths, without_pairs
from compass_abs.fragmentation.demand import check_counts, slot_width
from compass_abs.fragmentation.packing import Group, Packing, packing_of
from compass_abs.fragmentation.pairs import complementary_pairs, is_fluid, without_waste
from compass_abs.fragmentation.pattern_program import fewest_partial


def witness(counts: Sequence[int], capacity: int = 8) -> Packing:
    """P*: a packing with Φ* partial nodes, and with the fewest used nodes that any such packing has.

    On nodes of up to 8 GPUs those are U* (docs/fragmentation.md); on 16 they can be more.
    """
    check_counts(counts, capacity)
    if capacity not in PROVEN_CAPACITIES:
        if is_fluid(counts, capacity):
            return _fluid(counts, capacity)
        return fewest_partial(counts, capacity)
    eighths = in_eighths(counts, capacity)
    pairs, _ = complementary_pairs(eighths, 8)
    unit = 8 // capacity
    groups = pairs + _of_residue(eighths)
    return packing_of(capacity, [(tuple(gpus // unit for gpus in pattern), nodes) for pattern, nodes in groups])


def _fluid(counts: Sequence[int], capacity: int) -> Packing:
    """Lemma 5, as a packing: every instance with the 1s that make it a block of its slot's width."""
    pairs, rest = complementary_pairs(counts, capacity)
    blocks: list[Group] = []
    for gpus in range(capacity, 1, -1):
        fillers = slot_width(gpus) - gpus
        blocks.append(((gpus, *[1] * fillers), rest[gpus]))
        rest[1] -= fillers * rest[gpus]
    return packing_of(capacity, pairs + without_waste([*blocks, ((1,), rest[1])], capacity))


def _of_residue(counts: Sequence[int]) -> list[Group]:
    _, n1, n2, n3, n4, n5, n6, n7 = without_pairs(counts)
    alone: list[Group] = [((7,), n7)]
    if n5:
        if n2:
            return alone + _fives_and_twos(n1, n2, n4, n5)
        return alone + _fill_with_ones([((6,), n6), ((5,), n5), ((4,), n4)], n1)
    triples = min(n2, n3 >> 1)
    n2 -= triples
    n3 -= triples << 1
    alone.append(((3, 3, 2), triples))
    if n2:
        return alone + (_with_a_three(n1, n2, n4) if n3 else _small(n4, n2, n1))
    if n4 and n3:
        halves: list[Group] = [((4, 3), 1), ((3, 3), (n3 - 1) >> 1), ((3,), (n3 - 1) & 1)]
    else:
        halves = [((3, 3), n3 >> 1), ((3,), n3 & 1), ((4,), n4)]
    return alone + _fill_with_ones([halves[0], ((6,), n6), *halves[1:]], n1)


def _with_a_three(n1: int, n2: int, n4: int) -> list[Group]:
    """Lemma 6: the one 3 that is left beside 2s and at most one 4; with a 1 it is a block of 4, else it waits open."""
    if n1:
        return without_waste([((4,), n4), ((3, 1), 1), ((2,), n2), ((1,), n1 - 1)], 8)
    beside = {5: (2,), 7: (4,) if n4 else (2, 2)}.get((3 + 2 * n2 + 4 * n4) & 7, ())
    return [((3, *beside), 1), *_small(n4 - beside.count(4), n2 - beside.count(2), 0)]


def _fives_and_twos(n1: int, n2: int, n4: int, n5: int) -> list[Group]:
    """Lemma 4, as a packing."""
    with_two = min(n5, n2, n1)
    with_ones = min(n5 - with_two, (n1 - with_two) // 3)
    groups: list[Group] = [((5, 2, 1), with_two), ((5, 1, 1, 1), with_ones)]
    open_fives = n5 - with_two - with_ones
    ones, twos = n1 - with_two - 3 * with_ones, n2 - with_two
    if not open_fives:
        return groups + _small(n4, twos, ones)
    if ones or not twos:
        return [*groups, ((5, *[1] * ones), 1), ((5,), open_fives - 1), ((4,), n4)]
    absorbed = min(open_fives, twos)
    excess = (twos + 2 * n4) & 3
    if excess <= absorbed:
        absorbed -= (absorbed - excess) & 3
    closed = [((5, 2), absorbed), ((5,), open_fives - absorbed)]
    return groups + closed + _small(n4, twos - absorbed, 0)


def _fill_with_ones(groups: Sequence[Group], ones: int) -> list[Group]:
    """The same nodes, filled up with 1s in this order; the 1s that are left on nodes of their own."""
    filled: list[Group] = []
    for pattern, nodes in groups:
        gap = 8 - sum(pattern)
        full = min(nodes, ones // gap)
        filled.append(((*pattern, *[1] * gap), full))
        ones -= full * gap
        if full < nodes:
            # The 1s that do not fill this gap fill none of the later ones, which are no smaller.
            filled += [((*pattern, *[1] * ones), 1), (pattern, nodes - full - 1)]
            ones = 0
    return [*filled, *_small(0, 0, ones)]


def _small(fours: int, twos: int, ones: int) -> list[Group]:
    """4s, 2s and 1s: every node full, but for one at most."""
    return without_waste([((4,), fours), ((2,), twos), ((1,), ones)], 8)
