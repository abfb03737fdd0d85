"""KAI's consolidation, the threshold defragmenter and DRR's rescheduling, situation by situation."""

from random import Random

from compass_abs.model import Cause, ClusterState, Instance, Job, Migration, Mode, Verdict, check_state
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.drr import DefragmentingRescheduler
from compass_abs.schedulers.kai import KaiConsolidation
from compass_abs.schedulers.move_order import in_order
from compass_abs.schedulers.threshold import ThresholdDefragmenter, next_multiple
from tests.schedulers.random_states import random_state

# ---- KAI


def checkered(nodes: int, movable: bool = True) -> ClusterState:
    """Every node half full of one 4-GPU job; the job on the highest node is the youngest."""
    state = ClusterState(nodes)
    for n in range(nodes):
        state.place(Job(f"half{n}", 1, 4, submitted=float(n), movable=movable), [n])
    return state


def test_kai_for_a_job_that_fragmentation_blocks_restarts_the_youngest() -> None:
    decision = KaiConsolidation(checkered(4)).admit(Job("whole", 1, 8), Situation())
    assert decision.admitted
    assert decision.nodes == (3,)
    assert decision.before == (Migration(Instance("half3", 0), 3, 0, 4, Cause.ADMISSION, Mode.RESTART),)


def test_kai_spares_important_jobs_while_others_suffice() -> None:
    state = ClusterState(3)
    for n, priority in enumerate((0, 0, 5)):
        state.place(Job(f"half{n}", 1, 4, submitted=float(n), priority=priority), [n])
    decision = KaiConsolidation(state).admit(Job("whole", 1, 8), Situation())
    assert [move.instance.job_id for move in decision.before] == ["half1"]


def test_kai_without_enough_gpus_evicts_nobody() -> None:
    decision = KaiConsolidation(checkered(3)).admit(Job("wide", 2, 8), Situation())
    assert decision.reason is not None
    assert decision.reason.verdict is Verdict.CAPACITY


def test_kai_gives_up_after_its_limit_of_victims() -> None:
    # Making two nodes whole takes two evictions, but not of the two youngest alone when they share a node.
    state = checkered(6)
    assert not KaiConsolidation(state, victims=1).admit(Job("wide", 2, 8), Situation()).admitted
    check_state(state)
    assert KaiConsolidation(state, victims=2).admit(Job("wide", 2, 8), Situation()).admitted


def test_kai_never_evicts_what_may_not_be_moved() -> None:
    decision = KaiConsolidation(checkered(4, movable=False)).admit(Job("whole", 1, 8), Situation())
    assert decision.reason is not None
    assert decision.reason.verdict is Verdict.FRAGMENTATION


def test_kai_on_random_states_admits_only_with_everyone_placed_again() -> None:
    draw = Random(1)
    consolidated = refused = 0
    for _ in range(400):
        state = random_state(draw, 6, pinned=0.2)
        running = {name: (gang.job, list(gang.nodes)) for name, gang in state.gangs.items()}
        job = Job("new", draw.choice((1, 2)), draw.choice((4, 6, 8)))
        decision = KaiConsolidation(state).admit(job, Situation())
        check_state(state)
        moved = dict.fromkeys(move.instance.job_id for move in decision.before)
        assert len(moved) <= 16
        for name, (old, nodes) in running.items():
            assert state.gangs[name].job == old
            assert name in moved or state.gangs[name].nodes == nodes
        consolidated += bool(moved)
        refused += not decision.admitted
    assert consolidated > 20
    assert refused > 20


# ---- the threshold defragmenter


def scattered(nodes: int) -> ClusterState:
    """One 1-GPU job on each node: as fragmented as can be."""
    state = ClusterState(nodes)
    for n in range(nodes):
        state.place(Job(f"one{n:02d}", 1, 1), [n])
    return state


def test_threshold_round_begins_no_more_moves_than_may_be_in_flight() -> None:
    assert len(ThresholdDefragmenter(scattered(20)).round(Situation()).migrations) == 3


def test_threshold_within_an_hour_keeps_its_budget_and_spends_it_again_in_the_next() -> None:
    scheduler, situation = ThresholdDefragmenter(scattered(40), cooldown=0.0), Situation()
    made = []
    for k in range(1, 25):
        situation.now = 300.0 * k
        made.append(len(scheduler.round(situation).migrations))
    assert sum(made[:12]) == 10
    assert sum(made[12:24]) == 10
    for k in range(13):
        assert sum(made[k : k + 12]) <= 10


def test_threshold_leaves_a_job_alone_until_it_has_cooled_down() -> None:
    # Gangs of which one instance moved: the other one could follow in a later round, if it weren't for the cooldown.
    scheduler, situation = ThresholdDefragmenter(scattered(12), hourly=1000), Situation()
    last: dict[str, float] = {}
    for k in range(60):
        situation.now = 300.0 * k
        for move in scheduler.round(situation).migrations:
            assert situation.now - last.get(move.instance.job_id, -1e9) >= 1800.0
            last[move.instance.job_id] = situation.now
    assert len(last) > 6
    assert scheduler.state.partial_nodes < 12


def test_threshold_below_its_score_moves_nothing() -> None:
    state = scattered(2)
    for n in range(8):
        state.add_node(f"spare{n}")
    # 14 of 78 idle GPUs are on partial nodes: a share of 0.18.
    assert ThresholdDefragmenter(state).round(Situation()).migrations == ()
    assert len(ThresholdDefragmenter(state, score=0.17).round(Situation()).migrations) == 1
    assert state.partial_nodes == 1


def test_threshold_moves_only_to_fuller_nodes_and_never_for_ever() -> None:
    draw = Random(2)
    for _ in range(100):
        state = random_state(draw, 8, pinned=0.2)
        scheduler, situation = ThresholdDefragmenter(state, hourly=1000, cooldown=0.0), Situation()
        rounds = 0
        while True:
            situation.now += 300.0
            used = [state.capacity - node.free for node in state.nodes]
            moves = scheduler.round(situation).migrations
            for move in moves:
                assert used[move.target] > used[move.source] - 1
                used[move.target] += move.gpus
                used[move.source] -= move.gpus
            check_state(state)
            if not moves:
                break
            rounds += 1
            assert rounds < 200


def test_next_multiple_is_always_later() -> None:
    for now in (0.0, 299.999999, 300.0, 300.0000001, 1e9, 0.1 * 3):
        for period in (300.0, 0.1, 7.3):
            assert next_multiple(now, period) > now
            assert next_multiple(now, period) <= now + 2 * period


# ---- DRR's rescheduling


def drr(state: ClusterState, **parameters: object) -> DefragmentingRescheduler:
    return DefragmentingRescheduler(state, policy="best-fit", **parameters)  # type: ignore[arg-type]


def literal_rescheduling(state: ClusterState, limit: int) -> dict[Instance, int]:
    """Where everything is after a cycle, from the description: lists and loops only."""
    contents = [dict(node.contents) for node in state.nodes]

    def used(n: int) -> int:
        return sum(contents[n].values())

    candidates = sorted((n for n in range(len(contents)) if 0 < used(n) < 4), key=lambda n: (used(n), n))
    drained = 0
    for source in candidates:
        if drained == limit:
            break
        trial = [dict(held) for held in contents]
        ok = not any(not state.gangs[i.job_id].job.movable for i in contents[source])
        for instance, gpus in sorted(contents[source].items(), key=lambda entry: (-entry[1], entry[0])):
            loads = [(sum(held.values()), -n) for n, held in enumerate(trial)]
            fitting = [(load, n) for load, n in loads if -n != source and 0 < load <= 8 - gpus]
            if not fitting:
                ok = False
                break
            target = -max(fitting)[1]
            trial[target][instance] = trial[source].pop(instance)
        if ok:
            contents = trial
            drained += 1
    return {instance: n for n, held in enumerate(contents) for instance in held}


def test_drr_cycle_on_random_states_does_what_the_description_says() -> None:
    draw = Random(3)
    moved = 0
    for _ in range(1500):
        state = random_state(draw, draw.randint(2, 12), pinned=0.1)
        limit = draw.choice((1, 5))
        expected = literal_rescheduling(state, limit)
        decision = drr(state, nodes=limit).round(Situation())
        check_state(state)
        assert {p.instance: p.node for p in state.placements()} == expected
        assert len({move.source for move in decision.migrations}) <= limit
        moved += bool(decision.migrations)
    assert moved > 300


def test_drr_wants_its_cycles_on_the_hour() -> None:
    assert drr(ClusterState(1)).next_round(100.0) == 3600.0
    assert drr(ClusterState(1)).next_round(3600.0) == 7200.0


# ---- orders


def test_in_order_puts_a_move_after_the_one_that_makes_its_room() -> None:
    state = ClusterState(3)
    state.place(Job("a", 1, 8), [0])
    state.place(Job("b", 1, 8), [1])
    first = Migration(Instance("a", 0), 0, 1, 8, Cause.ROUND)
    second = Migration(Instance("b", 0), 1, 2, 8, Cause.ROUND)
    assert in_order(state, [first, second]) == (second, first)


def test_in_order_of_a_full_circle_is_none() -> None:
    state = ClusterState(2)
    state.place(Job("a", 1, 8), [0])
    state.place(Job("b", 1, 8), [1])
    circle = [Migration(Instance(name, 0), n, 1 - n, 8, Cause.ROUND) for n, name in enumerate("ab")]
    assert in_order(state, circle) is None
