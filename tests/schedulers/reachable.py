"""Every state that a scheduler can reach on a small cluster, up to the names of nodes and jobs."""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import permutations

from compass_abs.model import ClusterState, Decision, Job
from compass_abs.schedulers.base import Scheduler, Situation

#: Jobs as (GPUs of an instance, sorted nodes of the instances), sorted: who is where without names.
Shape = tuple[tuple[int, tuple[int, ...]], ...]


def shape_of(state: ClusterState) -> Shape:
    """The same value for states that differ only in the names of nodes and jobs."""
    gangs = [(gang.job.gpus, gang.nodes) for gang in state.gangs.values()]
    if all(len(nodes) == 1 for _, nodes in gangs):
        return of_single_instances(state)
    used = sorted({node for _, nodes in gangs for node in nodes})
    candidates = permutations(range(len(used)))
    return min(
        tuple(sorted((gpus, tuple(sorted(order[used.index(n)] for n in nodes))) for gpus, nodes in gangs))
        for order in candidates
    )


def of_single_instances(state: ClusterState) -> Shape:
    """The same where nothing ties nodes together but their order: sorting by content is enough."""
    contents = sorted(tuple(sorted(node.contents.values(), reverse=True)) for node in state.nodes)[::-1]
    return tuple(sorted((gpus, (index,)) for index, held in enumerate(contents) for gpus in held))


def placed(state: ClusterState) -> Shape:
    """Who is where, in the order of the jobs' names and the instances' numbers."""
    return tuple((gang.job.gpus, tuple(gang.nodes)) for gang in state.gangs.values())


def as_listed(shape: Shape, nodes: int) -> Iterator[Shape]:
    """One order of nodes and of jobs."""
    yield shape


def both_ways(shape: Shape, nodes: int) -> Iterator[Shape]:
    """Nodes and jobs in their order, and in the opposite one: of equal ones a scheduler takes the lowest."""
    yield shape
    yield tuple((gpus, tuple(nodes - 1 - place for place in places)) for gpus, places in reversed(shape))


def every_order(shape: Shape, nodes: int) -> Iterator[Shape]:
    """Every order of the nodes, with the jobs in their order and in the opposite one."""
    seen = set()
    for order in permutations(range(nodes)):
        moved = tuple((gpus, tuple(order[place] for place in places)) for gpus, places in shape)
        for jobs in (moved, moved[::-1]):
            if jobs not in seen:
                seen.add(jobs)
                yield jobs


def rebuild(make: Callable[[ClusterState], Scheduler], shape: Shape, nodes: int, capacity: int) -> Scheduler:
    """A scheduler restored in this state; jobs are named in the order of the shape."""
    scheduler = make(ClusterState(nodes, capacity))
    scheduler.restore((Job(f"j{k:02}", len(places), gpus), places) for k, (gpus, places) in enumerate(shape))
    return scheduler


def explore(
    make: Callable[[ClusterState], Scheduler],
    nodes: int,
    capacity: int,
    gangs: tuple[int, ...],
    orders: Callable[[Shape, int], Iterator[Shape]] = as_listed,
) -> Iterator[tuple[Scheduler, Decision]]:
    """Each reachable (state, last decision) once per transition, by breadth-first search from the empty cluster."""
    situation = Situation()
    seen: set[Shape] = {()}
    queue: deque[Shape] = deque([()])
    while queue:
        for shape in orders(queue.popleft(), nodes):
            arrivals = [("arrive", w, g) for g in range(1, capacity + 1) for w in gangs if w * g <= nodes * capacity]
            # Jobs of one size on the same nodes are interchangeable: one departure stands for all.
            departures = [("depart", k, 0) for k in range(len(shape)) if k == 0 or shape[k] != shape[k - 1]]
            for kind, first, gpus in [*arrivals, *departures]:
                scheduler = rebuild(make, shape, nodes, capacity)
                if kind == "arrive":
                    decision = scheduler.admit(Job("new", first, gpus), situation)
                else:
                    decision = scheduler.finish(f"j{first:02}", situation)
                if decision.reason is not None:
                    assert placed(scheduler.state) == shape, "a refusal changes nothing"
                yield scheduler, decision
                after = shape_of(scheduler.state)
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
