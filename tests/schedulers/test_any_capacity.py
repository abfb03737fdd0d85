"""Levels of any number of members: whatever state of the space compaction starts from, one partial node is left."""

import random

import pytest

from compass_abs.fragmentation.arc_flow import filling_margin, inherent_at
from compass_abs.model import ClusterState, Job
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.compass_residual import CompassAbsResidual
from compass_abs.schedulers.hierarchical_operators import DomainOperators
from tests.schedulers.reachable import explore

SITUATION = Situation()


def filled_at_random(scheduler: CompassAbsResidual, rng: random.Random) -> None:
    """Any state of the space, reachable or not: empty, pool and slotted nodes, these with fillers or without."""
    state, gangs = scheduler.state, []
    for node in range(len(state.nodes)):
        slots, free, kind = state.capacity, state.capacity, rng.random()
        for _ in range(rng.randint(1, 4) if kind > 0.35 else 0):
            sizes = [g for g in range(2, free + 1) if scheduler.space.width_of(g) <= slots]
            if sizes:
                powers = [g for g in sizes if g & (g - 1) == 0]
                gpus = rng.choice(sizes) if rng.random() < 0.5 else powers[-1]
                gangs.append((Job(f"{rng.random()}", 1, gpus), [node]))
                slots, free = slots - scheduler.space.width_of(gpus), free - gpus
        singles = rng.choice((free, free, rng.randint(0, free))) if kind > 0.1 else 0
        gangs += [(Job(f"{rng.random()}", 1, 1), [node]) for _ in range(singles)]
    scheduler.restore(gangs)


@pytest.mark.parametrize("operators", [CompassAbsResidual, DomainOperators])
@pytest.mark.parametrize("capacity", [2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 18, 72])
def test_compact_of_any_state_of_the_space_under_the_condition_leaves_one_partial_node(
    operators: type[CompassAbsResidual], capacity: int
) -> None:
    held = 0
    for seed in range(120):
        rng = random.Random(seed)
        scheduler = operators(ClusterState(rng.randint(3, 7), capacity))
        filled_at_random(scheduler, rng)
        demand = list(scheduler.state.demand)
        scheduler.compact()
        scheduler.check_invariants()
        assert scheduler.state.demand == demand
        if filling_margin(demand, capacity) >= 0:
            held += 1
            assert scheduler.state.partial_nodes <= 1, scheduler.state.nodes
            assert inherent_at(demand, capacity) == scheduler.state.partial_nodes
    assert held > 10


@pytest.mark.parametrize("capacity", [7, 11, 15])
def test_compact_of_wide_nodes_whose_slots_have_no_room_to_be_joined_fills_them(capacity: int) -> None:
    """Two nodes of {4, 2} on 7: one free on each, where no slot of 2 goes, and every 1-member item on full nodes."""
    scheduler = DomainOperators(ClusterState(6, capacity))
    widest = 1 << capacity.bit_length() - 1
    rest = capacity - widest - 1
    assert rest % 2 == 0
    for name in "ab":
        assert scheduler.admit(Job(f"wide {name}", 1, widest), SITUATION).admitted
        assert scheduler.admit(Job(f"beside {name}", rest // 2, 2), SITUATION).admitted
    for name, singles in (("in the way", 2), ("pool", 2 * capacity)):
        assert scheduler.admit(Job(name, singles, 1), SITUATION).admitted
    assert scheduler.state.partial_nodes == 0
    scheduler.finish("in the way", SITUATION)
    assert filling_margin(scheduler.state.demand, capacity) >= 0
    assert scheduler.state.partial_nodes == 1


@pytest.mark.parametrize(("nodes", "capacity"), [(3, 3), (2, 5), (3, 5), (2, 6), (2, 7)])
def test_domain_operators_every_reachable_state_of_uneven_nodes_has_one_partial_node(nodes: int, capacity: int) -> None:
    held = 0
    for scheduler, decision in explore(DomainOperators, nodes, capacity, (1, 2) if capacity == 3 else (1,)):
        scheduler.check_invariants()
        if decision.reason is None and filling_margin(scheduler.state.demand, capacity) >= 0:
            held += 1
            assert scheduler.state.partial_nodes <= 1, scheduler.state.nodes
    assert held > 100
