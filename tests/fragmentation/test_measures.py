"""F, F*, SIF and their neighbours on states, through arrivals, departures and node events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_abs.fragmentation import (
    avoidable_partial_nodes,
    avoidable_used_nodes,
    gross,
    inherent,
    inherent_share,
    minimum_used,
    reclaimable,
    sif,
    survey,
    witness,
)
from compass_abs.model import ClusterState, Job, NodeStatus


def two_open_halves() -> ClusterState:
    """The paper's example of avoidable partial nodes (section 3.1): two nodes that each lost a block of 4."""
    state = ClusterState(4)
    state.place(Job("a", 2, 4), [0, 1])
    state.place(Job("b", 2, 4), [0, 1])
    state.release("a")
    return state


def test_two_halves_are_avoidable_altogether() -> None:
    state = two_open_halves()
    assert (gross(state), inherent_share(state), sif(state)) == (0.5, 0.0, 0.5)
    assert (avoidable_partial_nodes(state), avoidable_used_nodes(state)) == (2, 1)


def test_two_halves_merged_leave_nothing() -> None:
    state = two_open_halves()
    instance = next(iter(state.nodes[1].contents))
    state.move(instance, 0)
    assert (gross(state), sif(state), avoidable_partial_nodes(state), avoidable_used_nodes(state)) == (0, 0, 0, 0)


def test_sevens_alone_are_unavoidable() -> None:
    state = ClusterState(4)
    state.place(Job("a", 3, 7), [0, 1, 2])
    assert (gross(state), inherent_share(state), sif(state)) == (0.75, 0.75, 0)


def test_measures_of_a_pool_without_nodes_that_are_up_are_zero() -> None:
    state = two_open_halves()
    for node in range(4):
        state.set_status(f"n{node}", NodeStatus.CORDONED)
    assert gross(state) == inherent_share(state) == sif(state) == reclaimable(state).sif == 0
    described = survey(state)
    assert (described.nodes, described.nodes_not_up, described.sif) == (0, 4, 0)
    assert all(gang.now == gang.repacked == 0 for gang in described.largest_gangs)


def test_cordoned_nodes_count_in_nothing() -> None:
    state = two_open_halves()
    state.set_status("n0", NodeStatus.CORDONED)
    assert (gross(state), inherent_share(state), sif(state)) == (1 / 3, 1 / 3, 0)


@given(st.lists(st.lists(st.integers(1, 8), max_size=8), min_size=1, max_size=12))
def test_no_packing_has_fewer_partial_or_used_nodes_than_the_minima(nodes: list[list[int]]) -> None:
    state = ClusterState(len(nodes))
    for index, items in enumerate(nodes):
        for number, gpus in enumerate(items):
            if gpus <= state.nodes[index].free:
                state.place(Job(f"{index}-{number}", 1, gpus), [index])
    assert avoidable_partial_nodes(state) >= 0
    assert avoidable_used_nodes(state) >= 0
    best = witness(state.demand)
    assert best.used_nodes == minimum_used(state.demand) <= len(nodes)
    assert best.partial_nodes == inherent(state.demand)
    described = survey(state)
    assert described.sif == pytest.approx(described.gross - described.inherent)
    assert all(gang.repacked >= gang.now for gang in described.largest_gangs)
