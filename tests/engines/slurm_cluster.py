"""A real Slurm cluster on this machine for tests, from the scripts that users get."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.engines.crashing import kill_all
from tests.engines.free_ports import free_ports

SCRIPTS = Path(__file__).parents[2] / "deploy" / "test-clusters"
NEEDED = ("slurmctld", "slurmd", "munged", "sbatch")


class SlurmCluster:
    """munged, slurmctld and some slurmd under one folder."""

    def __init__(self, base: Path, nodes: int, gpus: int, slurmd_timeout: int = 10) -> None:
        self.base = base
        self.dead: list[str] = []
        self.conf = base / "etc" / "slurm.conf"
        environment = dict(os.environ, NO_INSTALL="1", GPUS=str(gpus), SLURMD_TIMEOUT=str(slurmd_timeout))
        environment["PORT"] = str(free_ports(range(12_000, 19_000), (0, *range(201, 201 + nodes))))
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
        kill_all([self.pid(daemon)])

    def steps(self, node: str) -> list[int]:
        """The slurmstepd processes of a node: they have the log of its slurmd open."""
        log, found = str(self.base / "log" / f"slurmd.{node}.log"), []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                is_step = (folder / "comm").read_text().strip() == "slurmstepd"
                if is_step and log in map(_target, (folder / "fd").iterdir()):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

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
        kill_all([self.pid(f"slurmd.{node}"), *steps, *(pid for step in steps for pid in descendants(step))])

    def down(self) -> str:
        """Takes it down."""
        done = subprocess.run(
            [str(SCRIPTS / "slurm-down.sh"), str(self.base)], capture_output=True, text=True, timeout=60, check=False
        )
        return done.stdout


def _target(link: Path) -> str:
    """Where a link leads; empty when it is gone."""
    try:
        return str(link.readlink())
    except OSError:
        return ""


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
