"""Clusters in random states, and per-node oracles that know nothing of histograms."""

from collections.abc import Callable
from random import Random

from compass_abs.model import ClusterState, Job, NodeStatus

SIZES = (1, 1, 1, 1, 2, 2, 3, 4, 4, 5, 6, 7, 8, 8)


def random_state(
    draw: Random, nodes: int, pinned: float = 0.0, cordoned: float = 0.0, capacity: int = 8
) -> ClusterState:
    """Jobs put on random nodes until a random load is reached; some pinned, some nodes cordoned afterwards."""
    state = ClusterState(nodes, capacity)
    target = draw.random() * nodes * capacity
    for k in range(20 * nodes):
        gpus = draw.choice([size for size in SIZES if size <= capacity])
        fitting = [node.index for node in state.nodes if node.free >= gpus]
        if nodes * capacity - state.free_gpus >= target or not fitting:
            break
        state.place(Job(f"r{k:04d}", 1, gpus, movable=draw.random() >= pinned), [draw.choice(fitting)])
    for node in state.nodes:
        if draw.random() < cordoned:
            state.set_status(node.name, NodeStatus.CORDONED)
    return state


def literal_gang(state: ClusterState, gpus: int, instances: int, key: Callable[[int], object]) -> list[int] | None:
    """Looks at every node for every instance: the least (key, free, index) among those that are up and hold it."""
    free = [node.free if node.status is NodeStatus.UP else -1 for node in state.nodes]
    chosen = []
    for _ in range(instances):
        fitting = [(key(f), f, n) for n, f in enumerate(free) if f >= gpus]
        if not fitting:
            return None
        node = min(fitting)[2]  # type: ignore[type-var]
        chosen.append(node)
        free[node] -= gpus
    return chosen
