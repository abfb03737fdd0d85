"""Warm starts: a standby process a node, with the framework imported, that forks what is to run there."""

import contextlib
import hashlib
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from pathlib import Path

from compass_abs.engines.local.processes import cores
from compass_abs.engines.protocol import CheckpointMode, Limits, Workload
from compass_abs.training.standby import StandbyError, Successor, end_standby, fork_successor


class Warmth(Enum):
    """How instances are started."""

    COLD = auto()
    """A new process each."""
    STANDBY = auto()
    """A fork of the node's standby, where the job is a Python program that uses our session."""


class Standbys:
    """The standby processes of some nodes. They outlive an engine that dies without closing; the next one has them."""

    def __init__(self, root: Path, nodes: Sequence[str]) -> None:
        # A socket's path has to be short, and a state folder's may not be.
        key = hashlib.sha256(str(root).encode()).hexdigest()[:12]
        self._folder = Path(tempfile.gettempdir()) / f"compass-{os.getuid()}-{key}"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._nodes = tuple(nodes)
        self._own: dict[str, subprocess.Popen[bytes]] = {}
        for node in nodes:
            if not self.ready(node):
                self._begin(node, root)

    def _address(self, node: str) -> Path:
        return self._folder / f"{node}.sock"

    def _begin(self, node: str, root: Path) -> None:
        with (root / "nodes" / f"{node}-standby.txt").open("ab") as log:
            self._own[node] = subprocess.Popen(
                [sys.executable, "-m", "compass_abs.training.standby", str(self._address(node))],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )

    def ready(self, node: str) -> bool:
        """True when the standby of a node can fork by now."""
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.settimeout(0.5)
            probe.connect(str(self._address(node)))
            return True
        return False

    def wait(self, seconds: float) -> bool:
        """Waits until all of them can fork; False when that takes longer."""
        deadline = time.monotonic() + seconds
        left = list(self._nodes)
        while left and time.monotonic() < deadline:
            left = [node for node in left if not self.ready(node)]
            time.sleep(0.05)
        return not left

    def fork(
        self, node: str, workload: Workload, environment: Mapping[str, str], workdir: Path, log: Path
    ) -> Successor | None:
        """The instance as a fork of the standby; None when it has to be started cold."""
        argv = _program(workload)
        if argv is None or not self._address(node).exists():
            return None
        try:
            successor = fork_successor(self._address(node), argv, environment, cwd=workdir, output=log)
        except (StandbyError, OSError):
            return None
        _limit(successor.pid, workload.limits)
        return successor

    def close(self) -> None:
        """Ends the standbys, those of an engine before this one too; what they have forked runs on."""
        for process in self._own.values():
            process.terminate()
        for address in self._folder.glob("*.sock"):
            end_standby(address)
        for process in self._own.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5.0)
        with contextlib.suppress(OSError):
            self._folder.rmdir()


def _program(workload: Workload) -> list[str] | None:
    """What our interpreter is to run; None when that isn't what the command asks for."""
    first, *rest = workload.command
    if workload.mode is not CheckpointMode.SESSION or not rest:
        return None
    if first not in ("python", "python3", sys.executable) or (rest[0].startswith("-") and rest[0] != "-m"):
        return None
    return rest


def _limit(pid: int, limits: Limits) -> None:
    kinds = {
        resource.RLIMIT_AS: limits.memory_bytes,
        resource.RLIMIT_NOFILE: limits.open_files,
        resource.RLIMIT_FSIZE: limits.file_bytes,
        resource.RLIMIT_NPROC: limits.processes,
    }
    for kind, most in kinds.items():
        if most is not None:
            with contextlib.suppress(ProcessLookupError, ValueError, PermissionError):
                resource.prlimit(pid, kind, (most, most))
    if limits.cpus is not None:
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(pid, cores(limits.cpus, pid))
