"""Φ* and U* of nodes of up to 8 GPUs against all packings, dynamic programming, and the integer program."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_abs.fragmentation import inherent, minimum_used, slot_width, total_gpus, wcc_holds, witness
from compass_abs.fragmentation.pattern_program import fewest_partial, fewest_used
from tests.fragmentation.oracles import DynamicProgram, best_on_small_clusters, multisets

CAPACITIES = (1, 2, 4, 8)
LARGE = st.one_of(st.integers(0, 3), st.integers(0, 30), st.integers(0, 200_000))


def demands(capacity: int) -> st.SearchStrategy[list[int]]:
    return st.lists(LARGE, min_size=capacity, max_size=capacity).map(lambda sizes: [0, *sizes])


def any_demand() -> st.SearchStrategy[tuple[int, list[int]]]:
    return st.sampled_from(CAPACITIES).flatmap(lambda c: st.tuples(st.just(c), demands(c)))


@pytest.mark.parametrize("capacity", CAPACITIES)
def test_minima_of_every_multiset_on_four_nodes_equal_brute_force(capacity: int) -> None:
    best = best_on_small_clusters(4, capacity)
    # Every multiset that fits 4 nodes, of 12 instances and fewer as well as more.
    assert any(sum(counts) <= 12 for counts in best)
    assert max(map(sum, best)) == 4 * capacity
    for counts, (partial, used) in best.items():
        assert (inherent(counts, capacity), minimum_used(counts, capacity)) == (partial, used), counts


def check_against_dynamic_program(total: int, capacity: int, sizes: int) -> int:
    """Closed forms and witness of every multiset of sizes up to `sizes` and at most `total` GPUs; says how many."""
    program = DynamicProgram(capacity)
    checked = 0
    for counts in multisets(total, sizes):
        counts += [0] * (capacity - sizes)
        front = program.front(counts)
        # One point: a packing attains both minima, whatever number of nodes is allowed.
        assert front == ((inherent(counts, capacity), minimum_used(counts, capacity)),), counts
        packing = witness(counts, capacity)
        packing.validate(counts)
        assert ((packing.partial_nodes, packing.used_nodes),) == front, counts
        checked += 1
    return checked


@pytest.mark.parametrize(("capacity", "total"), [(1, 40), (2, 40), (4, 40), (8, 34)])
def test_minima_of_every_multiset_equal_dynamic_programming_and_one_packing_attains_both(
    capacity: int, total: int
) -> None:
    assert check_against_dynamic_program(total, capacity, capacity) > total


@pytest.mark.slow
def test_minima_of_every_multiset_up_to_64_gpus_equal_dynamic_programming() -> None:
    # An 8 fills a node whatever else there is, so that sizes up to 7 are enough.
    assert check_against_dynamic_program(64, 8, 7) == 694_494


@given(any_demand())
def test_minima_of_large_demands_equal_the_integer_program(demand: tuple[int, list[int]]) -> None:
    capacity, counts = demand
    packing = fewest_partial(counts, capacity)
    packing.validate(counts)
    assert (packing.partial_nodes, packing.used_nodes) == (inherent(counts, capacity), minimum_used(counts, capacity))
    tightest = fewest_used(counts, capacity)
    tightest.validate(counts)
    assert tightest.used_nodes == minimum_used(counts, capacity)


@given(any_demand())
def test_witness_of_large_demands_is_a_packing_that_attains_both_minima(demand: tuple[int, list[int]]) -> None:
    capacity, counts = demand
    packing = witness(counts, capacity)
    packing.validate(counts)
    assert packing.partial_nodes == inherent(counts, capacity)
    assert packing.used_nodes == minimum_used(counts, capacity)
    assert len(packing.patterns) < 20


@given(any_demand(), st.integers(1, 8), st.integers(1, 1000))
def test_minima_with_complementary_pairs_added_grow_by_full_nodes_only(
    demand: tuple[int, list[int]], gpus: int, pairs: int
) -> None:
    capacity, counts = demand
    gpus = min(gpus, capacity)
    more = list(counts)
    more[gpus] += pairs
    if gpus < capacity:
        more[capacity - gpus] += pairs
    assert inherent(more, capacity) == inherent(counts, capacity)
    assert minimum_used(more, capacity) == minimum_used(counts, capacity) + pairs


@given(st.sampled_from((*CAPACITIES, 16)).flatmap(lambda c: st.tuples(st.just(c), demands(c))))
def test_minima_under_the_condition_are_those_of_a_fluid(demand: tuple[int, list[int]]) -> None:
    capacity, counts = demand
    counts[1] += sum((slot_width(g) - g) * n for g, n in enumerate(counts) if g > 1)
    assert wcc_holds(counts, capacity)
    total = total_gpus(counts)
    assert inherent(counts, capacity) == (total % capacity > 0)
    assert minimum_used(counts, capacity) == -(-total // capacity)
    packing = witness(counts, capacity)
    packing.validate(counts)
    assert (packing.partial_nodes, packing.used_nodes) == (total % capacity > 0, -(-total // capacity))


@given(demands(8), st.integers(1, 8))
def test_minimum_used_with_an_instance_more_never_falls(counts: list[int], gpus: int) -> None:
    more = list(counts)
    more[gpus] += 1
    assert minimum_used(counts) <= minimum_used(more) <= minimum_used(counts) + 1


@pytest.mark.parametrize(
    ("counts", "partial", "used"),
    [
        ([0, 1, 1, 2, 0, 0, 0, 0, 0], 1, 2),  # {3,3,2} and {1}: the appendix says 2
        ([0, 2, 0, 0, 0, 0, 0, 1, 0], 1, 2),  # {7,1}, {1}: fewest partial is not fewest used in every packing
        ([0, 0, 3, 1, 0, 0, 0, 0, 0], 2, 2),  # 9 GPUs, but nobody asks for a single one: {2,2,2}, {3}
        ([0, 0, 0, 0, 0, 0, 0, 5, 0], 5, 5),
        ([0, 0, 0, 0, 0, 0, 0, 0, 7], 0, 7),
        ([0] * 9, 0, 0),
    ],
)
def test_minima_of_telling_demands_are_as_worked_out_by_hand(counts: list[int], partial: int, used: int) -> None:
    assert (inherent(counts), minimum_used(counts)) == (partial, used)
