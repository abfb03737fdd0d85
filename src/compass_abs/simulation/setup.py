"""What is simulated, as data: a scheduler by name, a cluster, a queue, a cost model."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from compass_abs.model import ClusterState, CompassError, Job
from compass_abs.queues import make_queue
from compass_abs.schedulers.registry import make_scheduler, names, scheduler_class
from compass_abs.simulation.costs import Cost, PaperCost
from compass_abs.simulation.driver import CHECKPOINT_PERIOD, Checks, Simulation
from compass_abs.simulation.node_changes import NodeChange
from compass_abs.simulation.observer import Observer
from compass_abs.simulation.summary import Summary
from compass_abs.topology import DomainState, Topology

#: The oracle behind the bound, by its name in the registry.
BOUND, DOMAIN_BOUND = "sif-opt", "hierarchical-opt"


#: Ten times the nodes of the largest cluster in print are a typing error, and a million take a gigabyte.
MOST_NODES = 1_000_000


class SetupError(CompassError):
    """A simulation that can't be set up as described."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A scheduler on a cluster; together with the jobs it determines every result."""

    scheduler: str
    nodes: int
    capacity: int = 8
    parameters: Mapping[str, Any] = field(default_factory=dict)
    queue: str = "fifo"
    cost: Cost = field(default_factory=PaperCost)
    #: Seconds of work between periodic checkpoints; 0 keeps everything, None nothing.
    checkpoint_period: float | None = CHECKPOINT_PERIOD
    node_changes: tuple[NodeChange, ...] = ()
    #: How the nodes, which are panels then, make domains; None for a flat cluster.
    topology: Topology | None = None

    def __post_init__(self) -> None:
        if type(self.nodes) is not int or self.nodes < 1:
            raise SetupError(f"nodes is {self.nodes!r}, expected a whole number ≥ 1")
        if self.nodes > MOST_NODES:
            raise SetupError(f"nodes is {self.nodes:,}, expected at most {MOST_NODES:,}")
        if self.topology is not None:
            self.topology.domains(self.nodes)
            if self.capacity != self.topology.panel_gpus:
                raise SetupError(
                    f"capacity is {self.capacity}, but a {self.topology.panel_name} of topology {self.topology.name!r} "
                    f"has {self.topology.panel_gpus} GPUs; leave one of them out"
                )

    @property
    def cluster(self) -> str:
        """The cluster in words."""
        if self.topology is None:
            return f"{self.nodes} nodes of {self.capacity} GPUs"
        return self.topology.described(self.nodes)

    def as_dict(self) -> dict[str, Any]:
        """Everything, as plain values that a configuration file can hold."""
        shape = {} if self.topology is None else {"topology": asdict(self.topology)}
        return {
            "scheduler": self.scheduler,
            "parameters": dict(self.parameters),
            "nodes": self.nodes,
            "capacity": self.capacity,
            **shape,
            "queue": self.queue,
            "cost": {"model": self.cost.model, **asdict(self.cost)},
            "checkpoint_period": self.checkpoint_period,
            "node_changes": [
                {"time": change.time, "node": change.node, "status": str(change.status)} for change in self.node_changes
            ],
        }

    def simulation(
        self,
        jobs: Iterable[Job],
        *,
        history: Iterable[Job] = (),
        observe: Callable[[ClusterState], Observer] | None = None,
        checks: Checks = Checks.NEVER,
        progress: Callable[[int], None] | None = None,
    ) -> Simulation:
        """The simulation, ready to run; `observe` makes its observer from the cluster's state."""
        self._check_domains()
        scheduler = make_scheduler(self.scheduler, self.state(), **self.parameters)
        return Simulation(
            jobs,
            scheduler,
            make_queue(self.queue, scheduler),
            cost=self.cost,
            node_changes=self.node_changes,
            checkpoint_period=self.checkpoint_period,
            history=history,
            observer=None if observe is None else observe(scheduler.state),
            checks=checks,
            progress=progress,
        )

    def state(self) -> ClusterState:
        """The empty cluster."""
        if self.topology is None:
            return ClusterState(self.nodes, self.capacity)
        return DomainState(self.nodes, self.topology)

    def _check_domains(self) -> None:
        topology = self.topology
        if topology is None or topology.panels_per_domain == 1 or scheduler_class(self.scheduler).knows_domains:
            return
        known = ", ".join(name for name in names() if scheduler_class(name).knows_domains)
        raise SetupError(
            f"scheduler {self.scheduler!r} knows no domains such as the {topology.levels[0].name}s of topology "
            f"{topology.name!r}; take one of {known}"
        )

    def held(self, job: Job) -> Job:
        """The job as its nodes hold it: in whole panels, where its instances are larger than one."""
        return job if self.topology is None else self.topology.pieces(job)

    def bound(self) -> "Setup":
        """The same queue on a cluster that fragmentation cannot hurt."""
        return replace(self, scheduler=BOUND if self.topology is None else DOMAIN_BOUND, parameters={})


def replay(jobs: Iterable[Job], setup: Setup, **options: Any) -> Summary:
    """The metrics of a setup on these jobs; `options` are those of `Setup.simulation`."""
    return setup.simulation(jobs, **options).run()
