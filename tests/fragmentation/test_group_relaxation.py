"""What a vertex of the relaxation says of whole numbers, against all of them."""

import random
from itertools import combinations, product

import numpy
import pytest

from compass_abs.fragmentation import group_relaxation
from compass_abs.fragmentation.group_relaxation import Lifted, lift


def program(chance: random.Random) -> tuple[numpy.ndarray, list[int], list[int]]:
    """Two rows, a few columns, and a right side that some assignment attains."""
    columns = chance.randint(2, 4)
    matrix = numpy.array([[chance.randint(1, 4) for _ in range(columns)] for _ in range(2)], dtype=numpy.int64)
    right = matrix @ numpy.array([chance.randint(0, 4) for _ in range(columns)])
    return matrix, [chance.randint(0, 3) for _ in range(columns)], right.tolist()


def cheapest(matrix: numpy.ndarray, costs: list[int], right: list[int]) -> int:
    """By dynamic programming: every column counts in the first row, so that nothing comes back to itself."""
    best = {(0, 0): 0}
    for first, second in product(range(right[0] + 1), range(right[1] + 1)):
        before = [
            best[first - a, second - b] + cost
            for (a, b), cost in zip(matrix.T.tolist(), costs, strict=True)
            if (first - a, second - b) in best
        ]
        if before:
            best[first, second] = min(before)
    return best[right[0], right[1]]


def test_lift_of_every_basis_bounds_all_assignments_and_its_answer_is_the_best() -> None:
    chance = random.Random(3)
    answers = bounds = refused = 0
    for _ in range(150):
        matrix, costs, right = program(chance)
        expected = cheapest(matrix, costs, right)
        for basic in combinations(range(matrix.shape[1] + 2), 2):
            lifted = lift(matrix, costs, right, basic)
            if lifted is None:
                refused += 1
                continue
            assert lifted.bound <= expected
            bounds += lifted.answer is None
            if lifted.answer is not None:
                answers += 1
                assert min(lifted.answer) >= 0
                assert (matrix @ numpy.array(lifted.answer) == right).all()
                assert sum(c * n for c, n in zip(costs, lifted.answer, strict=True)) == lifted.bound == expected
    assert min(answers, bounds, refused) > 50


def test_lift_that_searches_no_group_still_bounds_by_the_relaxation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_relaxation, "_LARGEST_ORDER", 0)
    # 2x + 3y = 7 at the vertex x = 3½: at least 3½, so 4, and no more is known.
    matrix = numpy.array([[2, 3]], dtype=numpy.int64)
    assert lift(matrix, [1, 2], [7], [0]) == Lifted(4, None)


def test_lift_goes_from_a_vertex_to_the_nearest_whole_numbers() -> None:
    matrix = numpy.array([[2, 3]], dtype=numpy.int64)
    assert lift(matrix, [1, 2], [7], [0]) == Lifted(4, [2, 1])
    # Of 1 there is no packing by 2s and 3s: the 3 needs a 2 less than none.
    assert lift(matrix, [1, 2], [1], [0]) == Lifted(1, None)


def test_lift_of_right_sides_beyond_a_word_is_exact() -> None:
    matrix = numpy.array([[2, 3]], dtype=numpy.int64)
    assert lift(matrix, [1, 2], [2 * 10**30 + 1], [0]) == Lifted(10**30 + 1, [10**30 - 1, 1])


def test_lift_of_columns_that_are_no_optimal_vertex_says_nothing() -> None:
    matrix = numpy.array([[2, 4]], dtype=numpy.int64)
    assert lift(matrix, [3, 1], [8], [0]) is None  # 4s are cheaper
    assert lift(numpy.array([[0, 1]], dtype=numpy.int64), [1, 1], [8], [0]) is None  # no basis at all
