"""Processes of this machine, told apart from later ones with the same number."""

import contextlib
import os
import signal
from math import ceil
from pathlib import Path
from typing import NamedTuple


class ProcessId(NamedTuple):
    """A process for ever: its number, and when it began in ticks since the machine did."""

    pid: int
    started: int


def start_time(pid: int) -> int | None:
    """When a process began; None when there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def is_alive(process: ProcessId) -> bool:
    """True while this very process runs."""
    return start_time(process.pid) == process.started


def carries(process: ProcessId, variable: str, value: str) -> bool:
    """True when this process was started with this environment variable."""
    try:
        environment = Path(f"/proc/{process.pid}/environ").read_bytes()
    except OSError:
        return False
    return f"{variable}={value}".encode() in environment.split(b"\0") and is_alive(process)


def open_watch(process: ProcessId) -> int | None:
    """A descriptor that becomes readable when this very process ends; None when it has."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return None
    if not is_alive(process):
        os.close(descriptor)
        return None
    return descriptor


def signal_group(process: ProcessId, number: int) -> None:
    """Signals a process and everything in its group."""
    if is_alive(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, number)


def kill_group(process: ProcessId) -> None:
    """Ends a process and everything in its group."""
    signal_group(process, signal.SIGKILL)


def cores(count: float, first: int) -> list[int]:
    """So many cores of this machine, rounded up, from the `first` on: instances with others share little."""
    allowed = sorted(os.sched_getaffinity(0))
    return [allowed[(first + number) % len(allowed)] for number in range(min(len(allowed), ceil(count)))]


def boot_id() -> str:
    """Identifies this run of the machine: process numbers of another one mean nothing."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
