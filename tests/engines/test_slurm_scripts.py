"""Users' batch scripts as they are: what they find on their nodes, and that they can be moved."""

import getpass
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from compass_abs.controller.journal import SqliteJournal
from compass_abs.controller.own_jobs import OwnJobs
from compass_abs.controller.reconcile import Config
from compass_abs.controller.service import Service
from compass_abs.engines.slurm import SlurmEngine, batch
from compass_abs.engines.slurm.batch import job_variables, output_file, parse
from compass_abs.engines.slurm.commands import SlurmCommands
from compass_abs.engines.slurm.intake import Intake
from compass_abs.model import NodeStatus
from tests.engines.slurm_cluster import SlurmCluster, skip_without_slurm
from tests.engines.users_pods import COUNTING

JOB: dict[str, Any] = {
    "id": 70,
    "name": "train",
    "user": "ann",
    "folder": "/home/ann",
    "output": "",
    "array": [],
    "tasks_per_node": 4,
}


def instance(rank: int, nodes: str = "n1,n2", generation: int = 1) -> dict[str, str]:
    return {"COMPASS_INSTANCE": str(rank), "COMPASS_NODES": nodes, "COMPASS_GENERATION": str(generation)}


def test_variables_of_an_instance_are_those_of_its_node_in_the_whole_job() -> None:
    found = job_variables(JOB, instance(1, generation=3))
    expected = {
        "SLURM_JOB_ID": "70",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_JOB_NODELIST": "n1,n2",
        "SLURM_NODEID": "1",
        "SLURM_NTASKS": "8",
        "SLURM_TASKS_PER_NODE": "4(x2)",
        "SLURM_PROCID": "4",
        "SLURM_RESTART_COUNT": "2",
    }
    assert {name: found[name] for name in expected} == expected
    assert "SLURM_ARRAY_TASK_ID" not in found


def test_variables_of_an_array_are_those_of_a_job_of_one_node() -> None:
    found = job_variables({**JOB, "array": [1, 3, 9]}, instance(2, "n1,n1,n2"))
    expected = {
        "SLURM_ARRAY_JOB_ID": "70",
        "SLURM_ARRAY_TASK_ID": "9",
        "SLURM_ARRAY_TASK_COUNT": "3",
        "SLURM_ARRAY_TASK_MAX": "9",
        "SLURM_JOB_NODELIST": "n2",
        "SLURM_NNODES": "1",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("pattern", "array", "rank", "path"),
    [
        ("", [], 0, "/home/ann/slurm-70.out"),
        ("", [], 1, "/home/ann/slurm-70.out.1"),
        ("", [4, 5], 1, "/home/ann/slurm-70_5.out"),
        ("/logs/%x-%j.txt", [], 0, "/logs/train-70.txt"),
        ("%u/%5j-%N-100%%-%q", [], 0, "/home/ann/ann/00070-n1-100%-%q"),
    ],
)
def test_output_is_where_its_pattern_says(pattern: str, array: list[int], rank: int, path: str) -> None:
    job = {**JOB, "output": pattern, "array": array}
    assert output_file(job, job_variables(job, instance(rank)), rank) == path


@pytest.mark.parametrize(
    ("line", "options", "command"),
    [
        ("python train.py --nodes 3", {}, "python train.py --nodes 3"),
        ("-N 2 -n8 --cpu-bind=none -l python x", {"nodes": "2", "ntasks": "8"}, "python x"),
        (
            "--nodes=1 --ntasks=1 -w n1 hostname -i",
            {"nodes": "1", "ntasks": "1", "nodelist": "n1"},
            "hostname -i",
        ),
        ("--label --mpi pmix --ntasks-per-node 4 -- a -b", {"per_node": "4"}, "a -b"),
        ("--container-image img#1 --kill-on-bad-exit=1 --no-container-mount-home -u bash -c x", {}, "bash -c x"),
    ],
)
def test_srun_finds_its_command_behind_its_options(line: str, options: dict[str, str], command: str) -> None:
    assert parse(line.split()) == (options, command.split())


def srun(command: list[str], rank: int, per_node: int = 2) -> subprocess.CompletedProcess[str]:
    job = {**JOB, "tasks_per_node": per_node}
    environment = {**os.environ, **job_variables(job, instance(rank)), "MASTER_ADDR": "10.0.0.1"}
    words = [sys.executable, "-I", "-S", batch.__file__, "srun", *command]
    return subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30, check=False)


def test_srun_gives_each_task_the_numbers_that_it_would_have() -> None:
    done = srun(["env"], 1)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert sorted(line for line in lines if line.startswith("SLURM_PROCID=")) == ["SLURM_PROCID=2", "SLURM_PROCID=3"]
    assert sorted(line for line in lines if line.startswith("SLURM_LOCALID=")) == [
        "SLURM_LOCALID=0",
        "SLURM_LOCALID=1",
    ]
    assert sorted(line for line in lines if line.startswith("RANK=")) == ["RANK=2", "RANK=3"]
    assert lines.count("WORLD_SIZE=4") == 2


def test_srun_fails_with_the_worst_of_its_tasks() -> None:
    done = srun(["sh", "-c", "exit $SLURM_PROCID"], 1)
    assert done.returncode == 3
    assert srun(["/no/such/program"], 0).returncode == 127


def test_step_of_one_node_runs_there_and_its_address_is_known_everywhere() -> None:
    one = ["--nodes=1", "--ntasks=1", "echo", "done"]
    assert srun(["-N1", "-n1", "-w", "n1", "hostname", "--ip-address"], 1).stdout == "10.0.0.1\n"
    assert srun(one, 0).stdout == "done\n"
    other = srun(one, 1)
    assert (other.returncode, other.stdout) == (0, "")
    assert "runs on n1 only" in other.stderr


# ---- on real Slurm


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    skip_without_slurm()
    with tempfile.TemporaryDirectory(prefix="cs-") as base:
        cluster = SlurmCluster(Path(base) / "c", nodes=3, gpus=8)
        yield cluster
        cluster.down()


class Users:
    """A controller that takes in what users submit."""

    def __init__(self, cluster: SlurmCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self._engine = SlurmEngine(folder / "slurm", configuration=cluster.conf)
        self.service = Service(SqliteJournal(folder / "journal.sqlite"), self._engine, Config(scheduler="best-fit"))
        self.service.start()
        self.service.wait_until_ready(30.0)
        commands = SlurmCommands(cluster.conf)
        self._intake = Intake(commands, "compass-inbox", folder / "inbox", getpass.getuser(), lambda text: None)

    def sbatch(self, script: str, *arguments: str) -> int:
        path = self.folder / "user.sh"
        path.write_text(script)
        words = [f"--chdir={self.folder}", str(path), *arguments]
        return int(self.cluster.run("sbatch", "--parsable", *words))

    def until(self, what: Callable[[], object], seconds: float = 60.0) -> None:
        deadline = time.monotonic() + seconds
        while not what():
            assert time.monotonic() < deadline, self.phases()
            self._intake.look(OwnJobs(self.service))
            time.sleep(0.2)

    def phases(self) -> list[str]:
        return self.service.ask(lambda c: [entry.phase.value for entry in c.book.jobs.values()])

    def nodes(self) -> tuple[str, ...]:
        return self.service.ask(lambda c: next(iter(c.book.open_jobs.values())).nodes)

    def close(self) -> None:
        self.service.close()
        self._engine.close()


@pytest.fixture
def users(cluster: SlurmCluster, tmp_path: Path) -> Iterator[Users]:
    users = Users(cluster, tmp_path)
    yield users
    users.close()
    for partition in ("compass", "compass-inbox"):
        cluster.run("scancel", f"--partition={partition}", check=False)
    while cluster.run("squeue", "-h", "-p", "compass-inbox"):
        time.sleep(0.1)


#: As in many a tutorial on distributed training; only the partition is ours.
MULTI_NODE = """#!/bin/bash
#SBATCH --partition=compass-inbox
#SBATCH --job-name=multinode
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --gres=gpu:8
#SBATCH --cpus-per-task=4
#SBATCH --output=%x-%j.out
nodes=( $( scontrol show hostnames "$SLURM_JOB_NODELIST" ) )
head_node=${nodes[0]}
head_node_ip=$(srun --nodes=1 --ntasks=1 -w "$head_node" hostname --ip-address | cut -d' ' -f1)
echo "node $SLURM_NODEID of $SLURM_JOB_NUM_NODES: head $head_node at ${head_node_ip:-nowhere}, arguments $1 $2"
srun --cpu-bind=none -l sh -c 'echo "task $SLURM_PROCID of $SLURM_NTASKS, rank $RANK of $WORLD_SIZE"'
"""


@pytest.mark.engine
def test_multi_node_script_with_srun_works_with_its_partition_changed(users: Users, tmp_path: Path) -> None:
    number = users.sbatch(MULTI_NODE, "a", "b")
    users.until(lambda: users.phases() == ["done"])
    said = [(tmp_path / f"multinode-{number}.out{end}").read_text().splitlines() for end in ("", ".1")]
    nodes = {line.split(" at ")[0] for lines in said for line in lines if line.startswith("node")}
    assert len(nodes) == 2
    assert {line[:11] for line in nodes} == {"node 0 of 2", "node 1 of 2"}
    assert len({line.rpartition(" ")[2] for line in nodes}) == 1, "they don't agree on the head"
    assert all("nowhere" not in line for lines in said for line in lines[:1])
    # Slurm 24.11 doesn't say what stands behind a script's name; its receipt says that.
    told = "without arguments" not in users.cluster.run("scontrol", "show", "job", str(number))
    assert all(("arguments a b" in line) is told for lines in said for line in lines[:1])
    tasks = [sorted(line for line in lines if line.startswith("task")) for lines in said]
    assert tasks == [[f"task {k} of 4, rank {k} of 4" for k in (2 * node, 2 * node + 1)] for node in range(2)]


@pytest.mark.engine
def test_instances_are_billed_to_the_account_of_their_script(users: Users, cluster: SlurmCluster) -> None:
    users.sbatch("#!/bin/bash\n#SBATCH -p compass-inbox\n#SBATCH --account=physics\n#SBATCH --gres=gpu:2\nsleep 60\n")
    users.until(lambda: users.phases() == ["running"])
    assert cluster.run("squeue", "-h", "-p", "compass", "-O", "Account").split() == ["physics"]


@pytest.mark.engine
def test_array_runs_as_its_tasks(users: Users, tmp_path: Path) -> None:
    script = "#!/bin/bash\n#SBATCH -p compass-inbox\n#SBATCH --array=2-8:3\n#SBATCH --gpus-per-node=2\n"
    number = users.sbatch(script + 'echo "$SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT on $SLURM_NNODES"\n')
    users.until(lambda: users.phases() == ["done"])
    for task in (2, 5, 8):
        assert (tmp_path / f"slurm-{number}_{task}.out").read_text() == f"{task} of 3 on 1\n"


@pytest.mark.engine
def test_script_that_saves_on_a_signal_is_moved_although_its_shell_ends_at_once(users: Users, tmp_path: Path) -> None:
    script = "#!/bin/bash\n#SBATCH -p compass-inbox\n#SBATCH --nodes=2\n#SBATCH --gres=gpu:8\n"
    script += "#SBATCH --comment=compass:signal=TERM\n"
    slow = COUNTING.replace("state.write_text", "time.sleep(1.0); state.write_text")
    (tmp_path / "count.py").write_text(slow)
    users.sbatch(f"{script}srun {sys.executable} count.py {tmp_path} c$RANK 100000 0\necho never\n")
    log = tmp_path / "c1.log"
    users.until(lambda: log.exists() and len(log.read_text().split()) > 20)
    left = users.nodes()[1]
    users.service.ask(lambda c: c.set_node(left, NodeStatus.DRAINING))
    users.until(lambda: left not in users.nodes() and users.phases() == ["running"])
    reached = len(log.read_text().split())
    users.until(lambda: len(log.read_text().split()) > reached + 20)
    for rank in range(2):
        steps = [int(line) for line in (tmp_path / f"c{rank}.log").read_text().split()]
        assert steps == list(range(len(steps))), "a step was lost or done twice"
    past = users.service.ask(lambda c: [past.outcome.value for past in next(iter(c.book.jobs.values())).past])
    assert past == ["done"], json.dumps(past)
