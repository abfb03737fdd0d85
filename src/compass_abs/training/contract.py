"""What an engine and a training process say to each other: environment variables and small files.

A gang has one control directory per generation. The engine writes `request.json`; each process answers with
`ack-<rank>.json` and tells how it fares in `progress-<rank>.json`. A process that was asked to hold then waits for
its own `directive-<instance>.json`. Every file is replaced by a rename, so a reader never sees half of one, and a
repeated or lost signal does no harm: the signal only says "look now", the files say what to do.

`docs/checkpoint-contract.md` is this page for people.
"""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar

from compass_abs.model import CompassError

#: Signal that makes a process look into its control directory at its next step boundary, without SIG.
#: NCCL is said to catch USR1 in places, so it can be changed by this variable.
NUDGE_VARIABLE = "COMPASS_NUDGE_SIGNAL"
DEFAULT_NUDGE = "USR1"

REQUEST_FILE = "request.json"
GO_FILE = "go.json"

Message = TypeVar("Message")

#: Far above any message of ours; a larger file is not one.
_LARGEST_MESSAGE = 1 << 20


class ContractError(CompassError):
    """A message or variable that breaks the contract between engine and process."""


class RequestKind(StrEnum):
    """What a process does at the next step boundary that all ranks agree on."""

    CHECKPOINT = "checkpoint"
    """Save, acknowledge, train on."""
    STOP = "checkpoint-and-stop"
    """Save, acknowledge, exit with 0."""
    HOLD = "checkpoint-and-hold"
    """Save, acknowledge, keep the process and its state, and wait for a directive."""
    REFORM = "reform"
    """Like HOLD for the instances that stay, like STOP for those named in `movers`."""


class DirectiveKind(StrEnum):
    """What a held process does next."""

    RESUME = "resume"
    """Train on in the old process group: the migration was called off."""
    REJOIN = "rejoin"
    """Leave the old process group and meet the gang of the next generation, in place."""
    STOP = "stop"
    """Exit with 0."""


class ProcessState(StrEnum):
    """Where a process is in its life, as it says itself."""

    STARTING = "starting"
    WAITING = "waiting"
    """Built, and waiting for `go.json` (see `Worker.hold`)."""
    RUNNING = "running"
    """At least one step is done since it started or rejoined: training has really resumed."""
    HELD = "held"
    STOPPED = "stopped"
    """Left after a checkpoint, by request."""
    FINISHED = "finished"
    """Did all its steps."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Request:
    """`request.json`, written by the engine; a new id is a new request."""

    id: str
    kind: RequestKind
    #: Instance numbers that leave; of REFORM only.
    movers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Directive:
    """`directive-<instance>.json`, written by the engine for a held process."""

    #: Id of the request that made the process hold; one for another request is ignored.
    request: str
    kind: DirectiveKind
    generation: int = 0
    control_dir: str = ""
    master_addr: str = ""
    master_port: int = 0


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """`ack-<rank>.json`: what a request came to. Written by user code: a reader checks `path` before it is used."""

    request: str
    rank: int
    generation: int
    #: Steps completed in the checkpoint; -1 when there is none or nobody knows.
    step: int
    #: The checkpoint, to be handed to the successor as COMPASS_RESUME_FROM; empty when nothing was saved.
    path: str = ""
    #: Digest of `path` as `compass_abs.training.payload` defines it; empty for checkpoints of others' making.
    sha256: str = ""
    #: Why it could not; empty when it could. The process trains on.
    error: str = ""
    #: True when the process keeps itself for a directive.
    stays: bool = False
    #: Training time and steps that a restart from `path` repeats: not 0 for jobs that can't be asked to save.
    lost_seconds: float = 0.0
    lost_steps: int = 0
    #: Seconds since the epoch at which each phase ended: seen, agreed, saved.
    phases: dict[str, float] = field(default_factory=dict)
    time: float = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """`progress-<rank>.json`: a heartbeat, at most every second, and at once at every change of state."""

    rank: int
    generation: int
    #: Steps completed; -1 when nobody knows.
    step: int
    time: float
    state: ProcessState
    pid: int = 0
    #: Step it began from; -1 before that is known.
    resumed_at: int = -1
    #: Checkpoint it began from; empty at a fresh start.
    resumed_from: str = ""
    #: Newer checkpoints that were passed over because they were damaged.
    skipped: tuple[str, ...] = ()
    #: Its latest checkpoint, whoever asked for it.
    checkpoint: str = ""
    checkpoint_step: int = -1
    #: Steps of the whole job; 0 when unknown.
    total: int = 0
    loss: float | None = None
    #: Trouble that training survives, like a full disk.
    warning: str = ""
    #: Seconds since the epoch at which each phase of its start ended: imported, joined, loaded, wrapped, first_step.
    phases: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Worker:
    """Who this process is, as the engine's environment variables tell it."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    instance: int = 0
    generation: int = 0
    job_id: str = ""
    #: None outside an engine: then only signals reach the process.
    control_dir: Path | None = None
    checkpoint_dir: Path = Path("checkpoints")
    #: Checkpoint that the engine wants it to go on from; empty for the newest good one.
    resume_from: str = ""
    master_addr: str = "127.0.0.1"
    master_port: int = 0
    #: True for a successor that is started ahead: it builds everything, then waits for `go.json`.
    hold: bool = False
    #: True when another rank may use the same GPU, which NCCL refuses.
    shared_gpus: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Worker":
        """The worker that the variables describe; without any, a single process on its own."""
        rank = _number(environment, "RANK", 0)
        world_size = _number(environment, "WORLD_SIZE", 1)
        if not 0 <= rank < world_size:
            raise ContractError(f"RANK is {rank} and WORLD_SIZE {world_size}; expected 0 ≤ RANK < WORLD_SIZE")
        control = environment.get("COMPASS_CONTROL_DIR", "")
        return cls(
            rank=rank,
            world_size=world_size,
            local_rank=_number(environment, "LOCAL_RANK", 0),
            instance=_number(environment, "COMPASS_INSTANCE", _number(environment, "NODE_RANK", rank)),
            generation=_number(environment, "COMPASS_GENERATION", 0),
            job_id=environment.get("COMPASS_JOB_ID", ""),
            control_dir=Path(control) if control else None,
            checkpoint_dir=Path(environment.get("COMPASS_CHECKPOINT_DIR") or "checkpoints"),
            resume_from=environment.get("COMPASS_RESUME_FROM", ""),
            master_addr=environment.get("MASTER_ADDR") or "127.0.0.1",
            master_port=_number(environment, "MASTER_PORT", 0),
            hold=environment.get("COMPASS_HOLD", "") == "1",
            shared_gpus=environment.get("COMPASS_SHARED_GPUS", "") == "1",
        )


def _number(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit():
        raise ContractError(f"environment variable {name} is {text!r}, expected a whole number ≥ 0")
    return int(text)


# ---- files


def acknowledgement_file(rank: int) -> str:
    """Name of the file in which a rank acknowledges."""
    return f"ack-{rank}.json"


def progress_file(rank: int) -> str:
    """Name of the file in which a rank tells how it fares."""
    return f"progress-{rank}.json"


def directive_file(instance: int) -> str:
    """Name of the file in which a held instance is told what to do."""
    return f"directive-{instance}.json"


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Replaces a small file as a whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        temporary.write_text(json.dumps(value, separators=(",", ":")) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def read_json(path: Path) -> dict[str, Any] | None:
    """What the file holds; None when there is none."""
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST_MESSAGE + 1)
    except FileNotFoundError:
        return None
    if len(data) > _LARGEST_MESSAGE:
        raise ContractError(f"{path} has more than {_LARGEST_MESSAGE} bytes; it is no message of this contract")
    try:
        value = json.loads(data)
    except ValueError as error:
        raise ContractError(f"{path} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ContractError(f"{path} holds {type(value).__name__}, expected an object")
    return value


def _parse(cls: type[Message], value: Mapping[str, Any], path: Path) -> Message:
    """The message, from the fields it knows: a newer writer may add some."""
    known = {name: value[name] for name in cls.__dataclass_fields__ if name in value}  # type: ignore[attr-defined]
    try:
        for name, enum in (("kind", _KINDS.get(cls)), ("state", ProcessState)):
            if enum is not None and name in known:
                known[name] = enum(known[name])
        for name in ("movers", "skipped"):
            if name in known:
                known[name] = tuple(known[name])
        for name in _NUMBERS:
            if name in known and type(known[name]) not in (int, float):
                raise ValueError(f"{name} is {known[name]!r}, expected a number")
        return cls(**known)
    except (TypeError, ValueError) as error:
        raise ContractError(f"{path}: {error}") from None


_KINDS: dict[type, type[StrEnum]] = {Request: RequestKind, Directive: DirectiveKind}
_NUMBERS = ("rank", "generation", "step", "time", "lost_seconds", "lost_steps", "pid", "resumed_at", "master_port")


# ---- the engine's side


def post_request(control_dir: Path, request: Request) -> None:
    """Asks every process of a generation. Repeating it does nothing more; follow it with the nudge signal."""
    write_json(control_dir / REQUEST_FILE, asdict(request))


def post_directive(control_dir: Path, instance: int, directive: Directive) -> None:
    """Tells a held instance what to do next."""
    write_json(control_dir / directive_file(instance), asdict(directive))


def post_go(control_dir: Path) -> None:
    """Lets successors that were started ahead load the checkpoint and train."""
    write_json(control_dir / GO_FILE, {"time": time.time()})


def read_acknowledgement(control_dir: Path, rank: int) -> Acknowledgement | None:
    """The latest acknowledgement of a rank; None when there is none."""
    path = control_dir / acknowledgement_file(rank)
    value = read_json(path)
    return None if value is None else _parse(Acknowledgement, value, path)


def read_progress(control_dir: Path, rank: int) -> Progress | None:
    """The latest heartbeat of a rank; None when there is none."""
    path = control_dir / progress_file(rank)
    value = read_json(path)
    return None if value is None else _parse(Progress, value, path)


# ---- the process's side


def read_request(control_dir: Path) -> Request | None:
    """What the engine asks for; None when it asks for nothing."""
    path = control_dir / REQUEST_FILE
    value = read_json(path)
    return None if value is None else _parse(Request, value, path)


def read_directive(control_dir: Path, instance: int, request: str) -> Directive | None:
    """What a process held by this request is to do; None when that isn't decided yet."""
    path = control_dir / directive_file(instance)
    value = read_json(path)
    directive = None if value is None else _parse(Directive, value, path)
    return directive if directive is not None and directive.request == request else None


def acknowledge(control_dir: Path, answer: Acknowledgement) -> None:
    """Answers a request."""
    write_json(control_dir / acknowledgement_file(answer.rank), asdict(answer))


def report(control_dir: Path, progress: Progress) -> None:
    """Writes the heartbeat."""
    write_json(control_dir / progress_file(progress.rank), asdict(progress))
