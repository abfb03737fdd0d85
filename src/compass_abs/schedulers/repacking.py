"""The optimal packing with the fewest moves, for schedulers that reorganise everything: the planner's, in order."""

from math import inf

from compass_abs.fragmentation import fewest_partial_around, held_nodes, inherent, minimum_used
from compass_abs.model import Cause, ClusterState, Instance, Migration
from compass_abs.planner import Effort, Impossible, Room, Tidy, plan
from compass_abs.schedulers.base import Situation


def is_tidy(state: ClusterState) -> bool:
    """Whether no packing has fewer partial nodes, nor fewer used ones; pins left out of account."""
    partial = state.partial_nodes
    # With one partial node at most, the used nodes are the GPUs in use divided by the capacity: no fewer exist.
    if partial <= 1:
        return True
    demand, capacity = state.demand, state.capacity
    return partial <= inherent(demand, capacity) and state.used_nodes <= minimum_used(demand, capacity)


def tidying(state: ClusterState, situation: Situation, cause: Cause) -> tuple[Migration, ...]:
    """The fewest moves to Φ* partial nodes and U* used ones, around what may not move; empty where there are none.

    For `ClusterState.move_all`: in a cluster that is full enough they may fit only all at once.
    """
    if is_tidy(state):
        return ()
    target = Tidy(inherent(state.demand, state.capacity), minimum_used(state.demand, state.capacity))
    found = plan(state, target, effort=Effort.BALANCED, cause=cause)
    if isinstance(found, Impossible):
        held = held_nodes(state)
        fewest = fewest_partial_around(held, state.capacity)
        if not held.has_pinned or state.partial_nodes <= fewest:
            return ()
        found = plan(state, Tidy(fewest), effort=Effort.BALANCED, cause=cause)
    return () if isinstance(found, Impossible) else least_disruptive(state, situation, found.moves)


def making_room(
    state: ClusterState, situation: Situation, instances: int, gpus: int
) -> tuple[tuple[Migration, ...], tuple[int, ...]] | Impossible:
    """The fewest moves that make room, and the nodes that then have it."""
    found = plan(state, Room(instances, gpus), effort=Effort.BALANCED, cause=Cause.ADMISSION)
    if isinstance(found, Impossible):
        return found
    return least_disruptive(state, situation, found.moves), found.nodes


def least_disruptive(state: ClusterState, situation: Situation, moves: tuple[Migration, ...]) -> tuple[Migration, ...]:
    """The same moves by other instances of the same size on the same nodes.

    Of those on a node the ones of gangs that move anyhow leave it, then those that run longest, then the lowest:
    each pause is paid once a gang, and a long job feels it least.
    """
    first: dict[Instance, int] = {}
    for move in moves:
        first.setdefault(move.instance, move.source)
    leaving: dict[tuple[int, int], list[Instance]] = {}
    for instance, node in first.items():
        leaving.setdefault((node, state.gangs[instance.job_id].job.gpus), []).append(instance)
    moving: dict[str, None] = {}
    substitute: dict[Instance, Instance] = {}
    for (node, gpus), chosen in leaving.items():
        candidates = [
            instance
            for instance, size in state.nodes[node].contents.items()
            if size == gpus and state.gangs[instance.job_id].job.movable
        ]
        better: list[Instance] = []
        for _ in chosen:
            best = min(candidates, key=lambda i: (i.job_id not in moving, -_end(situation, i), i))
            candidates.remove(best)
            better.append(best)
            moving[best.job_id] = None
        kept = [instance for instance in chosen if instance in better]
        substitute.update((instance, instance) for instance in kept)
        dropped = [instance for instance in chosen if instance not in kept]
        added = [instance for instance in better if instance not in kept]
        substitute.update(zip(dropped, added, strict=True))
    return tuple(move._replace(instance=substitute[move.instance]) for move in moves)


def _end(situation: Situation, instance: Instance) -> float:
    return situation.ends.get(instance.job_id, inf)
