"""The tutorial of docs/slurm.md, and the inbox: as users meet them."""

import getpass
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compass_abs.engines.slurm.commands import SlurmCommands
from compass_abs.engines.slurm.intake import Intake
from tests.engines.slurm_cluster import SlurmCluster, skip_without_slurm

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]


def test_every_command_of_the_tutorial_works() -> None:
    skip_without_slurm()
    page = (ROOT / "docs" / "slurm.md").read_text(encoding="utf-8")
    section = page.split("## From nothing", 1)[1].split("## On your cluster", 1)[0]
    blocks = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 3
    with tempfile.TemporaryDirectory(prefix="cs-") as folder:
        script = "".join(blocks).replace("/tmp/compass-slurm", f"{folder}/c")
        script = script.replace("$PWD/.venv/bin", str(Path(sys.executable).parent))
        # A controller and a cluster of another test may run at the same time.
        script = script.replace("serve-slurm", "serve-slurm --port 17077")
        environment = dict(
            os.environ, CLUSTER=f"{folder}/c", NO_INSTALL="1", PORT="19400", COMPASS_URL="http://127.0.0.1:17077"
        )
        done = subprocess.run(
            ["bash", "-ec", script],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        output = done.stdout + done.stderr
        subprocess.run([ROOT / "deploy/test-clusters/slurm-down.sh", f"{folder}/c"], check=False, timeout=60)
    assert done.returncode == 0, output
    assert re.search(r"rank [01] of 2 on n\d, GPUs 0,1,2,3|rank [01] of 2 on n\d, GPUs 4,5,6,7", output), output
    assert re.search(r"gang-slurm-job-1-1 +done", output), output
    assert "is gone" in output


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    skip_without_slurm()
    with tempfile.TemporaryDirectory(prefix="cs-") as base:
        cluster = SlurmCluster(Path(base) / "c", nodes=2, gpus=8)
        yield cluster
        cluster.down()


class Jobs:
    """A controller that only takes notes."""

    def __init__(self) -> None:
        self.submitted: list[dict[str, Any]] = []
        self.over: set[str] = set()
        self.cancelled: list[str] = []

    def submit(self, fields: dict[str, Any]) -> str:
        self.submitted.append(fields)
        return f"job-{len(self.submitted)}"

    def find(self, name: str) -> str | None:
        names = [fields["name"] for fields in self.submitted]
        return f"job-{names.index(name) + 1}" if name in names else None

    def is_over(self, job_id: str) -> bool:
        return job_id in self.over

    def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)


SCRIPT = "#!/bin/bash\n#SBATCH --partition=compass-inbox\n{options}\necho hello\n"


def put(cluster: SlurmCluster, *options: str) -> int:
    """A user's job in the letter box."""
    path = cluster.base / "user.sh"
    path.write_text(SCRIPT.format(options="\n".join(f"#SBATCH {option}" for option in options)))
    return int(cluster.run("sbatch", "--parsable", str(path)))


def comment(cluster: SlurmCluster, job: int) -> str:
    found = re.search(r"Comment=(.*)", cluster.run("scontrol", "show", "job", str(job)))
    return found[1] if found else ""


def make(cluster: SlurmCluster, tmp_path: Path, user: str = "") -> Intake:
    return Intake(
        SlurmCommands(cluster.conf), "compass-inbox", tmp_path / "inbox", user or getpass.getuser(), lambda text: None
    )


def test_batch_job_becomes_a_gang_once_and_its_receipt_leaves_with_it(cluster: SlurmCluster, tmp_path: Path) -> None:
    slurm = put(cluster, "--nodes=2", "--gres=gpu:4", "--time=30", "--comment=compass:signal=TERM")
    jobs = Jobs()
    make(cluster, tmp_path).look(jobs)
    make(cluster, tmp_path).look(jobs)
    (fields,) = jobs.submitted
    assert (fields["instances"], fields["gpus_per_instance"], fields["max_duration"]) == (2, 4, 1800)
    assert fields["checkpoint"] == {"mode": "signal", "signal": "TERM"}
    assert Path(json.loads(Path(fields["command"][-1]).read_text())["command"][0]).read_text().endswith("echo hello\n")
    assert "COMPASS job job-1" in comment(cluster, slurm)
    jobs.over.add("job-1")
    make(cluster, tmp_path).look(jobs)
    assert str(slurm) not in cluster.run("squeue", "-h", "-o", "%i").split()


def test_receipt_that_was_lost_does_not_submit_twice(cluster: SlurmCluster, tmp_path: Path) -> None:
    put(cluster, "--array=0-2", "--gres=gpu:2")
    jobs = Jobs()
    make(cluster, tmp_path).look(jobs)
    assert [fields["instances"] for fields in jobs.submitted] == [3]
    for receipt in (tmp_path / "inbox").glob("*.json"):
        receipt.unlink()
    make(cluster, tmp_path).look(jobs)
    assert len(jobs.submitted) == 1
    cluster.run("scancel", "--partition=compass-inbox")
    make(cluster, tmp_path).look(jobs)
    assert jobs.cancelled == ["job-1"]


def test_job_that_can_not_be_taken_says_why(cluster: SlurmCluster, tmp_path: Path) -> None:
    uneven = put(cluster, "--nodes=2", "--gpus=3")
    without, odd = put(cluster, "--nodes=1"), put(cluster, "--gres=gpu:1", "--comment=compass:teleport")
    jobs = Jobs()
    make(cluster, tmp_path).look(jobs)
    assert not jobs.submitted
    assert "no GPUs" in comment(cluster, without)
    assert "3 GPUs don't divide among 2 nodes" in comment(cluster, uneven)
    assert "teleport" in comment(cluster, odd)
    stranger = put(cluster, "--gres=gpu:1")
    make(cluster, tmp_path / "other", user="somebody").look(jobs)
    assert not jobs.submitted
    assert "somebody" in comment(cluster, stranger)
    cluster.run("scancel", "--partition=compass-inbox")
    time.sleep(0.2)
