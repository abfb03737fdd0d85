"""Just-in-time compaction: nobody waits for fragmentation, and nothing moves that a policy protects."""

import random
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compass_abs.fragmentation import fewest_partial_around, held_nodes, inherent, minimum_used
from compass_abs.model import ClusterState, Decision, Job, NodeStatus, Verdict
from compass_abs.planner.policy import Policy
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.jit import CompassJit
from compass_abs.schedulers.registry import make_scheduler
from tests.schedulers.reachable import explore

SEEDS = st.integers(0, 10**9)


def packing_exists(state: ClusterState, job: Job) -> bool:
    demand = list(state.demand)
    demand[job.gpus] += job.instances
    return minimum_used(demand, state.capacity) <= state.available_nodes


def blocked(*sizes: int, **knobs: object) -> tuple[CompassJit, Situation]:
    """A node for each size, which one job of that size occupies."""
    state = ClusterState(len(sizes))
    for index, gpus in enumerate(sizes):
        state.place(Job(f"j{index}", 1, gpus, submitted=0.0), [index])
    return CompassJit(state, **knobs), Situation()  # type: ignore[arg-type]


# ---- the guarantee


def check_guarantee(nodes: int, capacity: int, gangs: tuple[int, ...], most: int | None = None) -> tuple[int, int]:
    """Checks it on reachable transitions, all of them without `most`; how many there were, and how many moved."""
    transitions = moved = 0
    for scheduler, decision in islice(explore(CompassJit, nodes, capacity, gangs), most):
        scheduler.check_invariants()
        if decision.departed:
            assert not decision.migrations
        elif decision.reason is not None:
            assert decision.job is not None
            assert not packing_exists(scheduler.state, decision.job)
            assert decision.reason.verdict is Verdict.CAPACITY
            assert not decision.migrations
        transitions += 1
        moved += bool(decision.before)
    return transitions, moved


@pytest.mark.parametrize(("nodes", "capacity", "most"), [(2, 4, None), (4, 2, None), (3, 4, 8_000), (2, 8, 8_000)])
def test_admit_reachable_small_cluster_waits_only_without_a_packing(
    nodes: int, capacity: int, most: int | None
) -> None:
    transitions, moved = check_guarantee(nodes, capacity, (1, 2), most)
    assert transitions == most or (most is None and transitions > 1_000)
    assert moved > 10 or nodes * capacity < 12


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "capacity", "gangs", "transitions"),
    [(3, 4, (1, 2), 40_517), (2, 8, (1,), 26_384), (6, 2, (1, 2), 10_576)],
)
def test_admit_every_reachable_small_cluster_waits_only_without_a_packing(
    nodes: int, capacity: int, gangs: tuple[int, ...], transitions: int
) -> None:
    # The number says that the search went on to its end: every cluster of this size that can come about.
    found, moved = check_guarantee(nodes, capacity, gangs)
    assert found == transitions
    assert moved > 500


@settings(max_examples=10)
@given(SEEDS, st.integers(3, 60))
def test_admit_churn_on_large_cluster_waits_only_without_a_packing(seed: int, nodes: int) -> None:
    chance, situation = random.Random(seed), Situation()
    scheduler = CompassJit(ClusterState(nodes))
    running: list[str] = []
    for k in range(6 * nodes):
        gpus = chance.choice((1, 1, 2, 3, 4, 5, 6, 7, 8))
        job = Job(f"j{k}", chance.choice((1, 1, 1, 2, 4)), gpus)
        decision = scheduler.admit(job, situation)
        if decision.reason is None:
            running.append(job.id)
        else:
            assert not packing_exists(scheduler.state, job)
        if running and decision.reason is not None:
            scheduler.finish(running.pop(chance.randrange(len(running))), situation)
        if running and chance.random() < 0.2:
            scheduler.finish(running.pop(chance.randrange(len(running))), situation)
        scheduler.check_invariants()


def test_admit_swap_without_scratch_space_still_admits() -> None:
    state = ClusterState(2)
    for name, gpus, node in (("a", 4, 0), ("b", 3, 0), ("c", 4, 1), ("d", 3, 1)):
        state.place(Job(name, 1, gpus), [node])
    scheduler = CompassJit(state)
    decision = scheduler.admit(Job("new", 1, 2), Situation())
    assert decision.admitted
    assert len(decision.before) == 2
    scheduler.check_invariants()
    scheduler.undo(decision)
    scheduler.check_invariants()
    assert state.nodes[0].contents.keys() == {("a", 0), ("b", 0)}


def test_admit_room_as_it_is_moves_nothing_and_fits_best() -> None:
    scheduler, situation = blocked(4, 6, 3)
    decision = scheduler.admit(Job("new", 1, 2), situation)
    assert decision == Decision(Job("new", 1, 2), (1,))


# ---- recovery


@settings(max_examples=15)
@given(SEEDS, st.sampled_from(["never", "peak", "always"]))
def test_restore_at_any_point_decides_alike_from_then_on(seed: int, tidiness: str) -> None:
    def churn(scheduler: CompassJit, events: int, chance: random.Random, first: int) -> list[Decision]:
        situation, log = Situation(), []
        for k in range(first, first + events):
            running = list(scheduler.state.gangs)
            if running and chance.random() < 0.5:
                log.append(scheduler.finish(sorted(running)[chance.randrange(len(running))], situation))
            else:
                job = Job(f"j{k:04}", chance.choice((1, 2)), chance.choice((1, 2, 3, 4, 8)))
                situation.waiting = [job]
                log.append(scheduler.admit(job, situation))
                situation.waiting = []
        return log

    original = CompassJit.under(ClusterState(6), Policy.from_mapping({"tidiness": tidiness}))
    chance = random.Random(seed)
    churn(original, 40, chance, 0)
    restored = CompassJit.under(ClusterState(6), original.policy)
    restored.restore([(gang.job, list(gang.nodes)) for gang in original.state.gangs.values()])
    state = chance.getstate()
    before = churn(original, 40, chance, 100)
    chance.setstate(state)
    assert churn(restored, 40, chance, 100) == before


@settings(max_examples=15)
@given(SEEDS)
def test_undo_any_decision_brings_back_the_placements(seed: int) -> None:
    chance, situation = random.Random(seed), Situation()
    scheduler = CompassJit.under(ClusterState(5), Policy.from_mapping({"tidiness": "always", "moves_per_hour": 99}))
    for k in range(60):
        running = sorted(scheduler.state.gangs)
        before, noted = sorted(scheduler.state.placements()), len(scheduler.ledger.entries)
        if running and chance.random() < 0.45:
            decision = scheduler.finish(chance.choice(running), situation)
        else:
            decision = scheduler.admit(Job(f"j{k}", 1, chance.choice((1, 2, 3, 5, 8))), situation)
        if chance.random() < 0.5:
            scheduler.undo(decision)
            scheduler.check_invariants()
            assert sorted(scheduler.state.placements()) == before
            assert len(scheduler.ledger.entries) == noted


# ---- tidiness


@settings(max_examples=15)
@given(SEEDS)
def test_tidiness_always_leaves_no_avoidable_partial_node_after_any_event(seed: int) -> None:
    chance, situation = random.Random(seed), Situation()
    scheduler = make_scheduler("compass-jit", ClusterState(12), tidiness="always")
    for k in range(80):
        running = sorted(scheduler.state.gangs)
        if running and chance.random() < 0.45:
            scheduler.finish(chance.choice(running), situation)
        else:
            scheduler.admit(Job(f"j{k}", chance.choice((1, 2)), chance.randint(1, 8)), situation)
        assert scheduler.state.partial_nodes == inherent(scheduler.state.demand)
        scheduler.check_invariants()


def test_tidiness_peak_moves_only_while_somebody_waits() -> None:
    scheduler, situation = blocked(4, 4, tidiness="peak")
    scheduler.admit(Job("new", 1, 2), situation)
    scheduler.finish("new", situation)
    assert scheduler.state.partial_nodes == 2
    waiting = Job("large", 2, 8)
    situation.waiting = [waiting]
    refused = scheduler.admit(waiting, situation)
    assert refused.reason is not None
    assert len(refused.after) == 1
    assert scheduler.state.partial_nodes == 0


def test_tidiness_around_pinned_jobs_goes_as_far_as_it_can() -> None:
    state = ClusterState(5)
    for index, (gpus, movable) in enumerate(((4, False), (4, False), (1, True), (1, True), (8, True))):
        state.place(Job(f"j{index}", 1, gpus, movable=movable), [index])
    scheduler = CompassJit.under(state, Policy.from_mapping({"tidiness": "always"}))
    decision = scheduler.finish("j4", Situation())
    assert len(decision.after) == 2
    assert inherent(state.demand) == 1
    assert state.partial_nodes == fewest_partial_around(held_nodes(state), 8) == 2


# ---- nodes


def test_draining_node_is_emptied_now_or_as_soon_as_there_is_room() -> None:
    scheduler, situation = blocked(4, 8)
    decision = scheduler.set_status("n0", NodeStatus.DRAINING, situation)
    assert not decision.after
    freed = scheduler.finish("j1", situation)
    assert [(move.source, move.target) for move in freed.after] == [(0, 1)]
    assert not scheduler.state.nodes[0].contents
    scheduler.check_invariants()
    scheduler.undo(freed)
    scheduler.check_invariants()
    assert scheduler.state.nodes[0].contents


def test_lost_node_takes_its_gangs_and_the_rest_goes_on() -> None:
    scheduler, situation = blocked(4, 4, 4)
    decision = scheduler.set_status("n2", NodeStatus.LOST, situation)
    assert [job.id for job in decision.lost] == ["j2"]
    assert scheduler.admit(Job("new", 1, 8), situation).admitted
    scheduler.add_node("n2", situation)
    assert scheduler.admit(Job("more", 1, 8), situation).admitted


def test_moves_of_a_decision_each_fit_where_the_one_before_left_the_cluster() -> None:
    chance, situation = random.Random(1), Situation()
    scheduler = CompassJit(ClusterState(20))
    chained = 0
    for k in range(400):
        job = Job(f"j{k}", 1, chance.randint(1, 8))
        copy = ClusterState(20)
        copy.restore([(gang.job, list(gang.nodes)) for gang in scheduler.state.gangs.values()])
        decision = scheduler.admit(job, situation)
        for move in decision.before:
            copy.move(move.instance, move.target)
        chained += any(a.source == b.target for a, b in pairwise(decision.before))
        if decision.reason is not None or chance.random() < 0.3:
            scheduler.finish(chance.choice(sorted(scheduler.state.gangs)), situation)
    assert chained
