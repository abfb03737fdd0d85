"""The state of a pool whose nodes are panels of larger domains."""

from collections.abc import Sequence

from compass_abs.model import ClusterState, Gang, InvalidJobError, Job, NodeStatus, PlacementError
from compass_abs.topology.topology import Topology


class DomainState(ClusterState):
    """Panels as nodes. An instance larger than a panel is held as *pieces*: whole panels of one domain.

    `gangs`, `demand` and every index speak of pieces, so that whatever counts GPUs, full panels or moves needs to know
    nothing of domains. `place` takes the job as it was submitted and `release` gives it back, with the panels of
    instance 0 first, then those of instance 1, and so on.
    """

    __slots__ = ("topology", "whole")

    def __init__(self, nodes: int | Sequence[str], topology: Topology, pool: str = "") -> None:
        names = topology.panel_names(nodes) if isinstance(nodes, int) else list(nodes)
        self.topology = topology
        #: Running jobs with instances larger than a panel, as they were submitted.
        self.whole: dict[str, Job] = {}
        super().__init__(names, topology.panel_gpus, pool)

    # ---- domains

    @property
    def panels_per_domain(self) -> int:
        """Panels of the smallest domain (K)."""
        return self.topology.levels[0].usable

    def domain_of(self, panel: int) -> int:
        """The smallest domain that a panel belongs to."""
        return panel // self.topology.levels[0].usable

    def job(self, job_id: str) -> Job:
        """A running job as it was submitted."""
        found = self.whole.get(job_id)
        return self.gangs[job_id].job if found is None else found

    def pieces(self, job: Job) -> Job:
        """The job as it is held: itself, or a gang of whole panels."""
        return self.topology.pieces(job)

    def room(self, gpus: int) -> int:
        """How many instances of this size fit now, without moving anything."""
        if gpus <= self.capacity:
            return super().room(gpus)
        level, units = self.topology.demand(gpus)
        member = 1 if level == 1 else self.topology.panels(level - 2)
        each = self.topology.levels[level - 1].usable
        empty = self.by_free[self.capacity]
        room = 0
        for first in range(0, len(self.nodes), member * each):
            members = range(first, min(first + member * each, len(self.nodes)), member)
            free = sum(all(panel in empty for panel in range(start, start + member)) for start in members)
            room += free // units
        return room

    def most_instances(self, gpus: int) -> int:
        """How many instances of this size the panels that are up could hold if they were empty.

        Of those larger than a panel: if every panel were up.
        """
        if gpus <= self.capacity:
            return super().most_instances(gpus)
        level, units = self.topology.demand(gpus)
        panels = self.topology.panels(level - 1)
        return len(self.nodes) // panels * (self.topology.levels[level - 1].usable // units)

    # ---- gangs

    def check_job(self, job: Job) -> None:
        """Raises unless the job makes sense on this pool and is not running yet."""
        if job.gpus > self.topology.largest_instance:
            raise InvalidJobError(
                f"job {job.id!r}: gpus is {job.gpus}, but the largest domain of topology {self.topology.name!r} has "
                f"{self.topology.largest_instance}; split it into more instances of fewer GPUs"
            )
        super().check_job(self.pieces(job))

    def place(self, job: Job, nodes: Sequence[int]) -> None:
        """Starts a gang: on `nodes[k]`, or larger instances on their panels, instance by instance."""
        if job.gpus <= self.capacity:
            super().place(job, nodes)
            return
        self.check_job(job)
        each = self.topology.panels_of(job.gpus)
        domain = self.topology.panels(self.topology.demand(job.gpus).level - 1)
        for first in range(0, len(nodes), each):
            own = nodes[first : first + each]
            if min(own) // domain != max(own) // domain:
                raise PlacementError(
                    f"job {job.id!r}: instance {first // each} would span {len(own)} panels of more than one domain"
                )
        super().place(self.pieces(job), nodes)
        self.whole[job.id] = job

    def release(self, job_id: str) -> Gang:
        """Ends a gang and says where it had been."""
        gang = super().release(job_id)
        whole = self.whole.pop(job_id, None)
        return gang if whole is None else Gang(whole, gang.nodes)

    def set_status(self, name: str, status: NodeStatus) -> tuple[Job, ...]:
        """Cordons, drains, loses or brings back a panel; says which gangs a loss took with it."""
        running = {instance.job_id: self.job(instance.job_id) for instance in self.node(name).contents}
        return tuple(running[job.id] for job in super().set_status(name, status))
