"""The door to HiGHS: what a vertex of the relaxation gives away, and what happens when it doesn't."""

import random
from collections.abc import Sequence

import pytest

from compass_abs.fragmentation import inherent, integer_program
from compass_abs.fragmentation.group_relaxation import Lifted
from compass_abs.fragmentation.integer_program import IntegerProgram, solve
from compass_abs.fragmentation.pattern_program import fewest_partial


def demands_of_eights(many: int) -> list[list[int]]:
    chance = random.Random(8)
    return [[0, *(chance.choice((0, chance.randint(0, 50))) for _ in range(8))] for _ in range(many)]


@pytest.mark.parametrize("margin", [-2, -1, 0, 2])
def test_optimum_does_not_depend_on_where_the_first_search_starts(margin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A negative margin starts it beyond the optimum, so that it must be found out and everything searched.
    monkeypatch.setattr(integer_program, "_MARGIN", margin)
    monkeypatch.setattr(integer_program, "lift", bound_alone)
    for counts in demands_of_eights(60):
        assert fewest_partial(counts, 8).partial_nodes == inherent(counts)


def test_optimum_without_anything_from_the_vertex_is_found_by_searching_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(integer_program, "lift", lambda *arguments: None)
    for counts in demands_of_eights(20):
        assert fewest_partial(counts, 8).partial_nodes == inherent(counts)


def bound_alone(matrix: object, costs: Sequence[int], right: Sequence[int], basic: Sequence[int]) -> Lifted | None:
    lifted = LIFT(matrix, costs, right, basic)
    return None if lifted is None else Lifted(lifted.bound, None)


LIFT = integer_program.lift


def test_program_without_an_assignment_has_no_answer() -> None:
    program = IntegerProgram([1])
    program.add_row({0: 2}, -3)
    assert solve(program) is None
    program = IntegerProgram([1])
    program.add_row({0: 2}, 3)
    assert solve(program) is None


def test_program_without_unknowns_is_answered_by_its_rows() -> None:
    program = IntegerProgram()
    program.add_row({}, 0)
    assert solve(program) == []
    program.add_row({}, 1)
    assert solve(program) is None


def test_answer_one_above_the_bound_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integer_program, "lift", bound_alone)
    monkeypatch.setattr(integer_program, "_MARGIN", -1)
    # x = 3, y = 0 costs 3; from (4, ...) on nothing costs less than 4.
    program = IntegerProgram([1, 2])
    program.add_row({0: 1, 1: 1}, 3)
    assert solve(program) == [3, 0]
