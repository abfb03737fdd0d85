"""The door to HiGHS: an answer near the relaxation counts only when it meets the bound."""

import random

import pytest

from compass_abs.fragmentation import inherent, integer_program
from compass_abs.fragmentation.integer_program import UNBOUNDED, IntegerProgram, solve
from compass_abs.fragmentation.pattern_program import fewest_partial


@pytest.mark.parametrize("margin", [-2, -1, 0, 2])
def test_optimum_does_not_depend_on_where_the_first_search_starts(margin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A negative margin starts it beyond the optimum, so that it must be found out and everything searched.
    monkeypatch.setattr(integer_program, "_MARGIN", margin)
    chance = random.Random(8)
    for _ in range(60):
        counts = [0, *(chance.choice((0, chance.randint(0, 50))) for _ in range(8))]
        assert fewest_partial(counts, 8).partial_nodes == inherent(counts)


def test_program_without_an_assignment_has_no_answer() -> None:
    program = IntegerProgram([1])
    program.add_row({0: 2}, 3, 3)
    assert solve(program) is None
    program = IntegerProgram([1])
    program.add_row({0: 1}, 3, 2)
    assert solve(program) is None


def test_program_without_unknowns_is_answered_by_its_rows() -> None:
    program = IntegerProgram()
    program.add_row({}, 0, UNBOUNDED)
    assert solve(program) == []
    program.add_row({}, 1, UNBOUNDED)
    assert solve(program) is None


def test_answer_one_above_the_bound_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(integer_program, "_MARGIN", -1)
    program = IntegerProgram([1])
    program.add_row({0: 1}, 3, UNBOUNDED)
    assert solve(program) == [3]
