"""One run of a study: a day, a cluster, a scheduler."""

import time
from dataclasses import dataclass
from typing import Any

from compass_abs.experiments.fingerprint import code_version, fingerprint
from compass_abs.experiments.study import WindowSpec, Workload
from compass_abs.experiments.window import WindowMeter
from compass_abs.experiments.workloads import cluster_nodes, day_of_work, pin, source_version
from compass_abs.model import ClusterState

#: Schedulers that never move an instance, so that neither the cost of a move nor pinned jobs change their results.
NEVER_MOVING = frozenset(
    ("sif-opt", "gfs", "best-fit", "fgd", "cafgd", "mcg", "first-fit", "random", "spread", "pack", "slurm")
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A point of the grid."""

    workload: Workload
    day: int
    #: η, or None when `nodes` is given.
    eta: float | None
    nodes: int | None
    scheduler: str
    queue: str
    cost: float
    pinned: float
    window: WindowSpec | None = None

    @property
    def moves(self) -> bool:
        """Whether this scheduler may move anything."""
        return self.scheduler.partition(":")[0] not in NEVER_MOVING

    def columns(self) -> dict[str, Any]:
        """What identifies this run in tables."""
        return {
            "trace": self.workload.name,
            "day": self.day,
            "eta": self.eta,
            "scheduler": self.scheduler,
            "queue": self.queue,
            "cost": self.cost,
            "pinned": self.pinned,
        }

    def key(self) -> str:
        """Equal for runs that must come out equal: same jobs, same cluster, same rules, same code."""
        content = {
            "source": source_version(self.workload),
            "day": self.day,
            "eta": self.eta,
            "nodes": self.nodes,
            "scheduler": self.scheduler,
            "queue": self.queue,
            "cost": self.cost if self.moves else None,
            "pinned": [self.pinned, self.workload.seed] if self.moves and self.pinned else None,
            "window": self.window.model_dump() if self.window else None,
            "code": code_version(),
        }
        return fingerprint(content)


def run_cell(cell: Cell) -> dict[str, Any]:
    """Replays one day; returns its metrics, its cluster's size, and how long it took."""
    from compass_abs.schedulers.registry import parse_choice
    from compass_abs.simulation import PaperCost, Setup

    work = day_of_work(cell.workload, cell.day)
    nodes = cell.nodes
    if nodes is None:
        assert cell.eta is not None
        nodes = cluster_nodes(cell.workload, cell.day, cell.eta)
    name, parameters = parse_choice(cell.scheduler)
    setup = Setup(name, nodes, work.trace.capacity, parameters, cell.queue, PaperCost(cell.cost if cell.moves else 0.0))
    jobs = pin(work.trace.jobs, cell.pinned, cell.workload.seed) if cell.moves else work.trace.jobs
    meters: list[WindowMeter] = []

    def watch(state: ClusterState) -> WindowMeter:
        assert cell.window is not None
        meters.append(WindowMeter(cell.window, cell.day, state))
        return meters[0]

    simulation = setup.simulation(jobs, history=work.history, observe=watch if cell.window else None)
    started = time.perf_counter()
    summary = simulation.run()
    seconds = time.perf_counter() - started
    result: dict[str, Any] = {"summary": summary.as_dict(), "nodes": nodes, "seconds": seconds}
    for meter in meters:
        result["window"] = meter.summary()
        result["series"] = meter.series()
    return result
