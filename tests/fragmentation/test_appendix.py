"""The paper's algorithm for Φ*: an upper bound, exact under the condition, too high outside it."""

from compass_abs.fragmentation import inherent, inherent_heuristic, wcc_holds
from tests.fragmentation.oracles import multisets


def test_heuristic_of_3_3_2_1_is_too_high() -> None:
    counts = [0, 1, 1, 2, 0, 0, 0, 0, 0]
    assert (inherent_heuristic(counts), inherent(counts)) == (2, 1)


def test_heuristic_is_exact_under_the_condition_and_often_too_high_outside_it() -> None:
    too_high = outside = 0
    for counts in multisets(40, 7):
        counts.append(0)
        heuristic, exact = inherent_heuristic(counts), inherent(counts)
        assert heuristic >= exact
        if wcc_holds(counts):
            assert heuristic == exact
        else:
            outside += 1
            too_high += heuristic > exact
    # The figures of docs/fragmentation.md.
    assert (too_high, outside) == (3419, 27936)
