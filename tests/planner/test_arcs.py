"""Receiving by arcs, for nodes of many members: the same program as with every multiset listed."""

import random

import pytest

from compass_abs.fragmentation.arc_flow import minimum_used_at
from compass_abs.model import ClusterState, Job
from compass_abs.planner import (
    Costs,
    Disruption,
    Effort,
    EmptyNodes,
    FewestMoves,
    Limits,
    Plan,
    Request,
    Room,
    Tidy,
    exact,
    plan,
)
from compass_abs.planner.problem import build
from compass_abs.planner.solution import Infeasible
from tests.planner.oracles import carry_out, random_state

BRANCHES = Limits().branches


@pytest.mark.parametrize("capacity", [4, 8, 9])
@pytest.mark.parametrize("costs", [FewestMoves(), Disruption()], ids=["moves", "disruption"])
def test_arcs_cost_what_the_program_with_every_multiset_costs(
    capacity: int, costs: Costs, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved = impossible = 0
    for seed in range(20):
        rng = random.Random(seed)
        state = random_state(rng, 5, capacity, pinned=0.1)
        wanted: tuple[Request, ...] = (
            Room(rng.randint(1, 3), rng.randint(1, capacity)),
            EmptyNodes(rng.randint(1, 3)),
            Tidy(rng.randint(0, 3)),
            Tidy(used=rng.randint(1, 4)),
        )
        for request in wanted:
            problem = build(state, request, costs)
            monkeypatch.setattr(exact, "MOST_LISTED", capacity)
            listed = exact.solve(problem, BRANCHES)
            monkeypatch.setattr(exact, "MOST_LISTED", 1)
            flowing = exact.solve(problem, BRANCHES)
            assert isinstance(flowing, Infeasible) == isinstance(listed, Infeasible), (seed, request)
            if isinstance(listed, Infeasible) or isinstance(flowing, Infeasible):
                impossible += 1
                continue
            solved += 1
            assert flowing.cost == pytest.approx(listed.cost), (seed, request)
            found = plan(state, request, costs, effort=Effort.EXACT)
            assert isinstance(found, Plan)
            carry_out(state, found, request if isinstance(request, Room) else None)
    assert solved > 20
    assert impossible > 10


def halves_and_more(rng: random.Random, nodes: int) -> ClusterState:
    """Nodes of 72 members, nearly full of instances that hardly fit beside one another."""
    state = ClusterState(nodes, 72)
    for k in range(40 * nodes):
        gpus, node = rng.choice((5, 7, 11, 13, 17, 19, 23, 29, 31, 36, 37)), rng.randrange(nodes)
        if state.nodes[node].free >= gpus:
            state.place(Job(f"j{k:03}", 1, gpus), [node])
    for job_id in list(state.gangs):
        if rng.random() < 0.25:
            state.release(job_id)
    return state


@pytest.mark.parametrize("effort", Effort)
def test_plan_on_nodes_of_72_exists_exactly_when_a_packing_does(effort: Effort) -> None:
    planned = refused = 0
    for seed in range(40):
        rng = random.Random(seed)
        state = halves_and_more(rng, 4)
        request = Room(1, rng.choice((11, 17, 23, 29, 36)))
        if state.room(request.gpus) or state.free_gpus < request.gpus:
            continue
        demand = list(state.demand)
        demand[request.gpus] += 1
        found = plan(state, request, effort=effort)
        assert isinstance(found, Plan) == (minimum_used_at(demand, 72) <= 4), (seed, request)
        if isinstance(found, Plan):
            planned += 1
            carry_out(state, found, request)
        else:
            refused += 1
    assert planned >= 5, (planned, refused)
