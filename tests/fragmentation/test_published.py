"""Others' measures, against their definitions taken literally."""

import random

import pytest

from compass_abs.fragmentation import DemandError, fgd, fgd_node_table, free_on_partial_ratio, unusable_free_ratio
from compass_abs.model import ClusterState, Job


def frag_go(milli_left: list[int], popularity: list[float]) -> float:
    """FGD's NodeGpuShareFragAmountScore, line by line: milli-GPUs of a node that are fragments, by expectation."""
    amount = 0.0
    for gpus, weight in enumerate(popularity):
        if not gpus or not weight:
            continue
        milli = 1000
        can_run = sum(left >= milli for left in milli_left) >= gpus
        share = weight / sum(popularity)
        if can_run:
            amount += share * sum(left for left in milli_left if left < milli)
        else:
            amount += share * sum(milli_left)
    return amount


@pytest.mark.parametrize("capacity", [1, 2, 4, 8, 16])
def test_fgd_table_equals_the_published_code_taken_literally(capacity: int) -> None:
    chance = random.Random(capacity)
    for _ in range(50):
        popularity = [0.0, *(chance.choice((0.0, chance.random())) for _ in range(capacity))]
        popularity[capacity] += 0.01
        table = fgd_node_table(popularity, capacity)
        for free in range(capacity + 1):
            milli_left = [1000] * free + [0] * (capacity - free)
            assert 1000 * table[free] == pytest.approx(frag_go(milli_left, popularity))


def test_fgd_table_of_a_known_mix_is_as_worked_out_by_hand() -> None:
    table = fgd_node_table([0, 0.35, 0.10, 0, 0.05, 0, 0, 0, 0.50])
    assert table == pytest.approx((0, 0.65, 1.1, 1.65, 2, 2.5, 3, 3.5, 0))


def test_fgd_of_a_pool_is_the_sum_over_its_nodes() -> None:
    state = ClusterState(3)
    state.place(Job("a", 2, 5), [0, 1])
    assert fgd(state, [0, 0.35, 0.10, 0, 0.05, 0, 0, 0, 0.50]) == pytest.approx(2 * 1.65)


@pytest.mark.parametrize(
    ("popularity", "named"),
    [
        ([0] * 9, "0 for every size"),
        ([0, 1], "2 entries"),
        ([0, -1, *[1] * 7], r"popularity\[1\] is -1"),
        ([0, float("nan"), *[1] * 7], r"popularity\[1\] is nan"),
        ([0, float("inf"), *[1] * 7], r"popularity\[1\] is inf"),
        ([1] * 9, r"popularity\[0\] is 1"),
        ([0, True, *[1] * 7], r"popularity\[1\] is True"),
    ],
)
def test_fgd_of_bad_popularity_names_the_value(popularity: list[float], named: str) -> None:
    with pytest.raises(DemandError, match=named):
        fgd_node_table(popularity)


def test_free_gpu_ratios_of_a_mixed_pool_are_as_worked_out_by_hand() -> None:
    state = ClusterState(3)
    state.place(Job("a", 1, 5), [0])
    state.place(Job("b", 1, 3), [1])
    # 3, 5 and 8 free.
    assert free_on_partial_ratio(state) == pytest.approx(0.5)
    assert unusable_free_ratio(state, 1) == 0
    assert unusable_free_ratio(state, 4) == pytest.approx(1 - 12 / 16)
    assert unusable_free_ratio(state, 8) == pytest.approx(0.5)


def test_free_gpu_ratios_of_a_full_pool_are_zero() -> None:
    state = ClusterState(1, capacity=2)
    state.place(Job("a", 1, 2), [0])
    assert free_on_partial_ratio(state) == unusable_free_ratio(state, 1) == 0
