"""Phys-Mix on the live system, scheduler by scheduler, and the same run replayed in the simulator."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from compass_abs.controller.client import Client
from compass_abs.controller.demonstration import live_system
from compass_abs.controller.reconcile import Config
from compass_abs.engines.local import Warmth
from compass_abs.model import ClusterState, CompassError, Job
from compass_abs.schedulers.registry import make_scheduler, parse_choice
from compass_abs.simulation.costs import PaperCost
from compass_abs.simulation.driver import simulate
from compass_abs.training.phys_mix import Task

NODES, CAPACITY = 4, 8


@dataclass(frozen=True, slots=True)
class Measures:
    """The paper's three metrics, and what moved."""

    ajct: float
    afr: float
    agu: float
    migrations: int


@dataclass(frozen=True, slots=True)
class PhysicalRun:
    """One scheduler on the live system."""

    scheduler: str
    jobs: int
    done: int
    live: Measures
    #: The recorded arrivals and service times, decided and moved by the simulator at the measured mean latency.
    replayed: Measures
    #: Seconds of each migration, by phase.
    latencies: tuple[dict[str, float], ...]

    @property
    def mean_latency(self) -> float:
        """Mean seconds that a migration took; 0 when there was none."""
        return _mean([sum(each.values()) for each in self.latencies])


def run_physical(
    tasks: Sequence[Task], scheduler: str, warmth: Warmth, say: Callable[[str], None], patience: float = 7200.0
) -> PhysicalRun:
    """Submits the tasks when they arrive, waits for all of them, measures, and replays."""
    name, parameters = parse_choice(scheduler)
    config = Config(scheduler=name, parameters=parameters)
    with live_system(None, 0, config, NODES, CAPACITY, warmth) as client:
        say(f"{scheduler}: dashboard {client.url}/")
        ids = _submit_all(client, tasks)
        jobs = _wait(client, ids, time.monotonic() + patience)
        samples = [sample for sample in client.get("/history")["samples"] if sample["waiting"]]
    over = [job for job in jobs if job["phase"] == "done"]
    past = [each for job in over for each in job["history"] if each["outcome"] == "done"]
    live = Measures(
        ajct=_mean([job["ended"] - job["submitted"] for job in over]),
        afr=_mean([sample["sif"] for sample in samples]),
        agu=_mean([sample["utilisation"] for sample in samples]),
        # As the simulator counts: instances that changed nodes.
        migrations=sum(old != new for each in past for old, new in zip(each["sources"], each["targets"], strict=True)),
    )
    latencies = tuple(each["seconds"] for each in past)
    pause = _mean([sum(each.values()) for each in latencies])
    return PhysicalRun(scheduler, len(jobs), len(over), live, _replay(over, scheduler, pause), latencies)


def _submit_all(client: Client, tasks: Sequence[Task]) -> list[str]:
    began, first = time.monotonic(), min(task.job.submitted for task in tasks)
    ids = []
    for task in sorted(tasks, key=lambda task: task.job.submitted):
        time.sleep(max(0.0, task.job.submitted - first - (time.monotonic() - began)))
        ids.append(client.submit_fields(task.spec()))
    return ids


def _wait(client: Client, ids: list[str], deadline: float) -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    while len(found) < len(ids):
        if time.monotonic() > deadline:
            raise CompassError(f"not over in time: {', '.join(job for job in ids if job not in found)}")
        for job_id in ids:
            if job_id not in found and (job := client.get(f"/jobs/{job_id}"))["ended"] is not None:
                found[job_id] = job
        time.sleep(0.5)
    return [found[job_id] for job_id in ids]


def _replay(jobs: Sequence[dict[str, Any]], scheduler: str, pause: float) -> Measures:
    """What the simulator makes of the arrivals and service times that were recorded."""
    if not jobs:
        return Measures(0.0, 0.0, 0.0, 0)
    first = min(job["submitted"] for job in jobs)
    recorded = [
        Job(job["id"], job["instances"], job["gpus"], job["submitted"] - first, _service(job))
        for job in sorted(jobs, key=lambda job: (job["submitted"], job["id"]))
    ]
    name, parameters = parse_choice(scheduler)
    state = ClusterState(NODES, CAPACITY)
    summary = simulate(recorded, make_scheduler(name, state, **parameters), cost=PaperCost(pause))
    return Measures(summary.ajct, summary.afr or 0.0, summary.agu or 0.0, summary.migrations)


def _service(job: dict[str, Any]) -> float:
    """Seconds a job ran, its pauses for migrations left out."""
    paused = sum(sum(each["seconds"].values()) for each in job["history"])
    return max(0.001, float(job["ended"]) - float(job["started"]) - paused)


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


def save(runs: Sequence[PhysicalRun], directory: Path) -> Path:
    """Writes `physical.json` and a table in Markdown."""
    directory.mkdir(parents=True, exist_ok=True)
    rows = [{**asdict(run), "mean_latency": run.mean_latency} for run in runs]
    (directory / "physical.json").write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    (directory / "physical.md").write_text(table(runs), encoding="utf-8")
    return directory


def table(runs: Sequence[PhysicalRun]) -> str:
    """The runs side by side: live, and as the simulator replays them."""
    head = (
        "scheduler",
        "done",
        "AJCT s",
        "replayed",
        "AFR",
        "replayed",
        "AGU",
        "replayed",
        "moves",
        "replayed",
        "s a move",
    )
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for run in runs:
        live, sim = run.live, run.replayed
        cells = [run.scheduler, f"{run.done}/{run.jobs}", f"{live.ajct:.1f}", f"{sim.ajct:.1f}"]
        cells += [f"{live.afr:.3f}", f"{sim.afr:.3f}", f"{live.agu:.3f}", f"{sim.agu:.3f}"]
        cells += [str(live.migrations), str(sim.migrations), f"{run.mean_latency:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def shortened(tasks: Sequence[Task], jobs: int) -> list[Task]:
    """The first so many tasks, from time 0 on."""
    chosen = sorted(tasks, key=lambda task: task.job.submitted)[:jobs]
    first = chosen[0].job.submitted if chosen else 0.0
    return [replace(task, job=replace(task.job, submitted=task.job.submitted - first)) for task in chosen]
