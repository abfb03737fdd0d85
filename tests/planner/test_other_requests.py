"""Draining, emptying and tidying: the same program, other questions."""

import random
from itertools import product
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compass_abs.fragmentation import inherent, minimum_used
from compass_abs.model import ClusterState, Job, NodeStatus
from compass_abs.planner import (
    Costs,
    Disruption,
    Drain,
    Effort,
    EmptyNodes,
    FewestMoves,
    Impossible,
    Limits,
    Obstacle,
    Plan,
    RequestError,
    Tidy,
    plan,
)
from tests.planner.oracles import carry_out, random_state
from tests.planner.test_plan import spread

SEEDS = st.integers(0, 10**9)


def fewest_moves(state: ClusterState, partial: int | None, used: int | None) -> float:
    """By trying every repacking."""
    items = [(gang.job.gpus, node) for gang in state.gangs.values() for node in gang.nodes]
    best = inf
    for targets in product(range(len(state.nodes)), repeat=len(items)):
        free = [state.capacity] * len(state.nodes)
        for (gpus, _), target in zip(items, targets, strict=True):
            free[target] -= gpus
        moves = sum(node != target for (_, node), target in zip(items, targets, strict=True))
        if min(free) < 0 or moves >= best:
            continue
        partials = sum(0 < f < state.capacity for f in free)
        filled = sum(f < state.capacity for f in free)
        if (partial is None or partials <= partial) and (used is None or filled <= used):
            best = moves
    return best


@settings(max_examples=60)
@given(SEEDS, st.integers(0, 2))
def test_tidy_small_cluster_takes_as_few_moves_as_brute_force(seed: int, which: int) -> None:
    state = random_state(random.Random(seed), 3, 4)
    if sum(len(node.contents) for node in state.nodes) > 8:
        return
    partial = inherent(state.demand, 4) if which != 1 else None
    used = minimum_used(state.demand, 4) if which != 0 else None
    truth = fewest_moves(state, partial, used)
    for effort in Effort:
        found = plan(state, Tidy(partial, used), effort=effort)
        assert isinstance(found, Plan)
        assert found.cost == pytest.approx(truth)
        carry_out(state, found)
        state.move_all(found.moves)
        assert partial is None or state.partial_nodes <= partial
        assert used is None or state.used_nodes <= used
        for move in reversed(found.moves):
            state.move_all([move._replace(source=move.target, target=move.source)])


@settings(max_examples=15)
@given(SEEDS, st.integers(10, 60))
def test_tidy_large_cluster_reaches_both_minima(seed: int, nodes: int) -> None:
    state = random_state(random.Random(seed), nodes)
    targets = inherent(state.demand), minimum_used(state.demand)
    found = plan(state, Tidy(*targets))
    assert isinstance(found, Plan)
    carry_out(state, found)
    state.move_all(found.moves)
    assert (state.partial_nodes, state.used_nodes) == targets


@pytest.mark.parametrize("costs", [FewestMoves(), Disruption()], ids=["moves", "disruption"])
def test_tidy_around_pins_and_prices_single_moves_are_claimed_optimal_only_where_they_are(costs: Costs) -> None:
    chance = random.Random(5)
    single = proven = 0
    for _ in range(20):
        state = random_state(chance, 8, pinned=0.2)
        for target in range(state.partial_nodes + 1):
            best, fast = (plan(state, Tidy(target), costs, effort=effort) for effort in (Effort.EXACT, Effort.FAST))
            assert isinstance(best, Plan) == isinstance(fast, Plan)
            if isinstance(best, Plan) and isinstance(fast, Plan):
                balanced = plan(state, Tidy(target), costs)
                assert isinstance(balanced, Plan)
                assert balanced.cost == pytest.approx(best.cost)
                assert fast.bound - 1e-6 <= best.cost <= fast.cost + 1e-6
                single += len(fast.moves) == 1
                proven += len(fast.moves) == 1 and fast.proven
                carry_out(state, fast)
    assert single > 10
    assert proven > 5 or isinstance(costs, Disruption)


def test_tidy_tidy_cluster_moves_nothing() -> None:
    found = plan(spread("8a", "4b 4c", "3d"), Tidy(partial=1, used=3))
    assert isinstance(found, Plan)
    assert not found.moves


@settings(max_examples=25)
@given(SEEDS, st.sampled_from([NodeStatus.UP, NodeStatus.CORDONED, NodeStatus.DRAINING]), st.booleans())
def test_drain_leaves_nothing_on_the_node_or_proves_that_it_can_not(seed: int, status: NodeStatus, exact: bool) -> None:
    chance = random.Random(seed)
    state = random_state(chance, 12)
    victim = chance.randrange(12)
    if status is not NodeStatus.UP:
        state.set_status(f"n{victim}", status)
    demand = [0] * 9
    for gang in state.gangs.values():
        demand[gang.job.gpus] += gang.job.instances
    found = plan(state, Drain((victim,)), effort=Effort.EXACT if exact else Effort.BALANCED)
    assert isinstance(found, Plan) == (minimum_used(demand) <= 11)
    if isinstance(found, Plan):
        assert all(move.target != victim for move in found.moves)
        carry_out(state, found)
        state.move_all(found.moves)
        assert not state.nodes[victim].contents


def test_drain_pinned_instance_is_impossible() -> None:
    state = ClusterState(2)
    state.place(Job("a", 1, 2, movable=False), [0])
    found = plan(state, Drain((0,)))
    assert isinstance(found, Impossible)
    assert found.obstacle is Obstacle.PINNED


def test_drain_counts_its_own_moves_against_the_limit() -> None:
    state = spread("1a 1b", "4c", "")
    found = plan(state, Drain((0,)), FewestMoves(), Limits(moves=1))
    assert isinstance(found, Impossible)
    assert found.obstacle is Obstacle.BUDGET
    assert found.numbers["moves_needed"] == 2


def test_empty_nodes_gathers_what_is_scattered() -> None:
    state = spread("2a", "2b", "2c", "2d", "8e")
    found = plan(state, EmptyNodes(3))
    assert isinstance(found, Plan)
    assert len(found.moves) == 3
    assert len(found.nodes) == 3
    carry_out(state, found)
    state.move_all(found.moves)
    assert state.empty_nodes == 3
    assert all(not state.nodes[node].contents for node in found.nodes)


def test_empty_nodes_too_many_is_refused_with_numbers() -> None:
    found = plan(spread("5a", "5b", "2c"), EmptyNodes(2))
    assert isinstance(found, Impossible)
    assert found.numbers["short"] == 4


def test_drain_unknown_node_names_it() -> None:
    with pytest.raises(RequestError, match="no node 7"):
        plan(ClusterState(2), Drain((7,)))
