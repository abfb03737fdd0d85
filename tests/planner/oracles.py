"""Slow truths about small clusters, by trying everything."""

import random
from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from math import inf

from compass_abs.model import ClusterState, Decision, Instance, Job, check_state
from compass_abs.planner import Costs, Plan, Room


def cheapest(state: ClusterState, room: Room, costs: Costs) -> float:
    """The least that any repacking with space for the newcomers costs, by trying all; inf when there is none."""
    items = [
        (Instance(job_id, k), node, gang.job)
        for job_id, gang in state.gangs.items()
        for k, node in enumerate(gang.nodes)
    ]
    best = inf
    for targets in product(range(len(state.nodes)), repeat=len(items)):
        free = [state.capacity] * len(state.nodes)
        cost, paid = 0.0, set()
        for (instance, node, job), target in zip(items, targets, strict=True):
            free[target] -= job.gpus
            if target != node:
                gang, each = costs.charge(job) if job.movable else (inf, inf)
                cost += each + (0.0 if instance.job_id in paid else gang)
                paid.add(instance.job_id)
        if cost < best and min(free) >= 0 and sum(f // room.gpus for f in free) >= room.instances:
            best = cost
    return best


def small_states(nodes: int, capacity: int) -> Iterator[ClusterState]:
    """Every cluster of so many nodes, up to their order, each instance a job of its own."""
    contents = [
        c
        for n in range(capacity + 1)
        for c in combinations_with_replacement(range(1, capacity + 1), n)
        if sum(c) <= capacity
    ]
    for chosen in combinations_with_replacement(contents, nodes):
        state = ClusterState(nodes, capacity)
        for index, sizes in enumerate(chosen):
            for k, gpus in enumerate(sizes):
                state.place(Job(f"j{index}{k}", 1, gpus), [index])
        yield state


def random_state(chance: random.Random, nodes: int, capacity: int = 8, pinned: float = 0.0) -> ClusterState:
    """A nearly full cluster of gangs of one to three instances, scattered at random."""
    state = ClusterState(nodes, capacity)
    for k in range(nodes * capacity):
        gpus = chance.randint(1, capacity)
        count = chance.choice((1, 1, 1, 2, 3))
        free = {node.index: node.free for node in state.nodes}
        chosen = []
        for _ in range(count):
            fitting = [index for index in free if free[index] >= gpus]
            if not fitting:
                break
            chosen.append(chance.choice(fitting))
            free[chosen[-1]] -= gpus
        if len(chosen) == count:
            movable = chance.random() >= pinned
            state.place(Job(f"j{k}", count, gpus, movable=movable, pause=chance.choice((None, 2.0, 20.0))), chosen)
    for job_id in list(state.gangs):
        if chance.random() < 0.25:
            state.release(job_id)
    return state


def carry_out(state: ClusterState, plan: Plan, newcomer: Room | None = None) -> None:
    """Carries a plan out wave by wave, checking that each wave may run at once, and undoes it again."""
    before = state.placements()
    for wave in plan.waves:
        free = [node.free for node in state.nodes]
        for move in wave.moves:
            assert state.node_of(move.instance) == move.source
            free[move.target] -= move.gpus
            if wave.together:
                free[move.source] += move.gpus
        assert min(free) >= 0
        state.move_all(wave.moves)
    if newcomer is not None:
        state.place(Job("newcomer", newcomer.instances, newcomer.gpus), plan.nodes)
        check_state(state)
        state.release("newcomer")
    check_state(state)
    state.undo(Decision(before=plan.moves))
    assert sorted(state.placements()) == sorted(before)


def goes_straight(state: ClusterState, plan: Plan) -> bool:
    """Whether the plan's instances can reach its nodes one after the other, whichever of equal size goes where."""
    sizes = {move.instance: move.gpus for move in plan.moves}
    sources = {move.instance: state.node_of(move.instance) for move in plan.moves}
    last = {move.instance: move.target for move in plan.moves}
    seen: set[tuple[tuple[Instance, ...], tuple[tuple[int, int], ...]]] = set()

    def search(left: tuple[Instance, ...], slots: tuple[tuple[int, int], ...], free: list[int]) -> bool:
        if not left:
            return True
        if (left, slots) in seen:
            return False
        seen.add((left, slots))
        for instance in left:
            size, source = sizes[instance], sources[instance]
            for slot in dict.fromkeys(slots):
                if slot[1] == size and slot[0] != source and free[slot[0]] >= size:
                    after = list(free)
                    after[slot[0]] -= size
                    after[source] += size
                    remaining = list(slots)
                    remaining.remove(slot)
                    if search(tuple(i for i in left if i != instance), tuple(remaining), after):
                        return True
        return False

    slots = tuple(sorted((last[instance], sizes[instance]) for instance in sizes))
    return search(tuple(sorted(sizes)), slots, [node.free for node in state.nodes])
