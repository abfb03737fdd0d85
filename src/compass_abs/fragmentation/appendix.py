"""The paper's own algorithm for Φ*, for study only: outside the condition it is no more than an upper bound."""

from collections.abc import Sequence

from compass_abs.fragmentation.demand import check_counts, total_gpus, wcc_holds


def inherent_heuristic(counts: Sequence[int]) -> int:
    """What algorithm 2 of appendix C calls Φ* on nodes of 8 GPUs: 2 for {3, 3, 2, 1}, which one node and a 1 hold.

    Never use it to compute SIF, which would come out too small. Its integer program (line 12) has few cases: the
    first packing leaves one node open at most, and instances that found no partner never fill a node of their own,
    for a 5 is left over only when no 3 is.
    """
    check_counts(counts, 8)
    if wcc_holds(counts):
        return int(total_gpus(counts) % 8 > 0)
    _, ones, twos, threes, fours, fives, sixes, sevens, _ = counts
    # Lines 3 to 6: partners in the order printed. Those that need no 1 are found even when none is left.
    with_three = min(fives, threes)
    fives, threes = fives - with_three, threes - with_three
    with_two = min(fives, twos, ones)
    fives, twos, ones = fives - with_two, twos - with_two, ones - with_two
    with_ones = min(fives, ones // 3)
    fives, ones = fives - with_ones, ones - 3 * with_ones
    with_two = min(sixes, twos)
    sixes, twos = sixes - with_two, twos - with_two
    with_ones = min(sixes, ones // 2)
    sixes, ones = sixes - with_ones, ones - 2 * with_ones
    with_one = min(sevens, ones)
    sevens, ones = sevens - with_one, ones - with_one
    blocks = min(threes, ones)
    threes, ones = threes - blocks, ones - blocks
    # Line 11: sizes that divide 8 pack without waste, so that one node at most is open.
    open_room = -(ones + 2 * twos + 4 * (fours + blocks)) % 8
    # Line 12: what goes to the open node, and every other one on nodes of their own, 3s two by two.
    alone = sevens + sixes + fives
    best = alone + (threes + 1) // 2 + (open_room > 0)
    for gpus, waiting in ((3, threes), (5, fives), (6, sixes), (7, sevens)):
        for taken in range(1, min(waiting, open_room // gpus) + 1):
            others = (threes - taken + 1) // 2 + alone if gpus == 3 else (threes + 1) // 2 + alone - taken
            best = min(best, others + (open_room > gpus * taken))
    return best
