"""Fragmentation at each level of a topology: GPUs in panels, panels in domains, and so on.

At the level of panels the nodes are panels. At a level of domains the items are the instances of more than one member,
and a 1-member item for every member in use below: a panel that small instances share takes up a panel.
"""

from dataclasses import dataclass

from compass_abs.fragmentation.arc_flow import filling_margin, inherent_at, minimum_used_at
from compass_abs.fragmentation.exact import minimum_used
from compass_abs.model import ClusterState, Job, NodeStatus
from compass_abs.topology import DomainState


@dataclass(frozen=True, slots=True)
class Region:
    """One domain: how many of its members are in use, and by what."""

    domain: int
    #: Members of each instance larger than a member, and of 1-member items.
    anchors: tuple[int, ...]
    units: int
    free: int

    @property
    def open_regions(self) -> int:
        """Slots that lack fillers, and one more for members that no slot has and nothing uses: the paper's regions."""
        missing, left, open_slots = 0, self.units, 0
        for anchor in self.anchors:
            wanted = min((1 << (anchor - 1).bit_length()) - anchor, left + self.free)
            filled = min(left, wanted)
            left -= filled
            open_slots += filled < wanted
            missing += wanted - filled
        return open_slots + (self.free > missing and bool(self.anchors or self.units))


@dataclass(frozen=True, slots=True)
class LevelMeasure:
    """What one level looks like; nodes are panels at level 0, and domains above."""

    level: int
    name: str
    #: Members of a node: GPUs of a panel, usable panels of a domain.
    capacity: int
    nodes: int
    partial: int
    empty: int
    #: Running items by size; index 0 is unused.
    demand: tuple[int, ...]
    #: Φ*: the fewest partial nodes in any packing of these items.
    unavoidable: int
    #: The composition condition of this level holds when it isn't negative.
    margin: int
    #: Each used domain; empty for panels.
    regions: tuple[Region, ...] = ()

    @property
    def avoidable(self) -> int:
        """N·SIF of this level."""
        return self.partial - self.unavoidable

    @property
    def sif(self) -> float:
        """SIF of this level, cluster-wide."""
        return self.avoidable / self.nodes if self.nodes else 0.0

    def sif_of(self, region: Region) -> float:
        """SIF of one domain as theorem 2 of the paper counts it: open regions over the domain's members."""
        return region.open_regions / self.capacity


def measure_levels(state: ClusterState) -> tuple[LevelMeasure, ...]:
    """Every level of a state, panels first; a flat state has one."""
    found = [
        LevelMeasure(
            0,
            state.topology.panel_name if isinstance(state, DomainState) else "node",
            state.capacity,
            state.available_nodes,
            state.partial_nodes,
            state.empty_nodes,
            tuple(state.demand),
            inherent_at(state.demand, state.capacity),
            filling_margin(state.demand, state.capacity),
        )
    ]
    if isinstance(state, DomainState):
        # A panel that isn't up keeps its domain from being whole, as one does that nobody may move.
        in_use = [bool(node.contents) or node.status is not NodeStatus.UP for node in state.nodes]
        for number, level in enumerate(state.topology.levels, start=1):
            regions, in_use = _regions(state, number, level.usable, in_use)
            demand = [0] * (level.usable + 1)
            for region in regions:
                demand[1] += region.units
                for anchor in region.anchors:
                    demand[anchor] += 1
            used = [region for region in regions if region.free < level.usable]
            found.append(
                LevelMeasure(
                    number,
                    level.name,
                    level.usable,
                    len(regions),
                    sum(region.free > 0 for region in used),
                    len(regions) - len(used),
                    tuple(demand),
                    inherent_at(demand, level.usable),
                    filling_margin(demand, level.usable),
                    tuple(used),
                )
            )
    return tuple(found)


def _regions(state: DomainState, number: int, usable: int, in_use: list[bool]) -> tuple[list[Region], list[bool]]:
    """The domains of a level, and which of them are in use."""
    panels = state.topology.panels(number - 1)
    anchors: list[list[int]] = [[] for _ in range(-(-len(in_use) // usable))]
    for job_id, job in state.whole.items():
        level, units = state.topology.demand(job.gpus)
        each = state.topology.panels_of(job.gpus)
        nodes = state.gangs[job_id].nodes
        if level == number:
            for first in range(0, len(nodes), each):
                anchors[nodes[first] // panels].append(units)
        elif level > number:
            # Held by a level above, which fills the domain as one instance would.
            for first in range(0, len(nodes), panels):
                anchors[nodes[first] // panels].append(usable)
    regions = []
    for domain, own in enumerate(anchors):
        used = sum(in_use[domain * usable : (domain + 1) * usable])
        units = used - sum(own)
        regions.append(Region(domain, tuple(sorted(own, reverse=True)), units, usable - used))
    return regions, [region.free < usable for region in regions]


def fits_repacked(state: ClusterState, job: Job) -> bool:
    """Whether some packing of what runs and this job fits the nodes that are up.

    Level by level: the fewest panels that hold the small instances are so many 1-member items of the level above, and
    fewer of those never need more domains.
    """
    if not isinstance(state, DomainState):
        demand = state.demand.copy()
        demand[job.gpus] += job.instances
        return minimum_used(demand, state.capacity) <= state.available_nodes
    demands = demand_by_level(state)
    level, units = state.topology.demand(job.gpus)
    demands[level][units] += job.instances
    return fewest_used_by_level(state, demands)[-1] <= len(state.nodes) // state.topology.panels_per_domain


def demand_by_level(state: DomainState) -> list[list[int]]:
    """Running instances by the level they live on, and by size in members of it.

    Of those that fit a panel only the ones on panels that are up, as everywhere else.
    """
    topology = state.topology
    demands = [state.demand.copy(), *([0] * (level.usable + 1) for level in topology.levels)]
    for job in state.whole.values():
        level, units = topology.demand(job.gpus)
        demands[level][units] += job.instances
        pieces = job.instances * topology.panels_of(job.gpus)
        if state.available_nodes < len(state.nodes):
            pieces = sum(state.nodes[panel].status is NodeStatus.UP for panel in state.gangs[job.id].nodes)
        demands[0][state.capacity] -= pieces
    return demands


def fewest_used_by_level(state: DomainState, demands: list[list[int]]) -> list[int]:
    """The fewest panels that hold what lives on panels, and of each level of domains the fewest that hold the rest."""
    fewest = [minimum_used_at(demands[0], state.capacity)]
    for level, demand in zip(state.topology.levels, demands[1:], strict=True):
        fewest.append(minimum_used_at([0, demand[1] + fewest[-1], *demand[2:]], level.usable))
    return fewest
