"""Nodes of 16 GPUs, where the integer program answers: against dynamic programming and against smaller nodes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_abs.fragmentation import DemandError, inherent, integer_program, minimum_used, patterns_within, witness
from compass_abs.fragmentation.pattern_program import fewest_partial, fewest_used
from tests.fragmentation.oracles import DynamicProgram, contents, multisets


def check_against_dynamic_program(counts: list[int], program: DynamicProgram) -> None:
    front = program.front(counts)
    fewest_partial_first, fewest_used_first = min(front), min(front, key=lambda point: point[::-1])
    packing = fewest_partial(counts, 16)
    packing.validate(counts)
    assert (packing.partial_nodes, packing.used_nodes) == fewest_partial_first, counts
    tightest = fewest_used(counts, 16)
    tightest.validate(counts)
    assert tightest.used_nodes == fewest_used_first[1], counts
    assert (inherent(counts, 16), minimum_used(counts, 16)) == (fewest_partial_first[0], fewest_used_first[1]), counts


def test_minima_of_every_small_multiset_equal_dynamic_programming() -> None:
    program = DynamicProgram(16)
    for counts in multisets(14, 14):
        check_against_dynamic_program([*counts, 0, 0], program)


def test_minima_of_random_multisets_equal_dynamic_programming() -> None:
    program = DynamicProgram(16)
    chance = random.Random(16)
    for _ in range(60):
        counts = [0] * 17
        for _ in range(chance.randint(3, 14)):
            counts[chance.randint(2, 12)] += 1
        check_against_dynamic_program(counts, program)


@pytest.mark.slow
def test_minima_of_every_multiset_up_to_24_gpus_equal_dynamic_programming() -> None:
    program = DynamicProgram(16)
    for counts in multisets(24, 16):
        check_against_dynamic_program(counts, program)


def check_against_the_solver_alone(samples: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random demands of up to a few thousand instances a size, with nothing told by the relaxation's vertex."""
    chance = random.Random(160)
    demands = [
        [0, *(chance.choice((0, chance.randint(0, 9), chance.randint(0, 3000))) for _ in range(16))]
        for _ in range(samples)
    ]
    minima = [(inherent(counts, 16), minimum_used(counts, 16)) for counts in demands]
    monkeypatch.setattr(integer_program, "lift", lambda *arguments: None)
    for counts, expected in zip(demands, minima, strict=True):
        assert (inherent(counts, 16), minimum_used(counts, 16)) == expected, counts


def test_minima_of_large_demands_equal_those_of_the_solver_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    check_against_the_solver_alone(20, monkeypatch)


@pytest.mark.slow
def test_minima_of_many_large_demands_equal_those_of_the_solver_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    check_against_the_solver_alone(200, monkeypatch)


@given(st.lists(st.one_of(st.integers(0, 4), st.integers(0, 100_000)), min_size=8, max_size=8))
def test_minima_of_even_sizes_equal_those_of_half_the_sizes_on_half_the_node(sizes: list[int]) -> None:
    doubled = [0] * 17
    doubled[2::2] = sizes
    packing = witness(doubled, 16)
    packing.validate(doubled)
    assert packing.partial_nodes == inherent(doubled, 16) == inherent([0, *sizes])
    assert packing.used_nodes == minimum_used(doubled, 16) == minimum_used([0, *sizes])


def test_fewest_partial_and_fewest_used_can_exclude_each_other() -> None:
    # Six 3s, three 7s, an 8 and six 12s: {7,3,3,3} twice fills two nodes, but leaves the 12s no 3 to share with.
    counts = [0] * 17
    counts[3], counts[7], counts[8], counts[12] = 6, 3, 1, 6
    packing = witness(counts, 16)
    assert (packing.partial_nodes, packing.used_nodes) == (7, 9)
    assert (inherent(counts, 16), minimum_used(counts, 16)) == (7, 8)
    assert DynamicProgram(16).front(counts) == ((7, 9), (8, 8))


def test_patterns_of_each_capacity_are_all_contents_of_a_node() -> None:
    for capacity, known in ((1, 2), (2, 4), (4, 12), (8, 67), (16, 915)):
        patterns = patterns_within(capacity)
        assert len(patterns) == len(set(patterns)) == known
        assert sorted(patterns) == sorted(tuple(sorted(items, reverse=True)) for items in contents(capacity))


def test_patterns_of_an_unknown_room_are_refused() -> None:
    with pytest.raises(DemandError, match="32"):
        patterns_within(17)
