"""Every state that a scheduler of domains can reach on a small shape, up to the names of domains, panels and jobs."""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

from compass_abs.model import Decision, Job
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.topology import DomainState, Topology

#: Of a panel the sizes on it; of a domain the members of each anchor, then what is on its other members.
Shape = tuple[Any, ...]
Gangs = list[tuple[int, list[int]]]


def shape_of(state: DomainState) -> Shape:
    """The same value for states that differ only in names."""
    topology = state.topology
    level_on: dict[int, int] = {}
    anchors: dict[tuple[int, int], list[int]] = {}
    for job_id, job in state.whole.items():
        level, units = topology.demand(job.gpus)
        panels = state.gangs[job_id].nodes
        level_on |= dict.fromkeys(panels, level)
        anchors.setdefault((level, panels[0] // topology.panels(level - 1)), []).append(units)

    def shape(level: int, index: int) -> Shape:
        if level == 0:
            return tuple(sorted(state.nodes[index].contents.values(), reverse=True))
        size = topology.levels[level - 1].usable
        panels = topology.panels(level - 1) // size
        members = range(index * size, (index + 1) * size)
        others = [shape(level - 1, member) for member in members if level_on.get(member * panels, 0) < level]
        return tuple(sorted(anchors.get((level, index), ()), reverse=True)), tuple(sorted(others, reverse=True))

    top = len(topology.levels)
    return tuple(sorted((shape(top, k) for k in range(len(state.nodes) // topology.panels_per_domain)), reverse=True))


def gangs_of(topology: Topology, shape: Shape, reverse: bool) -> Gangs:
    """Jobs with their panels that make this shape, listed from the first domain and panel on or from the last."""
    gangs: Gangs = []

    def lay(level: int, first: int, content: Shape) -> None:
        if level == 0:
            gangs.extend((gpus, [first]) for gpus in content)
            return
        each = topology.panels(level - 1) // topology.levels[level - 1].usable
        anchors, others = content
        for other in others if reverse else ():
            lay(level - 1, first, other)
            first += each
        for units in anchors:
            gangs.append((units * each * topology.panel_gpus, list(range(first, first + units * each))))
            first += units * each
        for other in () if reverse else others:
            lay(level - 1, first, other)
            first += each

    for k, content in enumerate(reversed(shape) if reverse else shape):
        lay(len(topology.levels), k * topology.panels_per_domain, content)
    return gangs[::-1] if reverse else gangs


def departures(gangs: Gangs, most_instances: int) -> list[tuple[int, ...]]:
    """Which instances may leave together, those that look alike and are at the same place once."""
    found: dict[tuple[tuple[int, tuple[int, ...]], ...], tuple[int, ...]] = {}
    for count in range(1, most_instances + 1):
        for chosen in combinations(range(len(gangs)), count):
            if len({gangs[k][0] for k in chosen}) == 1:
                found[tuple((gangs[k][0], tuple(gangs[k][1])) for k in chosen)] = chosen
    return list(found.values())


def explore_domains(
    make: Callable[[], Scheduler], topology: Topology, most_instances: int = 1
) -> Iterator[tuple[Scheduler, Decision]]:
    """Each (state, last decision) reachable by jobs of so many instances, in two arrangements of each shape.

    Instances that leave together do so from every place: any of equal size may be those of one job.
    """
    sizes = [*range(1, topology.panel_gpus + 1)]
    for level in range(len(topology.levels)):
        members = topology.gpus(level) // topology.levels[level].usable
        sizes += [members * units for units in range(2, topology.levels[level].usable + 1)]
    situation = Situation()
    start = make().state
    assert isinstance(start, DomainState)
    seen = {shape_of(start)}
    queue = deque(seen)
    while queue:
        shape = queue.popleft()
        for reverse in (False, True):
            gangs = gangs_of(topology, shape, reverse)
            arrivals = [Job("new", count, gpus) for gpus in sizes for count in range(1, most_instances + 1)]
            for event in [*arrivals, *departures(gangs, most_instances)]:
                scheduler = make()
                leaving = () if isinstance(event, Job) else event
                running = [(Job(f"j{k:02}", 1, own[0]), own[1]) for k, own in enumerate(gangs) if k not in leaving]
                if isinstance(event, Job):
                    scheduler.restore(running)
                    decision = scheduler.admit(event, situation)
                else:
                    together = [panel for k in event for panel in gangs[k][1]]
                    scheduler.restore([*running, (Job("gone", len(event), gangs[event[0]][0]), together)])
                    decision = scheduler.finish("gone", situation)
                yield scheduler, decision
                assert isinstance(scheduler.state, DomainState)
                after = shape_of(scheduler.state)
                if after not in seen:
                    seen.add(after)
                    queue.append(after)
