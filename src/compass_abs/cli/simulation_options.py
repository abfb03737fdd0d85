"""Options that `simulate`, `compare` and `demo` share, and what they make of them."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from compass_abs.model import CAPACITIES, CompassError

if TYPE_CHECKING:
    from compass_abs.simulation import Setup
    from compass_abs.simulation.workload import Workload
    from compass_abs.topology import Topology

TraceArgument = Annotated[
    str, typer.Argument(metavar="TRACE", help="A trace by name (compass trace list) or a file.", show_default=False)
]
FormatOption = Annotated[str | None, typer.Option("--format", help="The file's format, where it can't be told.")]
SkipOption = Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out and count them.")]
AnyOrderOption = Annotated[bool, typer.Option("--any-order", help="Sort rows that are not in order of submission.")]
CapacityOption = Annotated[
    int | None, typer.Option("--capacity", help="GPUs of a node; 8 unless the trace says.", show_default=False)
]
TailOption = Annotated[
    bool, typer.Option("--refill-tail", help="Refill durations that the publisher cut, from a fitted tail.")
]
SeedOption = Annotated[int, typer.Option(help="Seed of the refilled tail.")]
DayOption = Annotated[
    int | None, typer.Option(help="Only the jobs submitted on this day; the first calendar day is 1.", min=1)
]
WindowOption = Annotated[
    str | None,
    typer.Option(
        metavar="FROM:TO",
        help="Only the jobs submitted in these seconds, or from date to date; with clock times, FROM/TO.",
    ),
]
EtaOption = Annotated[float, typer.Option(help="Size the cluster by N(η), as in section 5.2 of the paper.")]
NodesOption = Annotated[int | None, typer.Option(help="Size the cluster yourself.", min=1)]
TopologyOption = Annotated[
    str | None,
    typer.Option(
        metavar="PRESET|FILE",
        help="NVLink domains: hgx, dgx2, nvl72, nvl72-16, nvl72-paper, nvl576, nvl576-tiered, or a .yaml file. Nodes "
        "are panels then.",
    ),
]
QueueOption = Annotated[
    str, typer.Option(help="fifo, sjf, smallest, backfill, backfill16, gfs_artifact; most also with +priority.")
]
CostOption = Annotated[float, typer.Option(help="Seconds that a gang stands still for moving instances.")]
CostModelOption = Annotated[
    str, typer.Option(help="paper: one pause an event. strict: room is free only after a checkpoint.")
]
CheckpointOption = Annotated[
    float | None, typer.Option("--checkpoint", help="strict: seconds of the checkpoint (3/8 of the cost if not given).")
]
RestoreOption = Annotated[
    float | None, typer.Option("--restore", help="strict: seconds of the restore (5/8 of the cost if not given).")
]
PeriodOption = Annotated[
    float, typer.Option(help="Seconds of work between periodic checkpoints; 0 keeps all work, inf none.")
]
NodeEventsOption = Annotated[
    Path | None, typer.Option(help="CSV with the columns time,node,status: failures, returns, additions, cordons.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="[SCHEDULER.]NAME=VALUE", help="A parameter of a scheduler; may be repeated."),
]
CheckOption = Annotated[bool, typer.Option("--check", help="Check every invariant after every event.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar, and nothing but the result.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace a run that is there already.")]


class OptionError(CompassError):
    """An option that can't be read, or two that exclude each other."""


def load_workload(
    trace: str,
    format_name: str | None,
    skip_bad_rows: bool,
    refill_tail: bool,
    seed: int,
    day: int | None,
    window: str | None,
    topology: "Topology | None" = None,
    quiet: bool = False,
    any_order: bool = False,
    capacity: int | None = None,
) -> "Workload":
    """The part of the trace that the options name."""
    from compass_abs.cli.progress import reading_bar
    from compass_abs.simulation.workload import day_workload, whole_workload, window_workload
    from compass_abs.traces import BadRows, RowOrder, Tail, read_trace

    if day is not None and window is not None:
        raise OptionError("--day and --window exclude each other; give one")
    if capacity is not None and topology is not None:
        raise OptionError("--capacity and --topology exclude each other; a topology says how large its panels are")
    with reading_bar(trace, quiet) as progress:
        found = read_trace(
            trace,
            format_name,
            BadRows.SKIP if skip_bad_rows else BadRows.RAISE,
            capacity=capacity,
            order=RowOrder.ANY if any_order else None,
            # Instances may be as large as a domain.
            largest_instance=None if topology is None else topology.largest_instance,
            tail=Tail.REFILLED if refill_tail else Tail.AS_PUBLISHED,
            seed=seed,
            progress=progress,
        )
    if day is not None:
        workload = day_workload(found, day)
    elif window is not None:
        workload = window_workload(found, *parse_window(window, found.origin))
    else:
        workload = whole_workload(found)
    given = {
        "format": format_name, "skip_bad_rows": skip_bad_rows, "any_order": any_order, "capacity": capacity,
        "refill_tail": refill_tail, "seed": seed if refill_tail else None,
    }  # fmt: skip
    reading = {name: value for name, value in given.items() if value is not None and value is not False}
    return replace(workload, about={**workload.about, **({"reading": reading} if reading else {})})


def parse_window(text: str, origin: datetime | None = None) -> tuple[float, float]:
    """Two times in seconds from `FROM:TO`, or `FROM/TO` where they have a clock time; dates count from `origin`."""
    first, separator, last = text.partition("/" if "/" in text else ":")
    if not separator:
        raise OptionError(f"--window is {text!r}, expected FROM:TO in seconds or dates, such as 0:86400")
    return _moment(first, text, origin), _moment(last, text, origin)


def _moment(part: str, text: str, origin: datetime | None) -> float:
    try:
        return float(part)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(part).replace(tzinfo=None)
    except ValueError:
        example = "0:86400, 2020-06-17:2020-06-19 or 2020-06-17T21:00/2020-06-17T22:30"
        raise OptionError(f"--window is {text!r}, expected FROM:TO in seconds or dates, such as {example}") from None
    if origin is None:
        raise OptionError(f"--window is {text!r}, but the trace has no dates; give seconds")
    return (moment - origin).total_seconds()


def parse_settings(settings: list[str] | None, schedulers: list[str]) -> dict[str, dict[str, str]]:
    """For each scheduler its parameters, from `name=value` (for all that are compared) or `scheduler.name=value`."""
    found: dict[str, dict[str, str]] = {scheduler: {} for scheduler in schedulers}
    for text in settings or ():
        key, equals, value = text.partition("=")
        owner, dot, name = key.strip().rpartition(".")
        if not equals or not name:
            raise OptionError(f"--set is {text!r}, expected NAME=VALUE or SCHEDULER.NAME=VALUE")
        if dot and owner not in found:
            raise OptionError(f"--set {text}: {owner!r} isn't among the schedulers {', '.join(schedulers)}")
        for scheduler in [owner] if dot else schedulers:
            found[scheduler][name] = value.strip()
    return found


def make_setup(workload: "Workload", scheduler: str, parameters: dict[str, Any], **options: Any) -> "Setup":
    """The setup that the options describe."""
    from compass_abs.simulation import Setup, make_cost, read_node_changes

    topology: Topology | None = options.get("topology")
    if topology is None and workload.trace.capacity not in CAPACITIES:
        raise OptionError(
            f"trace {workload.trace.name!r} has nodes of {workload.trace.capacity} GPUs, which are domains of smaller "
            "ones: give their --topology, such as nvl72"
        )
    if options["nodes"] is not None:
        nodes = options["nodes"]
    elif topology is None:
        nodes = workload.nodes(options["eta"])
    else:
        # N(η) counts the largest domains; nodes are panels.
        nodes = workload.nodes(options["eta"]) * topology.panels_per_domain
    period = options["checkpoint_period"]
    if not period >= 0:
        raise OptionError(f"--checkpoint-period is {period!r}, expected seconds ≥ 0")
    changes = options["node_events"]
    return Setup(
        scheduler=scheduler,
        nodes=nodes,
        capacity=workload.trace.capacity if topology is None else topology.panel_gpus,
        topology=topology,
        parameters=parameters,
        queue=options["queue"],
        cost=make_cost(options["cost_model"], options["cost"], options["checkpoint"], options["restore"]),
        checkpoint_period=None if period == float("inf") else period,
        node_changes=() if changes is None else tuple(read_node_changes(changes)),
    )


def load_topology(name: str | None) -> "Topology | None":
    """The topology of this name or file."""
    from compass_abs.topology import find_topology

    return None if name is None else find_topology(name)


def caveats(workload: "Workload") -> list[str]:
    """What a reader of any result on this workload must be told."""
    found = list(workload.about["notes"])
    if workload.trace.synthetic and not any("synthetic" in note.lower() for note in found):
        found.insert(0, "synthetic jobs, not a recorded trace")
    dropped = workload.trace.dropped
    if dropped:
        found.append("left out of the trace: " + ", ".join(f"{count:,} {why}" for why, count in dropped.items()))
    return found
