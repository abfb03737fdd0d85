"""COMPASS-ABS: each deviation from the pseudo-code, what it cures, and long random lives of larger clusters."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from compass_abs.fragmentation import avoidable_partial_nodes, inherent, wcc_holds
from compass_abs.model import (
    ClusterState,
    Decision,
    DuplicateJobError,
    InvalidJobError,
    Job,
    NodeStatus,
    UnknownJobError,
    Verdict,
)
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.compass_abs import CompassAbs
from compass_abs.schedulers.compass_literal import CompassAbsLiteral
from compass_abs.schedulers.compass_residual import CompassAbsResidual

NOW = Situation()


def lives(scheduler: CompassAbs, seed: int, events: int, pinned: float = 0.0) -> Iterator[Decision]:
    """A random life: arrivals of random gangs and departures, one decision each."""
    rng = random.Random(seed)
    capacity = scheduler.state.capacity
    mixes = [(1, 1, 1, 2, 3, 4, 5, 6, 7, 8), (1, 1, 2, 4), (2, 4, 8), (1, 1, 3), (1, 3, 5, 7), (1, 1, 1, 1, 6, 4, 2)]
    mix = [g for g in rng.choice(mixes) if g <= capacity] or [1]
    if capacity > 8:
        mix += [9, 10, 12, 16, 1, 1, 1, 1, 1, 1]
    running: list[str] = []
    for k in range(events):
        if running and rng.random() < 0.47:
            yield scheduler.finish(running.pop(rng.randrange(len(running))), NOW)
        else:
            job = Job(f"j{k:06}", rng.choice((1, 1, 1, 2, 3, 5)), rng.choice(mix), movable=rng.random() >= pinned)
            decision = scheduler.admit(job, NOW)
            if decision.admitted:
                running.append(job.id)
            yield decision


# ---- the deviations, each with the case that fails without it


def test_compact_filler_leaves_its_slot_is_replaced_from_the_pool() -> None:
    """Deviation: the pseudo-code of Remove forgets the refill; N·SIF then grows with the number of vacancies."""
    avoidable = {}
    for scheduler_class in (CompassAbs, CompassAbsLiteral):
        scheduler = scheduler_class(ClusterState(40))
        for job in (Job("a", 8, 1), Job("b", 8, 7), Job("c", 8, 1)):
            assert scheduler.admit(job, NOW).admitted
        scheduler.finish("a", NOW)
        avoidable[scheduler_class] = avoidable_partial_nodes(scheduler.state)
    assert avoidable == {CompassAbs: 0, CompassAbsLiteral: 8}


def test_compact_slots_of_two_widths_leaves_one_slotted_node_partial() -> None:
    """Deviation: as printed, the passes leave a pool node of 6, {2,4} and {4}: three partial nodes where Φ* = 0."""
    avoidable = {}
    for scheduler_class in (CompassAbs, CompassAbsLiteral):
        scheduler = scheduler_class(ClusterState(10))
        for job in (Job("a", 6, 1), Job("b", 1, 2), Job("c", 2, 4)):
            assert scheduler.admit(job, NOW).admitted
        avoidable[scheduler_class] = avoidable_partial_nodes(scheduler.state)
    assert avoidable == {CompassAbs: 2, CompassAbsLiteral: 3}


def test_finish_anchor_alone_on_its_node_leaves_its_fillers_there_as_a_pool_node() -> None:
    """Deviation: the pseudo-code moves them to a freshly opened node."""
    scheduler = CompassAbs(ClusterState(3))
    scheduler.admit(Job("singles", 3, 1), NOW)
    scheduler.admit(Job("anchor", 1, 5), NOW)
    decision = scheduler.finish("anchor", NOW)
    assert not decision.migrations
    assert scheduler.state.partial_nodes == 1


def test_finish_anchor_in_a_full_cluster_leaves_its_filler_running_and_moves_it_as_soon_as_it_can() -> None:
    """Deviation: the dead end. The filler has no vacancy, no partial pool node and no empty node to go to."""
    scheduler = CompassAbs(ClusterState(2))
    for job in (Job("three", 1, 3), Job("four", 1, 4), Job("single", 1, 1), Job("full", 1, 8)):
        assert scheduler.admit(job, NOW).admitted
    decision = scheduler.finish("three", NOW)
    assert not decision.migrations
    assert scheduler.space.residual(0) == 1
    assert "single" in scheduler.state.gangs
    scheduler.check_invariants()
    decision = scheduler.finish("full", NOW)
    assert [move.instance.job_id for move in decision.migrations] == ["single"]
    assert scheduler.space.residual(0) == 0


def test_compact_fillers_that_dead_ends_left_on_three_nodes_make_way_for_slots() -> None:
    """Deviation: {2} + 1, {4} + 2 and {2, 2} + 3 beside a full node, each in the way of others: N·SIF would be 3."""
    scheduler = CompassAbs(ClusterState(4))
    contents = [(2, 1), (4, 1, 1), (2, 2, 2, 2), (2, 2, 1, 1, 1)]
    scheduler.restore(
        (Job(f"j{node}{k}", 1, gpus), [node]) for node, held in enumerate(contents) for k, gpus in enumerate(held)
    )
    assert wcc_holds(scheduler.state.demand)
    assert avoidable_partial_nodes(scheduler.state) == 3
    scheduler.compact()
    scheduler.check_invariants()
    assert avoidable_partial_nodes(scheduler.state) <= 2
    assert not scheduler.space.overfull


def test_finish_anchor_in_a_full_cluster_gives_its_filler_the_vacancy_of_another() -> None:
    scheduler = CompassAbs(ClusterState(2))
    for job in (Job("three", 1, 3), Job("four", 1, 4), Job("seven", 1, 7), Job("single", 1, 1)):
        assert scheduler.admit(job, NOW).admitted
    decision = scheduler.finish("three", NOW)
    assert [(move.instance.job_id, move.target) for move in decision.migrations] == [("single", 1)]


def test_compact_literal_order_of_passes_stops_at_the_first_source_without_progress() -> None:
    """{2,2} beside {4} is stable under the printed passes, so "at most one partial slotted node" fails there."""
    scheduler = CompassAbsLiteral(ClusterState(4))
    scheduler.restore([(Job("a", 2, 2), [0, 0]), (Job("b", 1, 4), [1])])
    scheduler.compact()
    assert scheduler.state.partial_nodes == 2
    corrected = CompassAbs(ClusterState(4))
    corrected.restore([(Job("a", 2, 2), [0, 0]), (Job("b", 1, 4), [1])])
    corrected.compact()
    assert corrected.state.partial_nodes == 0


# ---- admission


def test_admit_gang_that_does_not_fit_changes_nothing_and_says_why() -> None:
    scheduler = CompassAbs(ClusterState(2))
    scheduler.admit(Job("a", 1, 5), NOW)
    before = scheduler.state.placements()
    decision = scheduler.admit(Job("b", 2, 8), NOW)
    assert not decision.admitted
    assert decision.reason is not None
    assert decision.reason.verdict is Verdict.CAPACITY
    assert scheduler.state.placements() == before
    assert scheduler.admit(Job("c", 2, 5), NOW).reason.verdict is Verdict.FRAGMENTATION  # type: ignore[union-attr]


@pytest.mark.parametrize("job", [Job("a", 1, 9), Job("a", 1, 16)])
def test_admit_instance_larger_than_a_node_raises_and_changes_nothing(job: Job) -> None:
    scheduler = CompassAbs(ClusterState(2))
    with pytest.raises(InvalidJobError, match=str(job.gpus)):
        scheduler.admit(job, NOW)
    assert not scheduler.state.gangs


def test_admit_running_job_again_raises() -> None:
    scheduler = CompassAbs(ClusterState(2))
    scheduler.admit(Job("a", 1, 1), NOW)
    with pytest.raises(DuplicateJobError, match="'a'"):
        scheduler.admit(Job("a", 1, 1), NOW)


def test_finish_unknown_job_raises_and_changes_nothing() -> None:
    scheduler = CompassAbs(ClusterState(2))
    with pytest.raises(UnknownJobError, match="'a'"):
        scheduler.finish("a", NOW)


@given(st.integers(0, 1000))
def test_admit_single_instance_fits_whenever_the_space_has_a_legal_place(seed: int) -> None:
    scheduler = CompassAbs(ClusterState(3))
    for decision in lives(scheduler, seed, 60):
        if decision.reason is not None and decision.job is not None and decision.job.gpus == 1:
            state, space = scheduler.state, scheduler.space
            legal = space.vacancies + space.pool_room() + 8 * state.empty_nodes
            assert legal < decision.job.instances


# ---- long lives


@pytest.mark.parametrize("capacity", [2, 4, 8, 16])
@pytest.mark.parametrize("nodes", [3, 10, 60])
@pytest.mark.parametrize(("scheduler_class", "bound"), [(CompassAbs, 2), (CompassAbsResidual, 0)])
def test_compass_abs_long_life_keeps_space_and_bound(
    scheduler_class: type[CompassAbs], bound: int, capacity: int, nodes: int
) -> None:
    """Over 10^5 events in all, the bound after each, the whole state every few."""
    for seed in range(6):
        scheduler = scheduler_class(ClusterState(nodes, capacity))
        state = scheduler.state
        for k, decision in enumerate(lives(scheduler, seed, 1500)):
            if wcc_holds(state.demand, capacity):
                assert state.partial_nodes - inherent(state.demand, capacity) <= bound
            if k % 50 == 0 or (decision.reason is None and len(decision.migrations) > 3):
                scheduler.check_invariants()
        scheduler.check_invariants()


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(
    ("scheduler_class", "nodes", "capacity"),
    [
        (CompassAbs, 8, 8),
        (CompassAbs, 5, 16),
        (CompassAbs, 20, 4),
        (CompassAbsResidual, 8, 8),
        (CompassAbsLiteral, 8, 8),
    ],
)
def test_restore_at_a_random_point_gives_the_same_future(
    scheduler_class: type[CompassAbs], nodes: int, capacity: int, seed: int
) -> None:
    first = scheduler_class(ClusterState(nodes, capacity))
    history = lives(first, seed, 400, pinned=0.1 * (seed % 2))
    for _ in range(60 + 17 * seed):
        next(history)
    second = scheduler_class(ClusterState(nodes, capacity))
    second.restore((gang.job, tuple(gang.nodes)) for gang in first.state.gangs.values())
    for decision in history:
        job = decision.job
        assert job is not None
        again = second.finish(job.id, NOW) if decision.departed else second.admit(job, NOW)
        assert again == decision
    second.check_invariants()


@pytest.mark.parametrize("seed", range(5))
def test_apply_replays_every_decision_on_a_mirror(seed: int) -> None:
    """A decision says everything: what a second state needs to follow, step by feasible step."""
    scheduler, mirror = CompassAbs(ClusterState(12)), ClusterState(12)
    for decision in lives(scheduler, seed, 500):
        mirror.apply(decision)
        assert mirror.placements() == scheduler.state.placements()


@pytest.mark.parametrize("seed", range(5))
def test_undo_takes_a_decision_back_and_the_next_is_the_same(seed: int) -> None:
    scheduler = CompassAbs(ClusterState(6))
    for decision in list(lives(scheduler, seed, 150))[-1:]:
        scheduler.undo(decision)
        scheduler.check_invariants()
        job = decision.job
        assert job is not None
        again = scheduler.finish(job.id, NOW) if decision.departed else scheduler.admit(job, NOW)
        assert (again.nodes, again.reason) == (decision.nodes, decision.reason)


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_compass_abs_pinned_instances_never_move(share: float) -> None:
    for seed in range(10):
        scheduler = CompassAbs(ClusterState(10))
        pinned: set[str] = set()
        for decision in lives(scheduler, seed, 300, pinned=share):
            if decision.job is not None and not decision.job.movable:
                pinned.add(decision.job.id)
            assert not pinned & {move.instance.job_id for move in decision.migrations}
        scheduler.check_invariants()


def test_compass_abs_cordoned_node_gets_nothing_and_comes_back() -> None:
    scheduler = CompassAbs(ClusterState(3))
    scheduler.admit(Job("a", 3, 1), NOW)
    scheduler.set_status("n0", NodeStatus.CORDONED, NOW)
    decision = scheduler.admit(Job("b", 2, 4), NOW)
    assert 0 not in decision.nodes
    scheduler.check_invariants()
    scheduler.set_status("n0", NodeStatus.UP, NOW)
    scheduler.check_invariants()
    assert scheduler.set_status("n0", NodeStatus.LOST, NOW).lost
    scheduler.check_invariants()
    scheduler.add_node("n3", NOW)
    assert scheduler.admit(Job("c", 1, 8), NOW).admitted
    scheduler.check_invariants()


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 8)), max_size=24))
def test_restore_adopts_a_cluster_that_something_else_filled(placed: list[tuple[int, int]]) -> None:
    """Placements outside the space (overlapping slots, singles beside slots) are kept, and heal as jobs leave."""
    state = ClusterState(6)
    scheduler = CompassAbs(state)
    free = [8] * 6
    gangs = []
    for k, (node, gpus) in enumerate(placed):
        if free[node] >= gpus:
            free[node] -= gpus
            gangs.append((Job(f"j{k:02}", 1, gpus), [node]))
    scheduler.restore(gangs)
    scheduler.check_invariants()
    for job, _ in gangs:
        scheduler.finish(job.id, NOW)
        scheduler.check_invariants()
    assert state.empty_nodes == 6


class Life(RuleBasedStateMachine):
    """Any order of arrivals, departures and restores."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = CompassAbs(ClusterState(5))
        self.count = 0

    @rule(instances=st.integers(1, 4), gpus=st.sampled_from([1, 1, 1, 2, 3, 4, 5, 6, 7, 8]))
    def arrive(self, instances: int, gpus: int) -> None:
        self.count += 1
        before = self.scheduler.state.placements()
        decision = self.scheduler.admit(Job(f"j{self.count:04}", instances, gpus), NOW)
        if decision.reason is not None:
            assert self.scheduler.state.placements() == before

    @precondition(lambda self: self.scheduler.state.gangs)
    @rule(data=st.data())
    def depart(self, data: st.DataObject) -> None:
        self.scheduler.finish(data.draw(st.sampled_from(sorted(self.scheduler.state.gangs))), NOW)

    @rule()
    def restart(self) -> None:
        fresh = CompassAbs(ClusterState(5))
        fresh.restore((gang.job, gang.nodes) for gang in self.scheduler.state.gangs.values())
        self.scheduler = fresh

    @invariant()
    def holds(self) -> None:
        self.scheduler.check_invariants()
        if wcc_holds(self.scheduler.state.demand):
            assert avoidable_partial_nodes(self.scheduler.state) <= 2


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
