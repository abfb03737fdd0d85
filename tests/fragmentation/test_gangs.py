"""The largest gang that fits, now and repacked."""

import pytest

from compass_abs.fragmentation import largest_gang, largest_gang_repacked
from compass_abs.model import ClusterState, Job
from tests.fragmentation.oracles import best_on_small_clusters


def test_largest_gang_now_counts_whole_instances_on_each_node() -> None:
    state = ClusterState(3)
    state.place(Job("a", 1, 5), [0])
    state.place(Job("b", 1, 3), [1])
    state.place(Job("c", 1, 6), [2])
    # The paper's example: 3, 5 and 2 free, and no two instances of 4.
    assert [largest_gang(state, g) for g in range(1, 9)] == [10, 4, 2, 1, 1, 0, 0, 0]


@pytest.mark.parametrize("capacity", [1, 2, 4, 8])
def test_largest_gang_repacked_of_every_demand_on_three_nodes_equals_brute_force(capacity: int) -> None:
    fits = best_on_small_clusters(3, capacity)
    for counts in list(fits)[:: max(1, len(fits) // 400)]:
        for gpus in range(1, capacity + 1):
            more = 0
            while (*counts[:gpus], counts[gpus] + more + 1, *counts[gpus + 1 :]) in fits:
                more += 1
            assert largest_gang_repacked(counts, 3, gpus, capacity) == more, (counts, gpus)


def test_largest_gang_repacked_of_a_demand_that_does_not_fit_is_none() -> None:
    assert largest_gang_repacked([0, 0, 0, 0, 0, 3, 0, 0, 0], 2, 1) == 0
    assert largest_gang_repacked([0] * 16 + [3], 2, 1, 16) == 0
    assert largest_gang_repacked([0] * 9, 0, 1) == 0


def test_largest_gang_repacked_on_nodes_of_sixteen_equals_that_of_halves() -> None:
    counts = [0, 5, 3, 7, 1, 2, 9, 0, 4]
    doubled = [0] * 17
    doubled[2::2] = counts[1:]
    for gpus in range(1, 9):
        assert largest_gang_repacked(doubled, 40, 2 * gpus, 16) == largest_gang_repacked(counts, 40, gpus)
