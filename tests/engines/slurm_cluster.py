"""A real Slurm cluster on this machine for tests, from the scripts that users get."""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.engines.crash import crash

SCRIPTS = Path(__file__).parents[2] / "deploy" / "test-clusters"
NEEDED = ("slurmctld", "slurmd", "munged", "sbatch")


class SlurmCluster:
    """munged, slurmctld and some slurmd under one folder."""

    def __init__(self, base: Path, nodes: int, gpus: int, slurmd_timeout: int = 10) -> None:
        self.base = base
        self.dead: list[str] = []
        self.conf = base / "etc" / "slurm.conf"
        environment = dict(os.environ, NO_INSTALL="1", GPUS=str(gpus), SLURMD_TIMEOUT=str(slurmd_timeout))
        environment["PORT"] = str(_free_ports(nodes))
        up = [str(SCRIPTS / "slurm-up.sh"), str(base), str(nodes)]
        done = subprocess.run(up, env=environment, capture_output=True, text=True, timeout=90, check=False)
        if done.returncode:
            # Whoever asked for it gets nothing that could be taken down.
            self.down()
        assert done.returncode == 0, done.stderr

    def run(self, *command: str, check: bool = True) -> str:
        """What one of Slurm's commands prints, as a user of the cluster."""
        environment = dict(os.environ, SLURM_CONF=str(self.conf))
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, cwd=self.base, check=False
        )
        assert not check or done.returncode == 0, done.stderr
        return done.stdout

    def pid(self, daemon: str) -> int:
        """The process of `slurmctld` or `slurmd.NODE`."""
        return int((self.base / "log" / f"{daemon}.mypid").read_text())

    def start_daemon(self, daemon: str) -> None:
        """Starts `slurmctld` or `slurmd.NODE` again."""
        name, _, node = daemon.partition(".")
        command = [name, "-D", *(["-N", node] if node else [])]
        environment = dict(os.environ, SLURM_CONF=str(self.conf), PATH=f"{os.environ['PATH']}:/usr/sbin")
        with (self.base / "log" / f"{daemon}.out").open("ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        process.returncode = 0  # not waited for: slurm-down.sh ends it
        (self.base / "log" / f"{daemon}.mypid").write_text(f"{process.pid}\n")

    def kill_daemon(self, daemon: str) -> None:
        """As a crash does."""
        crash(self.pid(daemon))

    def steps(self, node: str) -> list[int]:
        """The slurmstepd processes of a node."""
        found = []
        for folder in Path("/proc").iterdir():
            if not folder.name.isdigit():
                continue
            try:
                environment = (folder / "environ").read_bytes().split(b"\0")
                comm = (folder / "comm").read_text().strip()
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            del command
            ours = f"SLURM_CONF={self.conf}".encode() in environment
            if ours and comm == "slurmstepd" and self._node_of(int(folder.name)) == node:
                found.append(int(folder.name))
        return found

    def _node_of(self, stepd: int) -> str:
        for child in Path(f"/proc/{stepd}/task/{stepd}/children").read_text().split():
            for word in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
                if word.startswith(b"SLURMD_NODENAME="):
                    return word[16:].decode()
        return ""

    def revive_node(self, node: str) -> None:
        """The node is back."""
        self.start_daemon(f"slurmd.{node}")
        self.dead.remove(node)
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            self.run("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)
            if self.run("sinfo", "-h", "-N", "-n", node, "-o", "%T").split()[0] == "idle":
                return
            time.sleep(0.2)

    def kill_node(self, node: str) -> None:
        """A power failure: its slurmd and everything that it started are gone, and nobody says so."""
        self.dead.append(node)
        steps = self.steps(node)
        victims = [self.pid(f"slurmd.{node}"), *steps, *(pid for step in steps for pid in descendants(step))]
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def down(self) -> str:
        """Takes it down."""
        done = subprocess.run(
            [str(SCRIPTS / "slurm-down.sh"), str(self.base)], capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout


def _free_ports(nodes: int) -> int:
    """The port for slurmctld; those of its nodes follow. Another cluster may run at the same time."""
    while True:
        first = random.SystemRandom().randrange(12_000, 19_000)
        if not any(map(_is_taken, (first, *range(first + 201, first + 201 + nodes)))):
            return first


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False


def descendants(pid: int) -> list[int]:
    """Children of a process, and theirs."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(grandchild for child in children for grandchild in descendants(child))]


def skip_without_slurm() -> None:
    """Skips where the packages are missing; tests install nothing."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    missing = [name for name in NEEDED if shutil.which(name, path=path) is None]
    if missing:
        packages = "slurmctld slurmd slurm-client munge"
        pytest.skip(f"{', '.join(missing)} missing; apt-get install -y --no-install-recommends {packages}")
