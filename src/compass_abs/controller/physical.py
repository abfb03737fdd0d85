"""Phys-Mix on the live system, scheduler by scheduler, and the same run replayed in the simulator."""

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any

from compass_abs.controller.client import Client
from compass_abs.controller.demonstration import live_system
from compass_abs.controller.journal import SqliteJournal
from compass_abs.controller.migration import Phase
from compass_abs.controller.reconcile import Config
from compass_abs.controller.recorded_run import RecordedRun
from compass_abs.controller.records import NodeSeen, Record
from compass_abs.engines.local import Warmth
from compass_abs.model import ClusterState, CompassError, Job
from compass_abs.reporting import Comparison, JobView, RunView, write_report
from compass_abs.reporting.recorder import ReportRecorder
from compass_abs.schedulers.registry import parse_choice
from compass_abs.simulation import Existing, Result, Setup, Summary, record
from compass_abs.simulation.costs import PaperCost
from compass_abs.simulation.results import CONFIG, SUMMARY, check_target
from compass_abs.training.phys_mix import Task

NODES, CAPACITY = 4, 8
#: What `save` writes beside the run directories; by it a later experiment knows what it may replace.
NUMBERS = "physical.json"


@dataclass(frozen=True, slots=True)
class Told:
    """A run, live or simulated, as files and as the report draws it."""

    result: Result
    view: RunView
    jobs: Sequence[JobView]

    @property
    def summary(self) -> Summary:
        """The metrics of the run."""
        return self.result.summary


@dataclass(frozen=True, slots=True)
class PhysicalRun:
    """One scheduler on the live system, and what the simulator makes of it at the measured mean latency."""

    scheduler: str
    live: Told
    replayed: Told
    #: Seconds of each migration, by phase.
    latencies: tuple[dict[str, float], ...]

    @property
    def mean_latency(self) -> float:
        """Mean seconds that a migration took; 0 when there was none."""
        return _mean_latency(self.latencies)

    @property
    def apart(self) -> float:
        """By how much of the live AJCT the simulator is off; positive when it takes jobs to complete later."""
        live = self.live.summary.ajct
        return (self.replayed.summary.ajct - live) / live if live else 0.0

    def as_dict(self) -> dict[str, Any]:
        """Everything in numbers."""
        return {
            "scheduler": self.scheduler,
            "live": self.live.summary.as_dict(),
            "replayed": self.replayed.summary.as_dict(),
            "apart": self.apart,
            "mean_latency": self.mean_latency,
            "latencies": list(self.latencies),
        }


def check_plan(schedulers: Sequence[str], directory: Path, existing: Existing) -> None:
    """Raises unless each of these can be run and the results be written there: asked before hours of training."""
    for number, scheduler in enumerate(schedulers):
        if scheduler in schedulers[:number]:
            raise CompassError(f"scheduler {scheduler!r} is named twice; its results would replace each other")
        _config(scheduler).check()
    check_target(directory, existing, (NUMBERS,))


def _config(scheduler: str) -> Config:
    name, parameters = parse_choice(scheduler)
    return Config(scheduler=name, parameters=parameters)


def run_physical(
    tasks: Sequence[Task], scheduler: str, warmth: Warmth, say: Callable[[str], None], patience: float = 7200.0
) -> PhysicalRun:
    """Submits the tasks when they arrive, waits for all of them, measures, and replays."""
    config = _config(scheduler)
    with TemporaryDirectory(prefix="compass-physical-", ignore_cleanup_errors=True) as folder:
        with live_system(Path(folder), 0, config, NODES, CAPACITY, warmth) as client:
            say(f"{scheduler}: dashboard {client.url}/")
            began, due = _submit_all(client, tasks)
            _wait(client, list(due), time.monotonic() + patience)
        with SqliteJournal(Path(folder) / "journal.sqlite") as journal:
            records = list(journal.replay())
    return told(records, scheduler, began, due)


def told(records: Sequence[Record], scheduler: str, began: float, due: dict[str, float]) -> PhysicalRun:
    """What a journal tells of a run that began then and whose jobs were due so many seconds later."""
    names = list(dict.fromkeys(each.name for each in records if isinstance(each, NodeSeen)))
    run = RecordedRun(names, CAPACITY, began, due)
    run.play(records)
    name, parameters = parse_choice(scheduler)
    pause = _mean_latency(run.latencies)
    setup = Setup(name, len(names), CAPACITY, parameters, cost=PaperCost(pause))
    source = f"compass experiment physical: {len(names)} × {CAPACITY} GPU slots of one machine"
    live = run.result(setup, {"name": "Phys-Mix, live", "source": source})
    return PhysicalRun(
        scheduler,
        Told(live, run.view(scheduler), run.jobs),
        _replay(run.done, setup, scheduler, source),
        tuple(run.latencies),
    )


def _submit_all(client: Client, tasks: Sequence[Task]) -> tuple[float, dict[str, float]]:
    """When it began, and how many seconds later each job was due: the same under every scheduler."""
    first = min(task.job.submitted for task in tasks)
    wall, began = time.time(), time.monotonic()
    due = {}
    for task in sorted(tasks, key=lambda task: task.job.submitted):
        when = task.job.submitted - first
        time.sleep(max(0.0, when - (time.monotonic() - began)))
        due[client.submit_fields(task.spec())] = when
    return wall, due


def _wait(client: Client, ids: list[str], deadline: float) -> None:
    left = dict.fromkeys(ids)
    while left:
        if time.monotonic() > deadline:
            raise CompassError(f"not over in time: {', '.join(left)}")
        for job_id in ids:
            if job_id in left and client.get(f"/jobs/{job_id}")["ended"] is not None:
                del left[job_id]
        time.sleep(0.5)


def _replay(jobs: Sequence[Job], setup: Setup, scheduler: str, source: str) -> Told:
    """What the simulator makes of the arrivals and service times that were recorded."""
    watching: list[ReportRecorder] = []

    def observe(state: ClusterState) -> ReportRecorder:
        watching.append(ReportRecorder(state))
        return watching[0]

    result = record(jobs, setup, about={"name": "Phys-Mix, replayed", "source": source}, observe=observe)
    return Told(result, watching[0].run_view(scheduler, result.summary), watching[0].jobs)


def _mean_latency(latencies: Sequence[dict[str, float]]) -> float:
    return _mean([sum(each.values()) for each in latencies])


def _mean(values: Sequence[float]) -> float:
    return fmean(values) if values else 0.0


# ---- what is kept


def save(runs: Sequence[PhysicalRun], directory: Path) -> Path:
    """Writes run directories and reports like the simulator's, `physical.json`, and the tables in Markdown."""
    _remove_other_runs(directory, {run.scheduler for run in runs})
    for run in runs:
        run.live.result.save(directory / "live" / run.scheduler, Existing.REPLACE)
        run.replayed.result.save(directory / "replayed" / run.scheduler, Existing.REPLACE)
    write_report(_comparison("Phys-Mix on the live system", [run.live for run in runs], runs), directory / "live.html")
    replayed = [run.replayed for run in runs if run.replayed.jobs == runs[0].replayed.jobs]
    write_report(_comparison("Phys-Mix, replayed in the simulator", replayed, runs), directory / "replayed.html")
    rows = [run.as_dict() for run in runs]
    (directory / NUMBERS).write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    (directory / "physical.md").write_text(tables(runs), encoding="utf-8")
    return directory


def _remove_other_runs(directory: Path, schedulers: set[str]) -> None:
    """Runs of an earlier experiment: beside those of a new one they would be taken for part of it."""
    for way in ("live", "replayed"):
        for path in (directory / way).iterdir() if (directory / way).is_dir() else ():
            is_run = (path / CONFIG).is_file() and (path / SUMMARY).is_file()
            if is_run and not path.is_symlink() and path.name not in schedulers:
                shutil.rmtree(path)


def _comparison(title: str, shown: Sequence[Told], runs: Sequence[PhysicalRun]) -> Comparison:
    setup = shown[0].result.config["setup"]
    return Comparison(
        title=title,
        jobs=shown[0].jobs,
        nodes=setup["nodes"],
        runs=[each.view for each in shown],
        capacity=setup["capacity"],
        settings={"queue": setup["queue"], "migration cost": "as measured, see the notes"},
        notes=[
            f"{run.live.view.title}: {_told(run)}; replayed in the simulator, AJCT is {run.apart:+.1%} apart"
            for run in runs
        ],
    )


def _told(run: PhysicalRun) -> str:
    if not run.latencies:
        return "no migration"
    return f"{len(run.latencies)} migrations, {run.mean_latency:.2f} s on average"


def tables(runs: Sequence[PhysicalRun]) -> str:
    """The runs side by side, live and as the simulator replays them, and how long migrations took."""
    both = ("AJCT s", "AFR", "AGU", "moves")
    head = ["scheduler", "done", *(cell for name in both for cell in (name, "replayed")), "AJCT apart"]
    lines = [_row(head), _rule(head)]
    for run in runs:
        live, sim = run.live.summary, run.replayed.summary
        cells = [run.scheduler, f"{live.finished}/{live.jobs}", f"{live.ajct:.1f}", f"{sim.ajct:.1f}"]
        cells += [f"{each or 0:.3f}" for each in (live.afr, sim.afr, live.agu, sim.agu)]
        lines.append(_row([*cells, str(live.migrations), str(sim.migrations), f"{run.apart:+.1%}"]))
    head = ["scheduler", "migrations", *(phase.value.replace("_", " ") for phase in Phase), "whole", "longest"]
    lines += ["", "Seconds of a migration, on average:", "", _row(head), _rule(head)]
    for run in runs:
        phases = [_mean([each.get(phase, 0.0) for each in run.latencies]) for phase in Phase]
        longest = max((sum(each.values()) for each in run.latencies), default=0.0)
        # What didn't happen took no time at all, not 0 seconds.
        seconds = [f"{each:.2f}" if run.latencies else "–" for each in (*phases, run.mean_latency, longest)]
        lines.append(_row([run.scheduler, str(len(run.latencies)), *seconds]))
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _rule(cells: Sequence[str]) -> str:
    return "|---" + "|---:" * (len(cells) - 1) + "|"


def shortened(tasks: Sequence[Task], jobs: int) -> list[Task]:
    """The first so many tasks, from time 0 on."""
    chosen = sorted(tasks, key=lambda task: task.job.submitted)[:jobs]
    first = chosen[0].job.submitted if chosen else 0.0
    return [replace(task, job=replace(task.job, submitted=task.job.submitted - first)) for task in chosen]
