"""What Slurm's `--json` says, whatever its release: fields move and change their type from one to the next."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: Base states of a job that has ended.
ENDED_STATES = frozenset(
    {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED"}
    | {"REVOKED", "TIMEOUT"}
)
_LOST_FLAGS = frozenset({"DOWN", "FAIL", "FUTURE", "POWERED_DOWN", "POWER_DOWN", "INVALID", "INVALID_REG", "ERROR"})
_CLOSED_FLAGS = frozenset(
    {"DRAIN", "DRAINED", "DRAINING", "MAINT", "MAINTENANCE", "NOT_RESPONDING", "RESERVED", "UNKNOWN", "BLOCKED"}
    | {"REBOOT", "REBOOT_REQUESTED", "REBOOT_ISSUED", "POWERING_DOWN", "POWERING_UP", "POWER_UP"}
)
_GRES = re.compile(r"(?:gres[:/])?gpu(?::(?P<type>[A-Za-z][^:(,=]*))?[:=](?P<count>\d+)(?:\([^)]*\))?")

#: Slurm's "no value" as an unsigned number of 32 bits.
_NO_TASK = "4294967294"


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """A job."""

    id: int
    state: str
    flags: frozenset[str]
    reason: str
    name: str
    comment: str
    partition: str
    user: str
    nodes: str
    #: GPUs on each of its nodes, in order, where Slurm says so.
    gpus: tuple[int, ...]
    #: Exit code and signal, as `--json` has them.
    code: int
    signal: int
    raw: Mapping[str, Any]

    @property
    def ended(self) -> bool:
        """True when Slurm is through with it: its processes are gone, its GPUs free."""
        return self.state in ENDED_STATES and "COMPLETING" not in self.flags

    @property
    def active(self) -> bool:
        """True while it holds GPUs."""
        return self.state in ("RUNNING", "SUSPENDED", "COMPLETING", "CONFIGURING", "STOPPED") or (
            "COMPLETING" in self.flags
        )

    @property
    def held(self) -> bool:
        """True while it waits to be released."""
        return self.state == "PENDING" and self.reason == "JobHeldUser"


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node."""

    name: str
    address: str
    gpus: int
    gpus_used: int
    #: Model of its GPUs, in lower case; empty when Slurm has none or several.
    gpu_type: str
    cpus: int
    cpus_used: int
    memory_mib: int
    flags: frozenset[str]
    partitions: tuple[str, ...]
    reason: str

    @property
    def lost(self) -> bool:
        """True when nothing runs there any more."""
        return bool(self.flags & _LOST_FLAGS)

    @property
    def closed(self) -> bool:
        """True when nothing new may start there."""
        return bool(self.flags & _CLOSED_FLAGS)


def number(value: Any, default: int = 0) -> int:
    """A whole number, bare or as the `{set, infinite, number}` of later releases."""
    if isinstance(value, Mapping):
        return number(value.get("number"), default) if value.get("set", True) else default
    if isinstance(value, bool) or value is None:
        return default
    try:
        return int(value)
    except (TypeError, ValueError):
        return default


def words(value: Any) -> tuple[str, ...]:
    """Upper-case words: a text, a list of texts, or nothing."""
    if isinstance(value, str):
        value = value.replace("+", " ").replace(",", " ").split()
    if not isinstance(value, Iterable):
        return ()
    return tuple(str(word).strip("*~#!%$@^-").upper() for word in value)


def text(value: Any) -> str:
    """A text, or nothing."""
    return value if isinstance(value, str) else ""


def gpu_counts(gres: str) -> dict[str, int]:
    """GPUs by model in a text like `gpu:a100:4(S:0-1),gpu:2(IDX:0,3)`; the model is empty where there is none."""
    found: dict[str, int] = {}
    for match in _GRES.finditer(gres):
        model = (match["type"] or "").lower()
        found[model] = found.get(model, 0) + int(match["count"])
    return found


def read_jobs(document: Mapping[str, Any]) -> list[SlurmJob]:
    """The jobs of `squeue --json`; entries that can't be understood are left out."""
    jobs = document.get("jobs")
    return [_job(value) for value in jobs if isinstance(value, Mapping)] if isinstance(jobs, list) else []


def _job(value: Mapping[str, Any]) -> SlurmJob:
    states = words(value.get("job_state"))
    base = next((word for word in states if word != "COMPLETING"), states[0] if states else "UNKNOWN")
    code, signal = _exit(value.get("exit_code"))
    nodes = value.get("nodes")
    return SlurmJob(
        id=number(value.get("job_id")),
        state=base,
        flags=frozenset(states),
        reason=text(value.get("state_reason")),
        name=text(value.get("name")),
        comment=_comment(value.get("comment")),
        partition=text(value.get("partition")),
        user=text(value.get("user_name")),
        nodes=nodes if isinstance(nodes, str) else text((value.get("job_resources") or {}).get("nodes")),
        gpus=_job_gpus(value),
        code=code,
        signal=signal,
        raw=value,
    )


def arguments(job: SlurmJob) -> list[str] | None:
    """The words behind the name of a batch job's script, as far as Slurm keeps them apart; None when it tells of none.

    22.05 has them in one line with the script, 26.05 in the line of sbatch, 24.11 nowhere.
    """
    command, line = text(job.raw.get("command")), job.raw.get("submit_line")
    if isinstance(line, str):
        said = line.split(" ")
        scripts = [place for place, word in enumerate(said) if place and _is_script(word, command)]
        return said[scripts[0] + 1 :] if scripts else []
    _, space, behind = command.partition(" ")
    if space:
        return behind.split(" ")
    # Those whose numbers are objects have taken the words out of the command.
    return None if command and isinstance(job.raw.get("time_limit"), Mapping) else []


def _is_script(word: str, command: str) -> bool:
    return bool(word) and (word == command or command.endswith(f"/{word.removeprefix('./')}"))


def output_pattern(job: SlurmJob) -> str:
    """Where a batch job's output is to be; 24.11 fills the pattern in before there is a task, and calls that -2."""
    found = text(job.raw.get("standard_output"))
    return found.replace(_NO_TASK, "%a") if text(job.raw.get("array_task_string")) else found


def _comment(value: Any) -> str:
    if isinstance(value, Mapping):
        value = value.get("job")
    return text(value).strip()


def _job_gpus(value: Mapping[str, Any]) -> tuple[int, ...]:
    details = value.get("gres_detail")
    if not isinstance(details, list):
        return ()
    return tuple(sum(gpu_counts(text(detail)).values()) for detail in details)


def _exit(value: Any) -> tuple[int, int]:
    if isinstance(value, Mapping):
        signal = value.get("signal")
        return number(value.get("return_code")), number(
            (signal.get("id") or signal.get("signal_id")) if isinstance(signal, Mapping) else signal
        )
    status = number(value)
    return status >> 8, status & 0x7F


def read_nodes(document: Mapping[str, Any]) -> list[SlurmNode]:
    """The nodes of `scontrol show node --json`, or of `sinfo --json` where that has them one by one."""
    nodes = document.get("nodes")
    return [_node(value) for value in nodes if isinstance(value, Mapping)] if isinstance(nodes, list) else []


def _node(value: Mapping[str, Any]) -> SlurmNode:
    gpus = gpu_counts(text(value.get("gres")))
    models = [model for model in gpus if model]
    name = text(value.get("name"))
    partitions = value.get("partitions")
    return SlurmNode(
        name=name,
        address=text(value.get("address")) or text(value.get("hostname")) or name,
        gpus=sum(gpus.values()),
        gpus_used=sum(gpu_counts(text(value.get("gres_used"))).values()),
        gpu_type=models[0] if len(gpus) == 1 and models else "",
        cpus=number(value.get("cpus")),
        cpus_used=number(value.get("alloc_cpus")),
        memory_mib=number(value.get("real_memory")),
        flags=frozenset(words(value.get("state")) + words(value.get("state_flags"))),
        partitions=tuple(partitions) if isinstance(partitions, list) else tuple(text(partitions).split(",")),
        reason=text(value.get("reason")),
    )
