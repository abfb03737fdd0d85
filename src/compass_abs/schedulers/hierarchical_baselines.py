"""What others do on NVLink domains: best fit, the tightest rack in use, and a spread. No migrations.

An instance of at most a panel goes to one panel, a larger one to free panels of one domain. Each rule is a preference
among (domain, panel); of equals the lowest index wins. A rule looks at every domain, which real ones do, too.
"""

from abc import abstractmethod
from typing import ClassVar, NamedTuple

from compass_abs.model import ClusterState, CompassError, Decision, Job
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.topology import DomainState


class Domain(NamedTuple):
    """A domain as a rule sees it."""

    number: int
    free_gpus: int
    empty_members: int
    is_empty: bool


class DomainRule(Scheduler):
    """Places an instance at a time, each as if those before it were placed; all of a gang or nothing."""

    knows_domains: ClassVar[bool] = True

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state)
        if not isinstance(state, DomainState):
            raise CompassError(f"{self.name} needs a topology; give one with --topology")
        self._domains = state
        self._free: list[int] = []

    @abstractmethod
    def prefer_domain(self, domain: Domain) -> tuple[int, ...]:
        """The key of a domain for an instance larger than a panel; the smallest wins."""

    @abstractmethod
    def prefer_panel(self, domain: Domain, free: int) -> tuple[int, ...]:
        """The key of a panel with this many free GPUs for an instance that fits it; the smallest wins."""

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Starts the job where its rule puts it; or says why not."""
        state = self._domains
        state.check_job(job)
        up = [False] * len(state.nodes)
        for bucket in state.by_free:
            for index in bucket:
                up[index] = True
        # A panel that isn't up is as good as full.
        self._free = [node.free if up[node.index] else 0 for node in state.nodes]
        nodes: list[int] = []
        for _ in range(job.instances):
            chosen = self._place_one(job.gpus)
            if not chosen:
                return self.blocked(job)
            for index in chosen:
                self._free[index] -= min(job.gpus, state.capacity)
            nodes += chosen
        return self.start(job, nodes)

    def _place_one(self, gpus: int) -> list[int]:
        topology = self._domains.topology
        if gpus <= self._domains.capacity:
            best: tuple[tuple[int, ...], int] | None = None
            for domain, first, members in self._each_domain(1):
                for index in range(first, first + members):
                    if self._free[index] >= gpus:
                        key = self.prefer_panel(domain, self._free[index])
                        if best is None or key < best[0]:
                            best = (key, index)
            return [] if best is None else [best[1]]
        level, units = topology.demand(gpus)
        member = 1 if level == 1 else topology.panels(level - 2)
        fitting = [
            (self.prefer_domain(domain), first)
            for domain, first, _ in self._each_domain(level)
            if domain.empty_members >= units
        ]
        if not fitting:
            return []
        first = min(fitting)[1]
        chosen: list[int] = []
        for start in range(first, first + topology.panels(level - 1), member):
            if len(chosen) < units * member and self._is_empty(start, member):
                chosen += range(start, start + member)
        return chosen

    def _is_empty(self, first: int, panels: int) -> bool:
        return all(free == self._domains.capacity for free in self._free[first : first + panels])

    def _each_domain(self, level: int) -> list[tuple[Domain, int, int]]:
        """(domain, its first panel, its panels) of a level of domains."""
        topology = self._domains.topology
        size = topology.panels(level - 1)
        member = 1 if level == 1 else topology.panels(level - 2)
        found = []
        for first in range(0, len(self._free), size):
            free = sum(self._free[first : first + size])
            empty = sum(self._is_empty(start, member) for start in range(first, first + size, member))
            found.append((Domain(first // size, free, empty, free == size * self._domains.capacity), first, size))
        return found


class DomainBestFit(DomainRule):
    """Best fit on every level: the fullest panel that fits, the domain with fewest free panels that fits."""

    name: ClassVar[str] = "hierarchical-best-fit"
    source: ClassVar[str] = "best fit as in GFS, on every level; our reading"

    def prefer_domain(self, domain: Domain) -> tuple[int, ...]:
        """Fewest free panels."""
        return (domain.empty_members, domain.number)

    def prefer_panel(self, domain: Domain, free: int) -> tuple[int, ...]:
        """Fewest free GPUs; of empty panels one in the domain with fewest."""
        return (free, domain.empty_members, domain.number)


class TightestRack(DomainRule):
    """Tightest non-empty rack: first the rack in use with fewest free GPUs, then the fullest panel in it."""

    name: ClassVar[str] = "tightest-rack"
    source: ClassVar[str] = "kubernetes-sigs/kueue #10878: the tightest non-empty leaf"

    def prefer_domain(self, domain: Domain) -> tuple[int, ...]:
        """A domain in use with fewest free GPUs, an empty one last."""
        return (domain.is_empty, domain.free_gpus, domain.number)

    def prefer_panel(self, domain: Domain, free: int) -> tuple[int, ...]:
        """The same, then fewest free GPUs of the panel."""
        return (domain.is_empty, domain.free_gpus, domain.number, free)


class DomainSpread(DomainRule):
    """Spread: the domain with most free GPUs, and the emptiest panel in it."""

    name: ClassVar[str] = "hierarchical-spread"
    source: ClassVar[str] = "kube-scheduler's least-allocated scoring, on every level; our reading"

    def prefer_domain(self, domain: Domain) -> tuple[int, ...]:
        """Most free GPUs."""
        return (-domain.free_gpus, domain.number)

    def prefer_panel(self, domain: Domain, free: int) -> tuple[int, ...]:
        """The same, then most free GPUs of the panel."""
        return (-domain.free_gpus, domain.number, -free)
