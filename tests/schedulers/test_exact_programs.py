"""FFT's and SIFOpt's programs against brute force over every assignment of instances to nodes."""

from collections.abc import Iterator
from itertools import product
from random import Random

import pytest

from compass_abs.fragmentation import inherent, minimum_used
from compass_abs.model import ClusterState, Instance, Job, check_state
from compass_abs.planner import Effort, Plan, Tidy, plan
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.fft import FastAndFairTraining
from compass_abs.schedulers.repacking import is_tidy, least_disruptive
from compass_abs.schedulers.sif_opt import FluidOracle
from compass_abs.schedulers.sif_opt_moves import RealisableOracle
from tests.schedulers.random_states import SIZES, random_state


def assignments(sizes: list[int], held: dict[int, int], nodes: int, capacity: int) -> Iterator[tuple[int, ...]]:
    """Every way to put these instances on nodes; `held` says where the pinned ones are."""
    choices = [(held[k],) if k in held else range(nodes) for k in range(len(sizes))]
    for places in product(*choices):
        load = [0] * nodes
        for size, node in zip(sizes, places, strict=True):
            load[node] += size
        if max(load) <= capacity:
            yield places


def brute_force(state: ClusterState) -> tuple[int, int, int]:
    """The fewest partial nodes, of those packings the fewest used nodes, and of those the fewest moves."""
    placements = state.placements()
    held = {k: p.node for k, p in enumerate(placements) if not state.gangs[p.instance.job_id].job.movable}
    sizes = [p.gpus for p in placements]
    best = None
    for places in assignments(sizes, held, len(state.nodes), state.capacity):
        load = [0] * len(state.nodes)
        for size, node in zip(sizes, places, strict=True):
            load[node] += size
        partial = sum(0 < used < state.capacity for used in load)
        key = (partial, sum(map(bool, load)), sum(p.node != n for p, n in zip(placements, places, strict=True)))
        best = key if best is None or key < best else best
    assert best is not None
    return best


def small_state(draw: Random, pinned: float = 0.0) -> ClusterState:
    """At most seven instances on at most four nodes, so that all assignments can be looked at."""
    while True:
        capacity = draw.choice((4, 8))
        state = random_state(draw, draw.choice((2, 3, 4)), pinned=pinned, capacity=capacity)
        if 2 <= len(state.gangs) <= 7:
            return state


def test_fft_round_on_small_clusters_reaches_the_optimum_in_the_fewest_moves() -> None:
    draw = Random(1)
    moved = 0
    for _ in range(300):
        state = small_state(draw)
        partial, used, fewest = brute_force(state)
        decision = FastAndFairTraining(state).round(Situation())
        check_state(state)
        assert (state.partial_nodes, state.used_nodes) == (partial, used)
        # A detour makes an instance move twice; what the program minimises is how many instances move.
        assert len({move.instance for move in decision.migrations}) == fewest
        moved += fewest > 0
    assert moved > 50


def test_fft_round_with_pinned_jobs_reaches_the_fewest_partial_nodes_around_them() -> None:
    draw = Random(2)
    moved = 0
    for _ in range(200):
        state = small_state(draw, pinned=0.4)
        before = {i: p.node for p in state.placements() for i in [p.instance] if not state.gangs[i.job_id].job.movable}
        partial, _, _ = brute_force(state)
        decision = FastAndFairTraining(state).round(Situation())
        assert state.partial_nodes == partial
        assert all(state.node_of(instance) == node for instance, node in before.items())
        moved += bool(decision.migrations)
    assert moved > 20


def test_fft_round_on_large_fragmented_clusters_reaches_both_optima() -> None:
    draw = Random(3)
    for _ in range(12):
        state = random_state(draw, 60)
        FastAndFairTraining(state).round(Situation())
        check_state(state)
        assert state.partial_nodes == inherent(state.demand)
        assert state.used_nodes == minimum_used(state.demand)


def test_fft_round_on_large_fragmented_clusters_moves_as_few_as_the_solver_proves_necessary() -> None:
    draw = Random(6)
    moved = 0
    for nodes in (20, 40, 60, 120):
        for _ in range(3):
            state = random_state(draw, nodes)
            found = plan(state, Tidy(inherent(state.demand), minimum_used(state.demand)), effort=Effort.EXACT)
            assert isinstance(found, Plan)
            assert found.proven
            decision = FastAndFairTraining(state).round(Situation())
            assert len({move.instance for move in decision.migrations}) == round(found.bound)
            moved += len(decision.migrations)
    assert moved > 50


def test_fft_round_on_a_tidy_cluster_moves_nothing() -> None:
    state = ClusterState(3)
    state.place(Job("a", 1, 8), [0])
    state.place(Job("b", 1, 5), [2])
    assert is_tidy(state)
    assert FastAndFairTraining(state).round(Situation()).migrations == ()


def test_fft_of_equal_instances_moves_those_of_gangs_that_move_anyhow_then_the_longest() -> None:
    state = ClusterState(3)
    situation = Situation()
    for name, end in (("short", 10.0), ("long", 900.0), ("middle", 500.0)):
        state.place(Job(name, 1, 2), [0])
        situation.ends[name] = end
    state.place(Job("gang", 2, 2), [0, 1])
    situation.ends["gang"] = 5.0
    moves = FastAndFairTraining(state).round(situation).migrations
    # The cheapest packing moves the gang's lonely instance to the others, which fills node 0.
    assert moves == () or len(moves) == 1
    chosen = least_disruptive(
        state, situation, tuple(m._replace(instance=Instance("short", 0), source=0, target=2, gpus=2) for m in moves)
    )
    assert [move.instance.job_id for move in chosen] == ["long"] * len(moves)


@pytest.mark.parametrize("kind", [FluidOracle, RealisableOracle])
def test_oracles_admit_exactly_when_some_assignment_of_everything_exists(kind: type) -> None:
    draw = Random(4)
    admitted = refused = repacked = 0
    for _ in range(250):
        nodes, capacity = draw.choice((2, 3)), draw.choice((4, 8))
        scheduler = kind(ClusterState(nodes, capacity))
        sizes: list[int] = []
        for k in range(7):
            gpus = draw.choice([size for size in SIZES if size <= capacity])
            exists = any(True for _ in assignments([*sizes, gpus], {}, nodes, capacity))
            decision = scheduler.admit(Job(f"j{k}", 1, gpus), Situation())
            assert decision.admitted == exists
            if exists:
                sizes.append(gpus)
                admitted += 1
                repacked += bool(decision.before)
            else:
                refused += 1
                break
    assert admitted > 500
    assert refused > 50
    assert repacked > 20 or kind is FluidOracle


def test_sif_opt_with_moves_after_every_event_is_optimally_packed() -> None:
    draw = Random(5)
    scheduler = RealisableOracle(ClusterState(12))
    state, moves = scheduler.state, 0
    for k in range(400):
        decisions = [scheduler.admit(Job(f"j{k}", draw.choice((1, 1, 2)), draw.choice(SIZES)), Situation())]
        assert all(move.instance.job_id != f"j{k}" for move in decisions[0].migrations)
        if not decisions[0].admitted:
            decisions.append(scheduler.finish(draw.choice(sorted(state.gangs)), Situation()))
        assert (state.partial_nodes, state.used_nodes) == (inherent(state.demand), minimum_used(state.demand))
        check_state(state)
        moves += sum(len(decision.migrations) for decision in decisions)
    assert moves > 50
