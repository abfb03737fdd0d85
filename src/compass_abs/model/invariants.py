"""What must hold of a cluster state after every step, as code."""

from compass_abs.model.cluster_state import ClusterState
from compass_abs.model.errors import InvariantError
from compass_abs.model.job import Instance
from compass_abs.model.node import NodeStatus


def check_state(state: ClusterState) -> None:
    """Raises unless GPUs are conserved, gangs are whole, and every index agrees with the placements."""
    demand = [0] * (state.capacity + 1)
    free_gpus = 0
    seen: set[Instance] = set()
    for node in state.nodes:
        used = sum(node.contents.values())
        if node.free != state.capacity - used or node.free < 0:
            raise InvariantError(f"node {node.name!r}: {used} GPUs held and {node.free} free of {state.capacity}")
        up = node.status is NodeStatus.UP
        for f, bucket in enumerate(state.by_free):
            if (node.index in bucket) != (up and f == node.free):
                raise InvariantError(f"node {node.name!r}: bucket {f} disagrees with {node.free} free, {node.status}")
        pinned = 0
        for instance, gpus in node.contents.items():
            gang = state.gangs.get(instance.job_id)
            if gang is None or gang.job.gpus != gpus or gang.nodes[instance.number] != node.index:
                raise InvariantError(f"node {node.name!r} holds {instance}, of which its gang knows nothing")
            if instance in seen:
                raise InvariantError(f"{instance} runs twice")
            seen.add(instance)
            pinned += not gang.job.movable
            demand[gpus] += up
        if pinned != node.pinned:
            raise InvariantError(f"node {node.name!r}: {node.pinned} pinned instances counted, {pinned} found")
        free_gpus += node.free if up else 0
    for job_id, gang in state.gangs.items():
        if len(gang.nodes) != gang.job.instances:
            raise InvariantError(f"job {job_id!r}: {len(gang.nodes)} of {gang.job.instances} instances are placed")
        for k, index in enumerate(gang.nodes):
            if Instance(job_id, k) not in seen or Instance(job_id, k) not in state.nodes[index].contents:
                raise InvariantError(f"job {job_id!r}: instance {k} is not on node {index}")
    if demand != state.demand or free_gpus != state.free_gpus:
        raise InvariantError(f"counted {demand} with {free_gpus} free, indexed {state.demand} with {state.free_gpus}")
