"""A comparison from run directories, as `compass simulate --out` and `compass compare --out` write them."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compass_abs.model import Job, NodeStatus
from compass_abs.reporting.comparison import (
    ClusterEvent,
    Comparison,
    Dropped,
    Ended,
    JobView,
    Moved,
    NodeChanged,
    ReportError,
    RunView,
    Started,
    StepSeries,
    node_count,
    with_absences,
)
from compass_abs.reporting.racks import rack_series, view_of
from compass_abs.reporting.settings import settings_shown
from compass_abs.simulation import Result
from compass_abs.simulation.clock import SECOND
from compass_abs.topology import Topology

if TYPE_CHECKING:
    import polars


def comparison_of(directories: Sequence[Path], title: str = "") -> Comparison:
    """The runs side by side; raises unless they replayed the same jobs on clusters of one size."""
    results = [(directory, Result.load(directory)) for directory in _expanded(directories)]
    first_directory, first = results[0]
    jobs = _jobs(first)
    for directory, result in results[1:]:
        if _jobs(result) != jobs:
            raise ReportError(f"{directory} and {first_directory} replayed different jobs; only equals can be compared")
        for key in ("nodes", "capacity"):
            ours, theirs = result.config["setup"][key], first.config["setup"][key]
            if ours != theirs:
                raise ReportError(f"{directory} has {key} {ours} and {first_directory} {theirs}; compare equals")
        if _topology(result) != _topology(first):
            raise ReportError(f"{directory} and {first_directory} have different topologies; compare equals")
    trace, setup = dict(first.config["trace"]), first.config["setup"]
    number = {job.id: j for j, job in enumerate(jobs)}
    names = [directory.name for directory, _ in results]
    runs = [_run(name, result, jobs, number) for name, (_, result) in zip(names, results, strict=True)]
    return Comparison(
        title=title or str(trace.get("name", "Comparison")),
        jobs=jobs,
        nodes=node_count(setup["nodes"], runs),
        runs=runs,
        capacity=setup["capacity"],
        topology=_topology(first),
        subtitle=str(trace.get("date", "")),
        settings=settings_shown(setup, trace),
        dropped=[Dropped(str(reason), int(rows)) for reason, rows in trace.get("dropped", {}).items()],
        notes=[str(note) for note in trace.get("notes", ())],
        epoch=_epoch(trace),
    )


def folder_of(scheduler: str) -> str:
    """Where its run goes, without what some systems don't allow in names: `fft:period=60` goes to `fft-period-60`."""
    return "".join(letter if letter.isalnum() or letter in "-_." else "-" for letter in scheduler)


def _epoch(trace: Mapping[str, Any]) -> float | None:
    """When the trace's clock began, where a run of one day says its date."""
    word, _, number = str(trace.get("part", "")).partition(" ")
    if word != "day" or not number.isdecimal() or not trace.get("date"):
        return None
    midnight = datetime.fromisoformat(str(trace["date"])).replace(tzinfo=UTC)
    return (midnight - timedelta(days=int(number) - 1)).timestamp()


def _expanded(directories: Sequence[Path]) -> list[Path]:
    """Run directories as they are; of a folder that holds several, each."""
    found: list[Path] = []
    for directory in directories:
        inside = sorted(path.parent for path in directory.glob("*/summary.json"))
        found += [directory] if (directory / "summary.json").exists() or not inside else inside
    if not found:
        raise ReportError("there is no run directory to report; give those that `compass simulate --out` wrote")
    return found


def _topology(result: Result) -> Topology | None:
    found = result.config["setup"].get("topology")
    return None if found is None else Topology.of(found)


def _jobs(result: Result) -> list[JobView]:
    topology = _topology(result)
    return [
        view_of(Job(job, instances, gpus), topology, submitted / SECOND)
        for job, instances, gpus, submitted in result.jobs.select(
            "job", "instances", "gpus", "submitted_us"
        ).iter_rows()
    ]


def _run(name: str, result: Result, jobs: Sequence[JobView], number: dict[str, int]) -> RunView:
    setup = result.config["setup"]
    scheduler = str(setup["scheduler"])
    if setup["parameters"]:
        scheduler += ":" + ",".join(f"{key}={value}" for key, value in setup["parameters"].items())
    known = RunView(scheduler, {}).title
    events = with_absences(_events(result.events, jobs, number), setup["nodes"])
    return RunView(
        scheduler,
        result.summary.measured(),
        _series(result.timeseries) | rack_series(events, int(setup["nodes"]), _topology(result)),
        events,
        {key: str(value) for key, value in setup["parameters"].items()},
        label=known if name in (folder_of(scheduler), "bound") else f"{known} ({name})",
    )


def _series(table: "polars.DataFrame") -> dict[str, StepSeries]:
    times = [time / SECOND for time in table["time_us"]]
    pairs = zip(table["busy_gpus"], table["installed_gpus"], strict=True)
    busy = [min(1.0, used / total) if total else 0.0 for used, total in pairs]
    columns: dict[str, Any] = {
        "n_sif": table["n_sif"].to_list(),
        "utilisation": busy,
        "empty_nodes": table["empty_nodes"].to_list(),
        "queue": table["waiting"].to_list(),
    }
    return {key: StepSeries(times, values) for key, values in columns.items()}


def _events(table: "polars.DataFrame", jobs: Sequence[JobView], number: dict[str, int]) -> list[ClusterEvent]:
    """Everything that changes the picture; nothing for an oracle that places its gangs nowhere."""
    found: list[ClusterEvent] = []
    columns = ("time_us", "event", "job", "nodes", "instance", "target", "cause")
    for time_us, event, job, nodes, instance, target, cause in table.select(columns).iter_rows():
        time = time_us / SECOND
        if event == "start":
            if len(nodes) != jobs[number[job]].instances:
                return []
            found.append(Started(time, number[job], tuple(nodes)))
        elif event in ("finish", "lost"):
            found.append(Ended(time, number[job]))
        elif event == "move":
            found.append(Moved(time, number[job], instance, target))
        elif event == "node":
            found.append(NodeChanged(time, nodes[0], int(cause == NodeStatus.UP)))
    return found
