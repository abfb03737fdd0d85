"""Everyone who moves jobs pays alike: what the metrics say is what an independent count of the moves comes to."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import pytest

from compass_abs.model import ClusterState, Job, Migration, Mode
from compass_abs.queues import make_queue
from compass_abs.schedulers.registry import make_scheduler, parse_choice
from compass_abs.simulation import PaperCost, Simulation
from compass_abs.simulation.job_record import JobRecord
from compass_abs.simulation.observer import Observer
from tests.schedulers.random_states import SIZES

NODES, JOBS = 6, 90
PAUSE = 8.0
MOVERS = (
    "compass-abs",
    "compass-abs-literal",
    "compass-abs-residual",
    "compass-jit",
    "compass-jit:tidiness=peak",
    "compass-jit:tidiness=always",
    "compass-jit:objective=disruption",
    "sif-opt-moves",
    "fft",
    "drr",
    "threshold",
    "kai",
)


@dataclass
class Witness(Observer):
    """Where each instance is, from starts and moves alone; and in which instants each job moved."""

    at: dict[tuple[str, int], int] = field(default_factory=dict)
    moves: int = 0
    instants: dict[str, set[int]] = field(default_factory=dict)
    restarted: set[str] = field(default_factory=set)
    records: list[JobRecord] = field(default_factory=list)

    def started(self, now: int, record: JobRecord, nodes: Sequence[int]) -> None:
        """Notes the nodes. A move that made room for it is heard of later, but is of other jobs."""
        for k, node in enumerate(nodes):
            self.at[record.job.id, k] = node

    def moved(self, now: int, moves: Sequence[Migration]) -> None:
        """Follows every move from where the instance was last seen."""
        for move in moves:
            assert self.at[move.instance] == move.source
            assert move.target != move.source
            self.at[move.instance] = move.target
            self.moves += 1
            self.instants.setdefault(move.instance.job_id, set()).add(now)
            if move.mode is Mode.RESTART:
                self.restarted.add(move.instance.job_id)

    def finished(self, now: int, record: JobRecord) -> None:
        """Keeps the job's own account."""
        self.records.append(record)


def day_of_jobs() -> list[Job]:
    """A crowded day: arrivals of distinct microseconds, so that an instant is an event."""
    draw, jobs, now = Random(11), [], 0.0
    for k in range(JOBS):
        now += draw.expovariate(1 / 180)
        jobs.append(Job(f"j{k:03d}", draw.choice((1, 1, 1, 2, 3)), draw.choice(SIZES), now, 10 ** draw.uniform(1.5, 4)))
    return jobs


@pytest.mark.parametrize("choice", MOVERS)
def test_mover_in_the_simulator_pays_once_an_event_for_each_job_that_moves(choice: str) -> None:
    name, parameters = parse_choice(choice)
    scheduler = make_scheduler(name, ClusterState(NODES), **parameters)
    witness = Witness()
    queue = make_queue("fifo", scheduler)
    summary = Simulation(day_of_jobs(), scheduler, queue, cost=PaperCost(PAUSE), observer=witness).run()

    assert summary.finished == JOBS
    assert summary.migrations == witness.moves > 0
    assert summary.pauses == sum(len(instants) for instants in witness.instants.values())
    assert summary.delay_mean == pytest.approx(PAUSE * summary.pauses / JOBS)
    for record in witness.records:
        assert record.delay == record.pauses * round(PAUSE * 1e6)
        assert record.pauses == len(witness.instants.get(record.job.id, ()))
        # Only those that restart lose work.
        assert record.redone == 0 or record.job.id in witness.restarted
    disrupted = sum(record.job.total_gpus * record.pauses for record in witness.records)
    assert summary.disrupted_gpu_seconds == pytest.approx(PAUSE * disrupted)
    assert bool(witness.restarted) == (name == "kai")
    assert (summary.redone_gpu_seconds > 0) == (name == "kai")
