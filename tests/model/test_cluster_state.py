"""The cluster state: every refused change leaves it as it was, every decision can be taken back."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_abs.model import (
    Cause,
    ClusterState,
    CompassError,
    Decision,
    DuplicateJobError,
    IndexSet,
    Instance,
    InvalidJobError,
    InvariantError,
    Job,
    Migration,
    NodeStatus,
    PlacementError,
    UnknownJobError,
    UnknownNodeError,
    check_state,
)


def picture(state: ClusterState) -> tuple[object, ...]:
    """All that a state says of itself."""
    nodes = [(n.name, n.free, n.status, sorted(n.contents.items()), n.pinned) for n in state.nodes]
    return (nodes, state.histogram(), list(state.demand), state.free_gpus, sorted(state.gangs))


def filled() -> ClusterState:
    state = ClusterState(["a", "b", "c"])
    state.place(Job("one", 1, 3), [0])
    state.place(Job("two", 2, 8), [1, 2])
    return state


@pytest.mark.parametrize(
    ("job", "nodes", "error", "words"),
    [
        (Job("x", 1, 6), [0], PlacementError, "node 'a'"),
        (Job("x", 2, 5), [0, 1], PlacementError, "node 'b'"),
        (Job("x", 1, 9), [0], InvalidJobError, "gpus is 9"),
        (Job("x", 1, 1), [7], UnknownNodeError, "node 7"),
        (Job("x", 2, 1), [0, -1], UnknownNodeError, "node -1"),
        (Job("x", 2, 1), [0, "a"], UnknownNodeError, "node 'a'"),
        (Job("x", 2, 1), [0], PlacementError, "2 instances"),
        (Job("one", 1, 1), [0], DuplicateJobError, "'one'"),
    ],
)
def test_place_what_does_not_fit_raises_and_changes_nothing(
    job: Job, nodes: Any, error: type[CompassError], words: str
) -> None:
    state = filled()
    before = picture(state)
    with pytest.raises(error, match=words):
        state.place(job, nodes)
    assert picture(state) == before
    check_state(state)


def test_move_to_a_full_or_own_or_unknown_node_raises_and_changes_nothing() -> None:
    state = filled()
    before = picture(state)
    for instance, target, error in [
        (Instance("one", 0), 1, PlacementError),
        (Instance("one", 0), 0, PlacementError),
        (Instance("one", 0), 9, UnknownNodeError),
        (Instance("one", 1), 1, UnknownJobError),
        (Instance("none", 0), 1, UnknownJobError),
    ]:
        with pytest.raises(error):
            state.move(instance, target)
    assert picture(state) == before


def tidied(instance: Instance, source: int, target: int, gpus: int) -> Migration:
    return Migration(instance, source, target, gpus, Cause.TIDY)


@pytest.mark.parametrize("target", [-1, 3])
def test_move_all_to_an_unknown_node_raises_and_changes_nothing(target: int) -> None:
    """Also when the first move can only be made by an exchange."""
    state = filled()
    before = picture(state)
    moves = [tidied(Instance("two", 0), 1, 0, 8), tidied(Instance("one", 0), 0, target, 3)]
    with pytest.raises(UnknownNodeError, match=f"node {target}"):
        state.move_all(moves)
    with pytest.raises(UnknownNodeError, match=f"node {target}"):
        state.move_all(moves[1:])
    assert picture(state) == before


@pytest.mark.parametrize(
    "decision",
    [
        # Each fails at its last step.
        Decision(Job("x", 1, 8), (0,), before=(tidied(Instance("two", 0), 1, 3, 8),)),
        Decision(Job("x", 1, 8), (3,), after=(tidied(Instance("two", 0), 1, 0, 8),)),
        Decision(Job("one", 1, 3), (0,), departed=True, after=(tidied(Instance("two", 1), 2, 1, 8),)),
        Decision(Job("none", 1, 3), (0,), departed=True, before=(tidied(Instance("two", 0), 1, 3, 8),)),
    ],
)
def test_apply_decision_of_another_state_raises_and_changes_nothing(decision: Decision) -> None:
    state = filled()
    state.add_node("d")
    before = picture(state)
    with pytest.raises(CompassError):
        state.apply(decision)
    assert picture(state) == before
    check_state(state)


@pytest.mark.parametrize(
    ("second", "nodes", "error"),
    [
        (Job("y", 1, 8), [0], PlacementError),
        (Job("y", 1, 1), [9], UnknownNodeError),
        (Job("y", 1, 1), [-1], UnknownNodeError),
        (Job("x", 1, 1), [0], DuplicateJobError),
        (Job("y", 1, 9), [0], InvalidJobError),
    ],
)
def test_restore_of_a_gang_that_cannot_be_there_raises_and_changes_nothing(
    second: Job, nodes: list[int], error: type[CompassError]
) -> None:
    state = filled()
    state.set_status("a", NodeStatus.CORDONED)
    before = picture(state)
    with pytest.raises(error):
        state.restore([(Job("x", 1, 2), [0]), (second, nodes)])
    assert picture(state) == before
    check_state(state)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "2", None])
def test_job_with_an_impossible_demand_names_the_value(value: object) -> None:
    with pytest.raises(InvalidJobError, match="expected a whole number"):
        Job("j", value, 1)  # type: ignore[arg-type]
    with pytest.raises(InvalidJobError, match="expected a whole number"):
        Job("j", 1, value)  # type: ignore[arg-type]


@pytest.mark.parametrize("capacity", [0, -8, 129, 8.0])
def test_cluster_state_of_an_impossible_capacity_is_refused(capacity: int) -> None:
    with pytest.raises(InvalidJobError, match=f"capacity is {capacity}"):
        ClusterState(2, capacity)


def test_release_of_an_unknown_job_raises() -> None:
    with pytest.raises(UnknownJobError, match="'ghost'"):
        filled().release("ghost")


def test_cordoned_node_keeps_its_instances_and_counts_nowhere() -> None:
    state = filled()
    state.set_status("a", NodeStatus.CORDONED)
    assert state.available_nodes == 2
    assert state.free_gpus == 0
    assert state.demand[3] == 0
    with pytest.raises(PlacementError, match="cordoned"):
        state.place(Job("x", 1, 1), [0])
    check_state(state)
    state.release("one")
    check_state(state)
    state.set_status("a", NodeStatus.UP)
    assert state.empty_nodes == 1
    check_state(state)


def test_lost_node_takes_whole_gangs_with_it() -> None:
    state = filled()
    lost = state.set_status("b", NodeStatus.LOST)
    assert [job.id for job in lost] == ["two"]
    assert state.nodes[2].free == 8
    check_state(state)
    state.add_node("b")
    assert state.available_nodes == 3
    check_state(state)


def test_lost_node_of_a_cordoned_node_releases_its_gangs() -> None:
    state = filled()
    state.set_status("b", NodeStatus.CORDONED)
    assert [job.id for job in state.set_status("b", NodeStatus.LOST)] == ["two"]
    check_state(state)


def test_add_node_twice_is_refused() -> None:
    with pytest.raises(PlacementError, match="'a'"):
        filled().add_node("a")


def test_check_state_finds_a_tampered_index() -> None:
    state = filled()
    state.free_gpus += 1
    with pytest.raises(InvariantError):
        check_state(state)


def test_restore_rebuilds_an_equal_state() -> None:
    state = filled()
    state.set_status("b", NodeStatus.CORDONED)
    other = ClusterState(["a", "b", "c"])
    other.set_status("b", NodeStatus.CORDONED)
    other.restore((gang.job, gang.nodes) for gang in state.gangs.values())
    assert picture(other) == picture(state)
    check_state(other)


@given(st.integers(0, 10_000))
def test_undo_of_any_decision_restores_the_state(seed: int) -> None:
    rng = random.Random(seed)
    state = ClusterState(4)
    for k in range(30):
        before = picture(state)
        if state.gangs and rng.random() < 0.4:
            gang = state.release(rng.choice(list(state.gangs)))
            decision = Decision(gang.job, tuple(gang.nodes), departed=True)
        else:
            job = Job(f"j{k}", rng.randint(1, 2), rng.randint(1, 8), movable=rng.random() < 0.7)
            hosts = [n.index for n in state.nodes if n.free >= job.gpus]
            if len(hosts) < job.instances:
                continue
            nodes = tuple(rng.sample(hosts, job.instances))
            state.place(job, nodes)
            decision = Decision(job, nodes)
        after = picture(state)
        state.undo(decision)
        assert picture(state) == before
        state.apply(decision)
        assert picture(state) == after
        check_state(state)


@given(st.lists(st.tuples(st.integers(0, 3000), st.booleans())))
def test_index_set_hands_members_over_as_if_removed_and_added(steps: list[tuple[int, bool]]) -> None:
    fast, slow = (IndexSet(3001), IndexSet(3001)), (set[int](), set[int]())
    for member, there in steps:
        if member in slow[there]:
            fast[there].hand_over(member, fast[not there])
            slow[there].remove(member)
            slow[not there].add(member)
        elif member not in slow[not there]:
            fast[there].add(member)
            slow[there].add(member)
        for mine, true in zip(fast, slow, strict=True):
            assert list(mine) == sorted(true)
            assert (len(mine), mine.first()) == (len(true), min(true, default=-1))
    for member in slow[0]:
        fast[0].hand_over(member, fast[0])
    assert list(fast[0]) == sorted(slow[0])


@given(st.lists(st.integers(0, 3000)), st.sampled_from([1, 511, 512, 513, 3001]))
def test_index_set_agrees_with_a_set(members: list[int], size: int) -> None:
    fast = IndexSet(size)
    fast.grow(3001)
    slow: set[int] = set()
    for member in members:
        (fast.discard if member in slow else fast.include)(member)
        slow ^= {member}
        assert list(fast) == sorted(slow)
        assert fast.first() == min(slow, default=-1)
        assert len(fast) == len(slow)
        assert bool(fast) == bool(slow)
        assert (member in fast) == (member in slow)
