"""Fault schedules on every platform that this machine has: a few in each run, many with `-m nightly`."""

import os
import shutil
import signal
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import pytest

from tests.engines.fault_schedule import FaultSchedule
from tests.engines.slurm_cluster import SlurmCluster, skip_without_slurm

pytestmark = pytest.mark.engine

#: What a command of Slurm says when slurmctld does not answer.
_NO_ANSWER = "Unable to contact slurm controller (connect failure)"


class LocalMachine:
    """The local engine's platform: processes under supervisors."""

    environment: Mapping[str, str] = {}

    def __init__(self, folder: Path) -> None:
        self._root = folder / "engine"
        self.opening: Sequence[str] = ("local", str(self._root), "4", "4")
        self.strikes: Mapping[str, Callable[[Random], None]] = {"supervisor": self._kill_supervisor}

    def _supervisors(self) -> list[int]:
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                if any(word.startswith(f"{self._root}/jobs/".encode()) for word in words):
                    found.append(int(folder.name))
        return found

    def _kill_supervisor(self, pick: Random) -> None:
        found = self._supervisors()
        if found:
            os.kill(pick.choice(found), signal.SIGKILL)

    def heal(self) -> None:
        pass

    def leftovers(self) -> list[str]:
        return [f"process {pid}" for pid in self._supervisors()]


class SlurmPlatform:
    """Slurm: its daemons and nodes die, its answers and questions get lost."""

    def __init__(self, cluster: SlurmCluster, folder: Path) -> None:
        self._cluster = cluster
        self._nodes = sorted(cluster.run("sinfo", "-h", "-N", "-o", "%N").split())
        self._losing = folder / "losing"
        commands = folder / "commands"
        commands.mkdir()
        for name in ("sbatch", "scontrol", "scancel", "squeue"):
            self._wrap(commands / name)
        self.environment: Mapping[str, str] = {"PATH": f"{commands}:{os.environ['PATH']}"}
        self.opening: Sequence[str] = ("slurm", str(folder / "engine"), str(cluster.conf))
        self.strikes: Mapping[str, Callable[[Random], None]] = {
            "slurmctld": self._restart_slurmctld,
            "slurmd": self._restart_slurmd,
            "node": self._kill_node,
            "node back": self._revive,
            "job step": self._kill_step,
            "lost answers": self._lose_answers,
        }

    def _wrap(self, path: Path) -> None:
        """A command that may not be heard, or whose answer may not arrive."""
        path.write_text(
            f"#!{sys.executable} -IS\n"
            "import os, subprocess, sys\n"
            f"losing, name = {str(self._losing)!r}, os.path.basename(sys.argv[0])\n"
            f"real = {shutil.which(path.name)!r}\n"
            "try:\n"
            "    said = open(losing).read()\n"
            "except OSError:\n"
            "    said = ''\n"
            "if not said:\n"
            "    os.execv(real, [real, *sys.argv[1:]])\n"
            "open(losing, 'w').write(said[1:])\n"
            "if said[0] == 'a':\n"
            "    subprocess.run([real, *sys.argv[1:]], capture_output=True)\n"
            f"sys.exit(f'{{name}}: error: {_NO_ANSWER}')\n"
        )
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def _restart_slurmctld(self, pick: Random) -> None:
        self._cluster.kill_daemon("slurmctld")
        time.sleep(pick.uniform(0.0, 3.0))
        self._cluster.start_daemon("slurmctld")

    def _restart_slurmd(self, pick: Random) -> None:
        node = pick.choice([node for node in self._nodes if node not in self._cluster.dead] or self._nodes)
        if node not in self._cluster.dead:
            self._cluster.kill_daemon(f"slurmd.{node}")
            time.sleep(pick.uniform(0.0, 1.0))
            self._cluster.start_daemon(f"slurmd.{node}")

    def _kill_node(self, pick: Random) -> None:
        alive = [node for node in self._nodes if node not in self._cluster.dead]
        if len(alive) > 2:
            node = pick.choice(alive)
            self._cluster.kill_node(node)
            if pick.random() < 0.5:
                # A health check; without it SlurmdTimeout has to pass.
                self._cluster.run("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power", check=False)

    def _revive(self, pick: Random) -> None:
        if self._cluster.dead:
            self._cluster.revive_node(pick.choice(self._cluster.dead))

    def _kill_step(self, pick: Random) -> None:
        steps = [step for node in self._nodes for step in self._cluster.steps(node)]
        if steps:
            os.kill(pick.choice(steps), signal.SIGKILL)

    def _lose_answers(self, pick: Random) -> None:
        self._losing.write_text("".join(pick.choice("aq") for _ in range(pick.randint(1, 5))))

    def heal(self) -> None:
        self._losing.unlink(missing_ok=True)
        for node in list(self._cluster.dead):
            self._cluster.revive_node(node)

    def leftovers(self) -> list[str]:
        return self._cluster.run("squeue", "-h", "-p", "compass", "-o", "%i %j %T", check=False).splitlines()


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    skip_without_slurm()
    with tempfile.TemporaryDirectory(prefix="cs-") as base:
        cluster = SlurmCluster(Path(base) / "c", nodes=4, gpus=4, slurmd_timeout=5)
        yield cluster
        cluster.down()


def play_on_slurm(cluster: SlurmCluster, folder: Path, seed: int) -> None:
    try:
        FaultSchedule(seed, SlurmPlatform(cluster, folder), folder).play()
    finally:
        cluster.run("scancel", "--partition=compass", check=False)


@pytest.mark.parametrize("seed", range(2))
def test_fault_schedule_on_this_machine_loses_and_doubles_nothing(tmp_path: Path, seed: int) -> None:
    FaultSchedule(seed, LocalMachine(tmp_path), tmp_path).play()


@pytest.mark.parametrize("seed", range(2))
def test_fault_schedule_on_slurm_loses_and_doubles_nothing(cluster: SlurmCluster, tmp_path: Path, seed: int) -> None:
    play_on_slurm(cluster, tmp_path, seed)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_fault_schedules_on_this_machine(tmp_path: Path, seed: int) -> None:
    FaultSchedule(seed, LocalMachine(tmp_path), tmp_path).play()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(100, 130))
def test_many_fault_schedules_on_slurm(cluster: SlurmCluster, tmp_path: Path, seed: int) -> None:
    play_on_slurm(cluster, tmp_path, seed)
