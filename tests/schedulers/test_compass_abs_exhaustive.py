"""COMPASS-ABS on every reachable state of small clusters: the space, whole gangs, conservation, and N·SIF ≤ 2."""

from collections.abc import Callable, Iterator

import pytest

from compass_abs.fragmentation import avoidable_partial_nodes, wcc_holds
from compass_abs.schedulers.anchor_based_space import POOL
from compass_abs.schedulers.compass_abs import CompassAbs
from compass_abs.schedulers.compass_residual import CompassAbsResidual
from tests.schedulers.reachable import Shape, as_listed, both_ways, every_order, explore


def check_every_reachable_state(
    nodes: int, capacity: int, gangs: tuple[int, ...], orders: Callable[[Shape, int], Iterator[Shape]] = as_listed
) -> int:
    transitions = 0
    for scheduler, decision in explore(CompassAbs, nodes, capacity, gangs, orders):
        state = scheduler.state
        scheduler.check_invariants()
        transitions += 1
        if decision.reason is not None:
            assert not decision.migrations
            continue
        assert len(decision.nodes) == decision.job.instances
        if wcc_holds(state.demand, capacity):
            assert avoidable_partial_nodes(state) <= 2, state.nodes
        in_space(scheduler)
    return transitions


def in_space(scheduler: CompassAbs) -> None:
    """Slots fit the node, fillers fit their vacancies, but for the documented dead end in a full cluster."""
    space, state = scheduler.space, scheduler.state
    for node in state.nodes:
        slots = space.slots_on(node.index)
        assert sum(slot.width for slot in slots) <= state.capacity
        for slot in slots:
            assert node.contents[slot.anchor] + len(slot.fillers) <= slot.width
    if space.overfull:
        assert not state.empty_nodes
        assert not space.partial[POOL]
        assert not space.vacancies


@pytest.mark.parametrize(
    ("nodes", "capacity", "gangs"),
    [
        (1, 16, (1,)),
        (1, 8, (1, 2, 3)),
        (2, 8, (1,)),
        (2, 4, (1, 2, 3)),
        (3, 4, (1, 2)),
        (4, 4, (1,)),
        (4, 2, (1, 2, 3)),
        (4, 1, (1, 2)),
    ],
)
def test_compass_abs_every_reachable_state_keeps_the_bound(nodes: int, capacity: int, gangs: tuple[int, ...]) -> None:
    assert check_every_reachable_state(nodes, capacity, gangs) > nodes


@pytest.mark.parametrize(
    ("nodes", "capacity", "gangs"),
    [
        (1, 8, (1, 2)),
        (2, 4, (1, 2)),
        (3, 4, (1,)),
        (3, 2, (1, 2)),
        pytest.param(4, 2, (1, 2), marks=pytest.mark.slow),
        pytest.param(2, 8, (1,), marks=pytest.mark.slow),
    ],
)
def test_compass_abs_every_reachable_state_in_any_order_of_nodes_and_jobs_keeps_the_bound(
    nodes: int, capacity: int, gangs: tuple[int, ...]
) -> None:
    assert check_every_reachable_state(nodes, capacity, gangs, every_order) > nodes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "capacity", "gangs"),
    [(3, 8, (1,)), (2, 8, (1, 2)), (4, 4, (1, 2)), (3, 4, (1, 2, 3)), (1, 16, (1, 2))],
)
def test_compass_abs_every_reachable_state_of_larger_clusters_keeps_the_bound(
    nodes: int, capacity: int, gangs: tuple[int, ...]
) -> None:
    assert check_every_reachable_state(nodes, capacity, gangs, both_ways) > nodes


@pytest.mark.nightly
def test_compass_abs_every_reachable_state_of_four_nodes_of_eight_keeps_the_bound() -> None:
    assert check_every_reachable_state(4, 8, (1,)) > 500_000


def check_residual_fillers_leave_nothing_avoidable(nodes: int, capacity: int, gangs: tuple[int, ...]) -> None:
    for scheduler, decision in explore(CompassAbsResidual, nodes, capacity, gangs):
        state = scheduler.state
        scheduler.check_invariants()
        if wcc_holds(state.demand, capacity):
            assert avoidable_partial_nodes(state) == 0, state.nodes
        if decision.reason is not None and decision.job is not None and decision.job.gpus == 1:
            assert state.free_gpus < decision.job.instances


@pytest.mark.parametrize(
    ("nodes", "capacity", "gangs"), [(1, 8, (1, 2)), (2, 8, (1,)), (2, 4, (1, 2, 3)), (3, 4, (1,)), (4, 2, (1, 2, 3))]
)
def test_residual_fillers_every_reachable_state_has_no_avoidable_partial_node(
    nodes: int, capacity: int, gangs: tuple[int, ...]
) -> None:
    check_residual_fillers_leave_nothing_avoidable(nodes, capacity, gangs)


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "capacity", "gangs"), [(3, 8, (1,)), (4, 4, (1,)), (3, 4, (1, 2))])
def test_residual_fillers_every_reachable_state_of_larger_clusters_has_no_avoidable_partial_node(
    nodes: int, capacity: int, gangs: tuple[int, ...]
) -> None:
    check_residual_fillers_leave_nothing_avoidable(nodes, capacity, gangs)
