"""COMPASS-ABS on rack-scale NVLink domains (appendix D of the paper): the same operators on every level.

`hierarchical_tiers.py` has a level; here events are dealt out: a small instance lives on the tier of panels, a larger
one on the tier of the smallest domains that hold it. After either, compaction runs from the lowest tier up, once.

Deviation: the appendix counts only whole-panel instances as fillers of the panel level and says that the levels don't
interfere. They do: panels shared by small instances take up panels (docs/nvlink-domains.md has the counterexamples).
Here every panel in use is a 1-panel item of the level above, which is what restores its bound.
"""

from typing import Annotated, ClassVar

from compass_abs.model import ClusterState, Decision, Gang, Job, Migration, NodeStatus
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.compass_abs import CompassAbs
from compass_abs.schedulers.hierarchical_operators import DomainOperators
from compass_abs.schedulers.hierarchical_tiers import Fillers, Tier
from compass_abs.topology import DomainState, Level, Topology


def topology_of(state: ClusterState) -> Topology:
    """The topology of a state; a flat pool is one of panels on their own."""
    if isinstance(state, DomainState):
        return state.topology
    return Topology("flat", state.capacity, (Level("node", 1, 1),), "panel")


class HierarchicalCompass(Scheduler):
    """COMPASS-ABS at every level of a topology: GPUs in panels, panels in domains, domains in tiers."""

    name: ClassVar[str] = "hierarchical"
    source: ClassVar[str] = "the paper, appendix D, corrected (docs/nvlink-domains.md)"
    knows_domains: ClassVar[bool] = True

    def __init__(
        self,
        state: ClusterState,
        *,
        fillers: Annotated[Fillers, "which panels fill a domain: any in use, or whole-panel instances"] = (
            Fillers.MEMBERS
        ),
    ) -> None:
        super().__init__(state)
        self.topology = topology_of(state)
        self.fillers = fillers
        self.tiers: list[Tier] = []
        self.rebuild()

    # ---- the operators of each tier

    def panel_operators(self) -> CompassAbs:
        """Those of the panels."""
        return CompassAbs(self.state)

    def domain_operators(self, state: ClusterState) -> CompassAbs:
        """Those of the tiers above."""
        return DomainOperators(state)

    # ---- events

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Places the whole gang on its tier and compacts from the lowest tier up; or refuses and changes nothing."""
        self.state.check_job(job)
        level, units = self.topology.demand(job.gpus)
        asked = Job(job.id, job.instances, units, movable=job.movable)
        tier = self.tiers[level]
        if level == 0:
            if not tier.operators.fits(job):
                return self.blocked(job)
            nodes = list(tier.operators.place(job))
        elif tier.operators.fits(asked):
            nodes = self._start(job, asked, level)
        else:
            return self.blocked(job)
        return Decision(job, tuple(nodes), after=self._compact())

    def finish(self, job_id: str, situation: Situation) -> Decision:
        """Removes the gang and compacts from the lowest tier up."""
        gang = self._end(job_id)
        return Decision(gang.job, tuple(gang.nodes), departed=True, after=self._compact())

    # ---- tiers

    def _start(self, job: Job, asked: Job, level: int) -> list[int]:
        """Places a gang of instances larger than a panel; says on which panels, instance by instance."""
        members = self.tiers[level].start(asked)
        for tier in reversed(self.tiers[1:level]):
            members = tier.hold(job, members)
        panels = self.tiers[0].operators
        panels.state.place(job, members)
        panels.space.placed(panels.state.capacity, members)
        return members

    def _end(self, job_id: str) -> Gang:
        state, panels = self.state, self.tiers[0].operators
        if not isinstance(state, DomainState) or job_id not in state.whole:
            return panels.remove(job_id)
        gang = state.release(job_id)
        panels.space.released(Gang(state.pieces(gang.job), gang.nodes))
        level = self.topology.demand(gang.job.gpus).level
        for tier in self.tiers[1:level]:
            tier.let_go(job_id)
        self.tiers[level].end(job_id)
        return gang

    def _adopt(self, job: Job, panels: list[int]) -> None:
        """Notes a running gang of instances larger than a panel on every tier."""
        level, units = self.topology.demand(job.gpus)
        members = [panels]
        for each in self.topology.levels[: level - 1]:
            members.append([member // each.usable for member in members[-1][:: each.usable]])
        # An instance with a panel that isn't up stays where it is.
        up = all(self.state.nodes[panel].status is NodeStatus.UP for panel in panels)
        # From the top, so that no tier takes what is held for it by the one below to be a unit.
        self.tiers[level].adopt(Job(job.id, job.instances, units, movable=job.movable and up), members[-1])
        for tier, held in zip(reversed(self.tiers[1:level]), reversed(members[:-1]), strict=True):
            size = tier.state.capacity
            tier.adopt(Job(job.id, len(held) // size, size, movable=job.movable), held)

    def _compact(self) -> tuple[Migration, ...]:
        """Compacts every tier, the lowest first; the moves, as moves of pieces between panels."""
        for tier in self.tiers:
            tier.operators.compact()
        for tier in self.tiers[1:]:
            tier.operators.take_moves()
        return self.tiers[0].operators.take_moves()

    def rebuild(self) -> None:
        """Derives every tier from who is where."""
        state = self.state
        tiers = [Tier(self.panel_operators(), None)]
        if isinstance(state, DomainState):
            for level in self.topology.levels:
                count = -(-len(tiers[-1].state.nodes) // level.usable)
                operators = self.domain_operators(ClusterState(count, level.usable))
                tiers.append(Tier(operators, tiers[-1], self.fillers))
            self.tiers = tiers
            for job in list(state.whole.values()):
                self._adopt(job, state.gangs[job.id].nodes)
            for tier in tiers[1:]:
                tier.adopt_rest()
        self.tiers = tiers

    def check_invariants(self) -> None:
        """Raises unless GPUs are conserved, gangs whole, and every tier agrees with the one below."""
        super().check_invariants()
        for tier in self.tiers:
            tier.operators.check_invariants()
            tier.check()
