"""Just-in-time compaction on NVLink domains: best fit on every level, and moves exactly when the head needs them."""

from collections.abc import Sequence
from typing import ClassVar

from compass_abs.model import CompassError, Decision, Job, Migration
from compass_abs.planner import Costs, Impossible, Limits, Plan
from compass_abs.planner.allowance import Allowance
from compass_abs.planner.domains import SmallOnly, plan_domains
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.jit import CompassJit
from compass_abs.topology import DomainState
from compass_abs.topology.vacancies import Vacancies


class HierarchicalJit(CompassJit):
    """Best fit on every level; a blocked head gets its panel, rack or row by the cheapest moves found.

    With every job movable, every panel up and no budget set, the head waits only if no packing of all levels exists.
    `tidiness` tidies panels; domains are emptied only for somebody who waits.
    """

    name: ClassVar[str] = "hierarchical-jit"
    source: ClassVar[str] = "this project (docs/nvlink-domains.md)"
    knows_domains: ClassVar[bool] = True

    domains: DomainState
    vacancies: Vacancies

    def rebuild(self) -> None:
        """Counts the empty members of every domain."""
        super().rebuild()
        if not isinstance(self.state, DomainState):
            raise CompassError("hierarchical-jit needs a topology (--topology); without one use compass-jit")
        self.domains = self.state
        self.vacancies = Vacancies(self.domains, self.domains.topology)

    def repacks(self) -> bool:
        """False: a packing of the panels alone says nothing of the domains."""
        return False

    # ---- what domains answer differently

    def choose(self, job: Job) -> list[int] | None:
        """The fullest panels that suffice; larger instances go to the domains with fewest empty members."""
        level, units = self.domains.topology.demand(job.gpus)
        return self._choose_panels(job) if level == 0 else self._choose_members(job, level - 1, units)

    def plan_room(self, job: Job, allowance: Allowance, limits: Limits) -> Plan | Impossible:
        """The cheapest moves found, level by level; the budget is compared with them afterwards."""
        return plan_domains(self.domains, job, allowance, limits, self.policy.effort)

    def charges(self, allowance: Allowance) -> Costs:
        """Whole panels of a larger instance stay together, so they stay."""
        return SmallOnly(self.domains, allowance)

    def fits_by_itself(self, job: Job, situation: Situation) -> float | None:
        """When enough will have ended; not known for instances larger than a panel."""
        return super().fits_by_itself(job, situation) if job.gpus <= self.state.capacity else None

    # ---- keeping count

    def start(self, job: Job, nodes: Sequence[int], before: tuple[Migration, ...] = ()) -> Decision:
        """An admission onto these panels, applied."""
        decision = super().start(job, nodes, before)
        self.vacancies.touch(nodes)
        return decision

    def finish(self, job_id: str, situation: Situation) -> Decision:
        """Frees the job's GPUs."""
        decision = super().finish(job_id, situation)
        self.vacancies.touch(decision.nodes)
        return decision

    def carry_out(self, moves: tuple[Migration, ...]) -> None:
        """Moves these."""
        super().carry_out(moves)
        self.vacancies.touch(panel for move in moves for panel in (move.source, move.target))

    # ---- choosing

    def _choose_panels(self, job: Job) -> list[int] | None:
        state, gpus = self.state, job.gpus
        if state.room(gpus) < job.instances:
            return None
        nodes: list[int] = []
        for free in range(gpus, state.capacity):
            for panel in state.by_free[free]:
                nodes += [panel] * (free // gpus)
                if len(nodes) >= job.instances:
                    return nodes[: job.instances]
        while len(nodes) < job.instances:
            domain = self.vacancies.tightest(0, 1)
            panel = self.vacancies.empty_members(0, domain)[0]
            self.vacancies.take(0, panel)
            nodes += [panel] * (state.capacity // gpus)
        return nodes[: job.instances]

    def _choose_members(self, job: Job, level: int, units: int) -> list[int] | None:
        vacancies, topology = self.vacancies, self.domains.topology
        if vacancies.room(level, units) < job.instances:
            return None
        each = 1 if level == 0 else topology.panels(level - 1)
        panels: list[int] = []
        for _ in range(job.instances):
            for member in vacancies.empty_members(level, vacancies.tightest(level, units))[:units]:
                vacancies.take(level, member)
                panels += range(member * each, (member + 1) * each)
        return panels
