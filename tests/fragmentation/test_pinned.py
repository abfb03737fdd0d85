"""What moves could reclaim around pinned instances, against every way to put the others back."""

import random
from collections.abc import Iterator

import pytest

from compass_abs.fragmentation import (
    HeldNodes,
    avoidable_partial_nodes,
    fewest_partial_around,
    held_nodes,
    inherent,
    largest_gang_around,
    largest_gang_repacked,
    minimum_used,
    reclaimable,
    sif,
)
from compass_abs.model import ClusterState, Job, NodeStatus


def every_repacking(loads: tuple[int, ...], items: tuple[int, ...], capacity: int) -> Iterator[tuple[int, ...]]:
    """Loads of the nodes after each way to place the items, one after the other, up to order."""
    reached = {tuple(sorted(loads))}
    for gpus in items:
        reached = {
            tuple(sorted((*state[:k], load + gpus, *state[k + 1 :])))
            for state in reached
            for k, load in enumerate(state)
            if load + gpus <= capacity
        }
    yield from sorted(reached)


def brute_fewest_partial(loads: tuple[int, ...], items: tuple[int, ...], capacity: int) -> int | None:
    return min(
        (sum(0 < load < capacity for load in state) for state in every_repacking(loads, items, capacity)),
        default=None,
    )


def held_of(loads: tuple[int, ...], items: tuple[int, ...], capacity: int) -> HeldNodes:
    return HeldNodes(
        tuple(loads.count(load) for load in range(capacity + 1)),
        tuple(items.count(g) if g else 0 for g in range(capacity + 1)),
    )


def check(loads: tuple[int, ...], items: tuple[int, ...], capacity: int) -> bool:
    """Compares with brute force; says whether the items fit at all."""
    expected = brute_fewest_partial(loads, items, capacity)
    if expected is None:
        return False
    held = held_of(loads, items, capacity)
    assert fewest_partial_around(held, capacity) == expected, (loads, items)
    gpus = 1 + sum(loads) % capacity
    more = largest_gang_around(held, gpus, capacity)
    assert any(every_repacking(loads, (*items, *[gpus] * more), capacity)), (loads, items, gpus, more)
    assert not any(every_repacking(loads, (*items, *[gpus] * (more + 1)), capacity)), (loads, items, gpus, more)
    return True


@pytest.mark.parametrize("capacity", [1, 2, 4, 8, 16])
def test_fewest_partial_and_largest_gang_on_random_clusters_equal_brute_force(capacity: int) -> None:
    chance = random.Random(capacity)
    compared = 0
    for _ in range(160):
        loads = tuple(chance.choice((0, 0, *range(capacity + 1))) for _ in range(chance.randint(1, 4)))
        items: tuple[int, ...] = ()
        while chance.random() < 0.85:
            items += (chance.randint(1, capacity),)
        compared += check(loads, items, capacity)
    assert compared > 40


def everything_on_two_nodes() -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    def items_within(total: int, largest: int) -> Iterator[tuple[int, ...]]:
        yield ()
        for gpus in range(1, min(total, largest) + 1):
            for rest in items_within(total - gpus, gpus):
                yield (gpus, *rest)

    for a in range(5):
        for b in range(a + 1):
            for items in items_within(8 - a - b, 4):
                yield (a, b), items


def test_fewest_partial_of_everything_on_two_nodes_of_four_equals_brute_force() -> None:
    compared = [check(loads, items, 4) for loads, items in everything_on_two_nodes()]
    assert sum(compared) > 150


def random_pool(seed: int, pinned_share: float, nodes: int = 30) -> ClusterState:
    chance = random.Random(seed)
    state = ClusterState(nodes)
    for node in range(nodes):
        number = 0
        while state.nodes[node].free and chance.random() < 0.8:
            gpus = chance.randint(1, state.nodes[node].free)
            job = Job(f"{node}-{number}", 1, gpus, movable=chance.random() >= pinned_share)
            state.place(job, [node])
            number += 1
    return state


@pytest.mark.parametrize("seed", range(12))
def test_reclaimable_with_nothing_pinned_is_all_that_is_avoidable(seed: int) -> None:
    state = random_pool(seed, pinned_share=0)
    answer = reclaimable(state)
    assert answer.fewest_partial_nodes == inherent(state.demand)
    assert answer.nodes == avoidable_partial_nodes(state)
    assert answer.sif == sif(state)


@pytest.mark.parametrize("seed", range(12))
def test_reclaimable_with_everything_pinned_is_nothing(seed: int) -> None:
    state = random_pool(seed, pinned_share=1)
    assert reclaimable(state).nodes == 0
    assert reclaimable(state).sif == 0
    for gpus in range(1, 9):
        assert largest_gang_around(held_nodes(state), gpus, 8) == state.room(gpus)


@pytest.mark.parametrize("seed", range(12))
def test_reclaimable_with_some_pinned_lies_between(seed: int) -> None:
    state = random_pool(seed, pinned_share=0.3)
    answer = reclaimable(state)
    assert 0 <= answer.nodes <= avoidable_partial_nodes(state)
    for gpus in range(1, 9):
        around = largest_gang_around(held_nodes(state), gpus, 8)
        assert state.room(gpus) <= around <= largest_gang_repacked(state.demand, 30, gpus)


def test_reclaimable_of_two_pinned_halves_is_nothing_although_avoidable() -> None:
    state = ClusterState(3)
    state.place(Job("a", 2, 4, movable=False), [0, 1])
    assert avoidable_partial_nodes(state) == 2
    assert reclaimable(state).nodes == 0


def test_reclaimable_counts_only_nodes_that_are_up() -> None:
    state = ClusterState(3)
    state.place(Job("a", 1, 4), [0])
    state.place(Job("b", 1, 4), [1])
    state.place(Job("c", 1, 3, movable=False), [2])
    state.set_status("n2", NodeStatus.CORDONED)
    answer = reclaimable(state)
    assert (answer.partial_nodes, answer.fewest_partial_nodes, answer.nodes, answer.sif) == (2, 0, 2, 1.0)


def test_largest_gang_around_nothing_equals_bisection_on_used_nodes() -> None:
    chance = random.Random(5)
    for _ in range(20):
        counts = [0, *(chance.randint(0, 40) for _ in range(8))]
        nodes = minimum_used(counts) + chance.randint(0, 30)
        held = HeldNodes((nodes, *[0] * 8), tuple(counts))
        for gpus in range(1, 9):
            assert largest_gang_around(held, gpus, 8) == largest_gang_repacked(counts, nodes, gpus)
