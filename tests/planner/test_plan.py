"""Plans for room: optimal, complete, and possible to carry out."""

import random
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compass_abs.fragmentation import minimum_used
from compass_abs.model import ClusterState, InvalidJobError, Job, NodeStatus
from compass_abs.planner import (
    Charge,
    Costs,
    Disruption,
    Effort,
    EmptyNodes,
    FewestMoves,
    Impossible,
    Limits,
    Obstacle,
    Plan,
    RequestError,
    Room,
    plan,
)
from compass_abs.planner.exact import solve
from compass_abs.planner.problem import build
from compass_abs.planner.prune import prune
from compass_abs.planner.solution import Solution
from tests.planner.oracles import carry_out, cheapest, goes_straight, random_state, small_states

SEEDS = st.integers(0, 10**9)


def spread(*contents: str, capacity: int = 8) -> ClusterState:
    """A cluster from contents such as "4a 2b": sizes with the names of their jobs."""
    state = ClusterState(len(contents), capacity)
    gangs: dict[str, tuple[int, list[int]]] = {}
    for index, text in enumerate(contents):
        for word in text.split():
            gangs.setdefault(word[1:], (int(word[0]), []))[1].append(index)
    for name, (gpus, nodes) in gangs.items():
        state.place(Job(name, len(nodes), gpus), nodes)
    return state


def check_against_brute_force(state: ClusterState, room: Room, costs: Costs) -> None:
    truth = cheapest(state, room, costs)
    for effort in Effort:
        found = plan(state, room, costs, effort=effort)
        if isinstance(found, Impossible):
            assert truth == inf
            continue
        assert found.cost >= truth - 1e-6
        assert found.bound <= truth + 1e-6
        if effort is not Effort.FAST:
            assert found.cost == pytest.approx(truth)
            assert found.proven
        carry_out(state, found, room)


@pytest.mark.parametrize("capacity", [2, 4])
def test_plan_every_small_cluster_costs_what_brute_force_finds(capacity: int) -> None:
    checked = 0
    for nodes in (2, 3):
        for number, state in enumerate(small_states(nodes, capacity)):
            # Every blocked request of every cluster of two nodes; of three, a spread of them.
            if nodes == 3 and capacity == 4 and number % 5:
                continue
            for gpus in range(1, capacity + 1):
                for instances in range(1, state.free_gpus // gpus + 1):
                    if state.room(gpus) < instances:
                        check_against_brute_force(state, Room(instances, gpus), FewestMoves())
                        checked += 1
    assert checked >= 5


@pytest.mark.parametrize("costs", [FewestMoves(), Disruption()], ids=["moves", "disruption"])
def test_plan_blocked_small_cluster_with_gangs_and_pins_costs_what_brute_force_finds(costs: Costs) -> None:
    checked = 0
    for seed in range(700):
        chance = random.Random(seed)
        state = random_state(chance, 3, 4, pinned=0.2)
        gpus = chance.randint(1, 4)
        room = Room(chance.randint(1, max(1, state.free_gpus // gpus)), gpus)
        scattered = state.room(gpus) < room.instances and room.instances * gpus <= state.free_gpus
        if scattered and sum(len(node.contents) for node in state.nodes) <= 8:
            check_against_brute_force(state, room, costs)
            checked += 1
    assert checked > 50


@settings(max_examples=40)
@given(SEEDS, st.integers(5, 120))
def test_plan_large_cluster_exists_exactly_when_a_packing_does(seed: int, nodes: int) -> None:
    chance = random.Random(seed)
    state = random_state(chance, nodes)
    gpus = chance.choice((8, 8, chance.randint(2, 7)))
    most = max(1, state.free_gpus // gpus)
    room = Room(chance.choice((1, most, chance.randint(1, most))), gpus)
    demand = list(state.demand)
    demand[gpus] += room.instances
    exists = minimum_used(demand) <= nodes
    plans = {effort: plan(state, room, effort=effort) for effort in Effort}
    for found in plans.values():
        assert isinstance(found, Plan) == exists
        if isinstance(found, Plan):
            carry_out(state, found, room)
    if exists:
        best = plans[Effort.EXACT]
        balanced, fast = plans[Effort.BALANCED], plans[Effort.FAST]
        assert isinstance(best, Plan)
        assert isinstance(balanced, Plan)
        assert isinstance(fast, Plan)
        assert best.proven
        assert balanced.cost == pytest.approx(best.cost)
        assert fast.cost >= best.cost - 1e-6
        assert len(best.moves) - best.scratch == best.cost


def test_fast_search_sampled_decisions_stays_within_three_percent_of_the_optimum() -> None:
    chance, ratios = random.Random(7), []
    while len(ratios) < 50:
        state = random_state(chance, chance.choice((20, 60)))
        room = Room(chance.choice((1, 2, 5)), chance.choice((8, 8, 6, 4)))
        best, fast = plan(state, room, effort=Effort.EXACT), plan(state, room, effort=Effort.FAST)
        if isinstance(best, Plan) and isinstance(fast, Plan) and best.cost:
            ratios.append(fast.cost / best.cost)
    assert sum(ratios) / len(ratios) <= 1.03


def test_plan_gang_with_several_instances_pays_once() -> None:
    state = spread("4x 2g", "4y 2g", "6d", "6e")
    found = plan(state, Room(2, 4), Disruption(1.0), effort=Effort.EXACT)
    assert isinstance(found, Plan)
    assert len(found.moves) == 2
    assert found.jobs == ("g",)
    assert found.cost == cheapest(state, Room(2, 4), Disruption(1.0)) == 4


class Priced:
    """A price of each job's own, as measured pauses make them."""

    def charge(self, job: Job) -> Charge:
        return Charge(job.total_gpus * random.Random(job.id).uniform(5, 120), 0.0)


@pytest.mark.parametrize("costs", [Disruption(), Priced()], ids=["disruption", "priced"])
@pytest.mark.parametrize("slack", [0.0, 30.0])
def test_prune_differing_charges_keeps_the_optimum(costs: Costs, slack: float) -> None:
    chance = random.Random(3)
    before = after = 0
    for _ in range(25):
        state = random_state(chance, 30)
        problem = build(state, Room(2, 8), costs)
        whole = solve(problem, 20_000)
        if isinstance(whole, Solution):
            smaller, sure = prune(problem, whole.cost + slack)
            pruned = solve(smaller, 20_000)
            assert isinstance(pruned, Solution)
            assert sure
            assert pruned.cost == pytest.approx(whole.cost)
            before += sum(len(c.options) for c in problem.classes)
            after += sum(len(c.options) for c in smaller.classes)
    assert after < before / 2


def test_prune_equal_charges_asks_the_same_program_whatever_is_known() -> None:
    problem = build(random_state(random.Random(3), 30), Room(2, 8), FewestMoves())
    assert prune(problem, 2.0)[0].classes == problem.classes


@pytest.mark.parametrize("costs", [Disruption(), Priced()], ids=["disruption", "priced"])
def test_bound_of_the_search_with_gangs_is_below_the_optimum_and_sometimes_meets_it(costs: Costs) -> None:
    chance, met, missed = random.Random(17), 0, 0
    for _ in range(40):
        state = random_state(chance, chance.choice((8, 30)))
        room = Room(chance.choice((1, 1, 2)), chance.choice((8, 8, 6, 4)))
        best, fast = (plan(state, room, costs, effort=effort) for effort in (Effort.EXACT, Effort.FAST))
        if isinstance(best, Plan) and isinstance(fast, Plan) and best.cost:
            assert fast.bound <= best.cost + 1e-6
            met += fast.proven
            missed += not fast.proven
    # Where it meets, nobody needs the program.
    assert met
    assert missed


def test_prune_many_shared_gangs_bounds_instead_of_proving(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compass_abs.planner.prune.SHARED_CLASSES", 2)
    chance = random.Random(11)
    compared = 0
    for _ in range(25):
        state = random_state(chance, 12)
        found = plan(state, Room(2, 8), Disruption(), effort=Effort.EXACT)
        with monkeypatch.context() as whole:
            whole.setattr("compass_abs.planner.prune.SHARED_CLASSES", 10_000)
            best = plan(state, Room(2, 8), Disruption(), effort=Effort.EXACT)
        assert isinstance(found, Plan) or not isinstance(best, Plan) or found.obstacle is Obstacle.EFFORT
        if isinstance(found, Plan) and isinstance(best, Plan):
            assert found.bound - 1e-6 <= best.cost <= found.cost + 1e-6
            compared += 1
    assert compared > 5


# ---- refusals


def test_plan_too_few_gpus_says_how_many_are_short() -> None:
    found = plan(spread("4a", "8b"), Room(1, 8))
    assert isinstance(found, Impossible)
    assert found.obstacle is Obstacle.CAPACITY
    assert found.numbers == {"wanted": 8, "free": 4, "short": 4}


def test_plan_no_packing_says_how_many_nodes_it_would_take() -> None:
    found = plan(spread("5a", "5b"), Room(1, 4))
    assert isinstance(found, Impossible)
    assert found.obstacle is Obstacle.PACKING
    assert found.numbers["nodes_needed"] == 3


def test_plan_pinned_in_the_way_says_so() -> None:
    state = ClusterState(2)
    state.place(Job("a", 1, 4, movable=False), [0])
    state.place(Job("b", 1, 4, movable=False), [1])
    found = plan(state, Room(1, 8))
    assert isinstance(found, Impossible)
    assert found.obstacle is Obstacle.PINNED
    assert found.numbers == {"held": 2}


def test_plan_fewer_moves_allowed_than_needed_says_both() -> None:
    state = spread("2a 2b", "4c", "4d", "8e")
    for allowed, possible in ((0, False), (1, True)):
        found = plan(state, Room(1, 8), limits=Limits(moves=allowed))
        assert isinstance(found, Plan) == possible
    found = plan(state, Room(2, 8), limits=Limits(moves=1))
    assert isinstance(found, Impossible)
    found = plan(spread("3a 3b", "1c 1d", "8e"), Room(1, 8), limits=Limits(moves=1))
    assert isinstance(found, Impossible)
    assert found.obstacle is Obstacle.BUDGET
    assert found.numbers == {"moves_needed": 2, "moves_allowed": 1}


def test_plan_limit_of_moves_takes_a_plan_that_costs_more() -> None:
    # Two small single jobs are cheaper in GPU-seconds than one larger, but the budget allows one move.
    state = spread("1a 1b", "4c", "4d 3e")
    state.release("e")
    cheap = plan(state, Room(1, 8), Disruption(), effort=Effort.EXACT)
    strict = plan(state, Room(1, 8), Disruption(), Limits(moves=1), effort=Effort.EXACT)
    assert isinstance(cheap, Plan)
    assert isinstance(strict, Plan)
    assert (len(cheap.moves), len(strict.moves)) == (2, 1)
    assert strict.cost > cheap.cost


@pytest.mark.parametrize("request_", [Room(0, 4), Room(1, 9), Room(1, 0), EmptyNodes(0)])
def test_plan_senseless_request_names_the_value(request_: Room | EmptyNodes) -> None:
    with pytest.raises(RequestError):
        plan(ClusterState(2), request_)


# ---- carrying out


def test_waves_chain_of_moves_waits_for_the_space_it_needs() -> None:
    state = spread("6a", "4b 2c", "4d 3e", "8f")
    found = plan(state, Room(1, 5), effort=Effort.EXACT)
    assert isinstance(found, Plan)
    assert not found.scratch
    carry_out(state, found, Room(1, 5))


def test_waves_swap_without_any_scratch_space_happens_all_together() -> None:
    state = spread("4a 3b", "4c 3d")
    found = plan(state, Room(1, 2))
    assert isinstance(found, Plan)
    assert len(found.moves) == 2
    assert found.waves[-1].together
    carry_out(state, found, Room(1, 2))


def test_waves_swap_with_scratch_space_takes_a_detour() -> None:
    # Only a swap of b and c leaves room for the 2; the free 3 of the last node is the place to do it from.
    state = spread("4a 3b", "4c 3d", "5e")
    found = plan(state, Room(1, 2))
    assert isinstance(found, Plan)
    assert not found.moves
    found = plan(state, Room(2, 2), effort=Effort.EXACT)
    assert isinstance(found, Plan)
    assert not any(wave.together for wave in found.waves)
    carry_out(state, found, Room(2, 2))


def test_waves_detour_or_exchange_only_where_no_order_goes_straight() -> None:
    chance = random.Random(2)
    straight = forced = 0
    while straight < 40 or forced < 12:
        state = ClusterState(chance.choice((2, 3, 4)))
        for node in range(len(state.nodes)):
            left = 8 - chance.choice((0, 1, 1, 2))
            for k in range(8):
                gpus = min(left, chance.choice((2, 3, 4, 5)))
                if gpus:
                    state.place(Job(f"j{node}{k}", 1, gpus), [node])
                    left -= gpus
        found = plan(state, Room(1, chance.choice((2, 3, 4))), effort=chance.choice(list(Effort)))
        if isinstance(found, Plan) and 0 < len(found.moves) <= 6:
            if found.scratch or found.waves[-1].together:
                assert not goes_straight(state, found)
                forced += 1
            else:
                assert goes_straight(state, found)
                straight += 1


def test_plan_cordoned_nodes_are_neither_used_nor_counted() -> None:
    state = spread("4a", "4b", "")
    state.set_status("n2", NodeStatus.CORDONED)
    found = plan(state, Room(1, 8))
    assert isinstance(found, Plan)
    assert len(found.moves) == 1
    state.set_status("n1", NodeStatus.CORDONED)
    assert isinstance(plan(state, Room(1, 8)), Impossible)


def test_plan_sixteen_gpu_nodes_works_alike() -> None:
    state = ClusterState(3, 16)
    for k, (gpus, node) in enumerate([(8, 0), (4, 1), (3, 1), (12, 2)]):
        state.place(Job(f"j{k}", 1, gpus), [node])
    found = plan(state, Room(1, 16), effort=Effort.EXACT)
    assert isinstance(found, Plan)
    assert found.cost == cheapest(state, Room(1, 16), FewestMoves())
    carry_out(state, found, Room(1, 16))


def test_move_all_impossible_exchange_changes_nothing() -> None:
    state = spread("4a 3b", "4c 3d")
    before = sorted(state.placements())
    found = plan(state, Room(1, 2))
    assert isinstance(found, Plan)
    with pytest.raises((InvalidJobError, Exception), match="can't change places"):
        state.move_all(found.moves[:1])
    assert sorted(state.placements()) == before
