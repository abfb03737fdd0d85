"""One move for an instance that an event moved twice."""

from collections.abc import Sequence

from compass_abs.model import ClusterState, Instance, Migration


def collapse(moves: Sequence[Migration], after: ClusterState) -> tuple[Migration, ...]:
    """The moves with each chain a → b → c as one move a → c at the place of its last step, where every step still fits.

    `after` is the state the moves led to. Where the shorter sequence would need GPUs that aren't free yet the moves are
    returned as they are: correct, if longer.
    """
    last: dict[Instance, int] = {move.instance: k for k, move in enumerate(moves)}
    if len(last) == len(moves):
        return tuple(moves)
    first: dict[Instance, int] = {}
    for move in moves:
        first.setdefault(move.instance, move.source)
    shorter = tuple(
        move._replace(source=first[move.instance])
        for k, move in enumerate(moves)
        if last[move.instance] == k and first[move.instance] != move.target
    )
    return shorter if _feasible(shorter, moves, after) else tuple(moves)


def _feasible(shorter: Sequence[Migration], moves: Sequence[Migration], after: ClusterState) -> bool:
    free: dict[int, int] = {}
    for move in moves:
        free.setdefault(move.source, after.nodes[move.source].free)
        free.setdefault(move.target, after.nodes[move.target].free)
    for move in reversed(moves):
        free[move.target] += move.gpus
        free[move.source] -= move.gpus
    for move in shorter:
        free[move.target] -= move.gpus
        if free[move.target] < 0:
            return False
        free[move.source] += move.gpus
    return True
