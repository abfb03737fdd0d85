"""An order for moves that were decided all at once."""

from collections.abc import Sequence

from compass_abs.model import ClusterState, Migration


def in_order(state: ClusterState, moves: Sequence[Migration]) -> tuple[Migration, ...] | None:
    """The moves, each after those that free the GPUs it needs; None where they wait for each other in a circle."""
    free: dict[int, int] = {}
    for move in moves:
        free.setdefault(move.source, state.nodes[move.source].free)
        free.setdefault(move.target, state.nodes[move.target].free)
    waiting, ordered = list(moves), []
    while waiting:
        ready = next((move for move in waiting if free[move.target] >= move.gpus), None)
        if ready is None:
            return None
        waiting.remove(ready)
        free[ready.target] -= ready.gpus
        free[ready.source] += ready.gpus
        ordered.append(ready)
    return tuple(ordered)
