"""Which slots move: none that needn't, and of what would do the cheapest."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from compass_abs.model import ClusterState, Instance, Job, Slot
from compass_abs.schedulers.compass_abs import CompassAbs
from compass_abs.schedulers.slot_compaction import cheapest_block, remainder

slots_of_a_node = st.lists(
    st.sampled_from((2, 4, 8)).flatmap(lambda width: st.tuples(st.just(width), st.integers(0, width // 2 - 1))),
    max_size=7,
).map(
    lambda drawn: [
        Slot(width, Instance(f"a{k}", 0), tuple(Instance(f"f{k}", n) for n in range(fillers)))
        for k, (width, fillers) in enumerate(drawn)
    ]
)


def compacted(capacity: int, *placed: tuple[Job, list[int]]) -> dict[str, int]:
    """How many instances of each job compaction moves from this state."""
    scheduler = CompassAbs(ClusterState(4, capacity))
    scheduler.restore(placed)
    scheduler.compact()
    moved = [move.instance.job_id for move in scheduler.take_moves()]
    return {job_id: moved.count(job_id) for job_id in moved}


@given(slots_of_a_node, st.sampled_from((2, 4, 8)))
def test_cheapest_block_of_any_slots_moves_the_fewest_instances(slots: list[Slot], width: int) -> None:
    costs = [
        sum(slot.instances for slot in subset)
        for size in range(1, len(slots) + 1)
        for subset in combinations(slots, size)
        if sum(slot.width for slot in subset) == width
    ]
    block = cheapest_block(slots, width)
    assert (block is None) == (not costs)
    if block is not None:
        assert sum(slot.width for slot in block) == width
        assert sum(slot.instances for slot in block) == min(costs)


@given(slots_of_a_node, st.sampled_from((2, 4, 8)))
def test_remainder_of_any_slots_leaves_a_multiple_of_the_width(slots: list[Slot], width: int) -> None:
    assert sum(slot.width for slot in remainder(slots, width)) == sum(slot.width for slot in slots) % width


def test_compact_two_half_filled_nodes_moves_the_half_with_fewer_instances() -> None:
    """n0 holds an anchor of 3 with its filler, n1 an anchor of 4."""
    assert compacted(8, (Job("three", 1, 3), [0]), (Job("one", 1, 1), [0]), (Job("four", 1, 4), [1])) == {"four": 1}


def test_compact_two_odd_nodes_moves_from_the_emptier_to_the_fuller() -> None:
    """{4,2} and {2}: one move leaves one node; the other way round would leave two, and more to do."""
    full = (Job("four", 1, 4), [0])
    assert compacted(8, full, (Job("near", 1, 2), [0]), (Job("far", 1, 2), [1])) == {"far": 1}
    full = (Job("four", 1, 4), [1])
    assert compacted(8, full, (Job("near", 1, 2), [1]), (Job("far", 1, 2), [0])) == {"far": 1}


def test_compact_carry_beside_an_odd_node_moves_whichever_has_fewer_instances() -> None:
    """On nodes of 16: a slot of 8 against slots of 4 and 2, the one or the others with fillers."""
    left_over = [(Job("three", 1, 3), [1]), (Job("one", 1, 1), [1]), (Job("two", 1, 2), [1])]
    assert compacted(16, (Job("eight", 1, 8), [0]), *left_over) == {"eight": 1}
    assert compacted(16, (Job("five", 1, 5), [0]), (Job("ones", 3, 1), [0, 0, 0]), (Job("two", 1, 2), [1])) == {
        "two": 1
    }
