"""Synthetic days on NVL72 racks: who makes rack-sized gangs wait, who keeps racks empty, and what moves for it.

    python -m benchmarks.racks                                    # 10 days, the paper's racks of 9 panels of 8 GPUs
    python -m benchmarks.racks --topology nvl72-16 --largest 64   # 16 of 18 trays of 4 GPUs

FIFO for all, 8 s once an event and gang. The bound is `hierarchical-opt`: exact packings on every level, free moves.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import mean

from compass_abs.model import ClusterState, Job
from compass_abs.simulation import Setup
from compass_abs.simulation.clock import SECOND
from compass_abs.simulation.job_record import JobRecord
from compass_abs.simulation.meter import Meter
from compass_abs.simulation.observer import Observer
from compass_abs.simulation.setup import DOMAIN_BOUND
from compass_abs.topology import Topology, find_topology
from compass_abs.traces import cluster_size
from compass_abs.traces.synthesis import synthesize
from compass_abs.traces.workloads import workload

SCHEDULERS = (
    DOMAIN_BOUND,
    "hierarchical-jit",
    "hierarchical",
    "hierarchical-literal",
    "hierarchical-best-fit",
    "tightest-rack",
    "hierarchical-spread",
)
COLUMNS = ("AJCT / bound", "gang waits s", "rack head %", "empty racks", "moves/job", "GPU-s/job", "CPU s")


class RackObserver(Observer):
    """Empty racks and blocked rack-sized heads, weighed with how long they lasted."""

    def __init__(self, state: ClusterState, topology: Topology) -> None:
        self.state = state
        self.topology = topology
        self.empty = self.total = self.blocked = 0
        self.waits: list[float] = []
        self._head: Job | None = None

    def refused(self, now: int, job: Job, reason: object) -> None:
        """Under FIFO that is the head, until it starts."""
        self._head = job

    def started(self, now: int, record: JobRecord, nodes: Sequence[int]) -> None:
        """A gang of whole racks notes how long it waited."""
        if self._is_rack_sized(record.job):
            self.waits.append((now - record.submitted) / SECOND)
        self._head = None

    def passed(self, now: int, until: int, meter: Meter, busy: int, waiting: int) -> None:
        """Counts racks that hold nothing, and time in which a gang of racks waits though its GPUs are free."""
        span, size = until - now, self.topology.levels[0].usable
        in_use = {node // size for gang in self.state.gangs.values() for node in gang.nodes}
        self.total += span
        self.empty += span * (len(self.state.nodes) // size - len(in_use))
        head = self._head if waiting else None
        if head is not None and self._is_rack_sized(head) and self.state.free_gpus >= head.total_gpus:
            self.blocked += span

    def _is_rack_sized(self, job: Job) -> bool:
        return job.gpus > self.topology.gpus(0) - self.topology.panel_gpus


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", default="nvl72-paper")
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--eta", type=float, default=0.9)
    parser.add_argument("--load", type=float, default=1.0, help="times the jobs of a day")
    parser.add_argument(
        "--largest", type=int, default=72, help="GPUs of the largest instance; larger ones are cut to it"
    )
    arguments = parser.parse_args()
    topology = find_topology(arguments.topology)
    days = [day_of_racks(seed, arguments.load, arguments.largest) for seed in range(arguments.days)]
    print(f"{topology.name}, {len(days)} synthetic days, {sum(map(len, days)):,} jobs, η = {arguments.eta}")
    print(f"{'scheduler':24}" + "".join(f"{name:>14}" for name in COLUMNS))
    bound = [measure(DOMAIN_BOUND, jobs, topology, arguments.eta)[0] for jobs in days]
    for name in SCHEDULERS:
        rows = [measure(name, jobs, topology, arguments.eta) for jobs in days]
        ajct = mean(row[0] / least for row, least in zip(rows, bound, strict=True))
        others = [mean(column) for column in zip(*(row[1:] for row in rows), strict=True)]
        print(f"{name:24}{ajct:14.4f}" + "".join(f"{value:14.2f}" for value in others), flush=True)


def day_of_racks(seed: int, load: float, largest: int) -> list[Job]:
    """The jobs of one synthetic day."""
    model = workload("nvl72")
    model = replace(model, jobs_per_day=model.jobs_per_day * load)
    return [replace(job, gpus=min(job.gpus, largest)) for job in synthesize(model, 1, seed).jobs]


def measure(name: str, jobs: list[Job], topology: Topology, eta: float) -> tuple[float, ...]:
    """AJCT, and the other columns, of one day."""
    racks = cluster_size(jobs, eta, topology.largest_instance)
    setup = Setup(name, racks * topology.panels_per_domain, topology.panel_gpus, topology=topology)
    watching: list[RackObserver] = []

    def observe(state: ClusterState) -> RackObserver:
        watching.append(RackObserver(state, topology))
        return watching[-1]

    start = time.process_time()
    summary = setup.simulation(jobs, observe=observe).run()
    seen = watching[-1]
    # The bound places nothing anywhere, so it keeps no rack in particular.
    empty = float("nan") if name == DOMAIN_BOUND else seen.empty / seen.total
    return (
        summary.ajct,
        mean(seen.waits) if seen.waits else 0.0,
        100 * seen.blocked / seen.total,
        empty,
        summary.migrations_per_job,
        summary.disrupted_gpu_seconds / len(jobs),
        time.process_time() - start,
    )


if __name__ == "__main__":
    main()
