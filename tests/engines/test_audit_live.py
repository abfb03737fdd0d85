"""`compass audit` and `compass shadow` on real clusters: what they find, and that they touch nothing."""

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

from compass_abs.engines.kubernetes.client import Client, pod_path
from tests.engines.kubernetes_accounts import apply, kubeconfig_of, pod, recorded
from tests.engines.kubernetes_cluster import KubernetesCluster, binaries
from tests.engines.slurm_cluster import SlurmCluster, skip_without_slurm

pytestmark = pytest.mark.engine

COMPASS = [sys.executable, "-m", "compass_abs"]
#: Seconds of a day, here.
DAY = 10.0


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    skip_without_slurm()
    with tempfile.TemporaryDirectory(prefix="cs-") as base:
        cluster = SlurmCluster(Path(base) / "c", nodes=2, gpus=8)
        yield cluster
        cluster.down()


@pytest.fixture
def admin(kubernetes: KubernetesCluster) -> Iterator[Client]:
    client = kubernetes.client()
    yield client
    client.close()


def answer(environment: dict[str, str], *arguments: str) -> dict[str, Any]:
    """What a command of ours prints as JSON."""
    command = [*COMPASS, *arguments, "--json"]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def halves(admin: Client, space: str) -> None:
    """Two nodes half full of what may be moved, the others full, and a pod that wants a whole node."""
    for number in range(1, 9):
        half = number <= 2
        labels = {"compass-abs__movable": "true"} if half else {}
        admin.create(pod_path(space), pod(f"on-{number}", 4 if half else 8, f"n{number}", **labels))
    admin.create(pod_path(space), pod("whole", 8))


def check_findings(found: dict[str, Any], job: str) -> None:
    (pool,) = found["pools"]
    assert (pool["partial_nodes"], pool["avoidable_partial_nodes"], pool["free_gpus"]) == (2, 2, 8)
    assert {each["gpus"]: each["now"] for each in pool["largest_gangs"]}[8] == 0
    assert {each["gpus"]: each["repacked_around_pinned"] for each in pool["largest_gangs"]}[8] == 1
    (waiting,) = found["waiting"]["jobs"]
    assert (waiting["job"], waiting["verdict"], len(waiting["plan"]["moves"])) == (job, "fragmentation", 1)
    assert waiting["plan"]["gpu_seconds"] == 32


def test_audit_of_kubernetes_finds_what_waits_and_sends_no_verb_that_writes(
    kubernetes: KubernetesCluster, admin: Client, tmp_path: Path
) -> None:
    apply(kubernetes, "recommend")
    account = kubeconfig_of(kubernetes, "compass-abs", tmp_path / "account")
    with kubernetes.namespace() as space, recorded(account) as (config, asked):
        halves(admin, space)
        told = ("audit", "--kubernetes", "--context", "test")
        with_kubectl = answer({"KUBECONFIG": str(config), "PATH": f"{binaries()}:{os.environ['PATH']}"}, *told)
        assert any("/api/v1/pods" in each for each in asked)
        by_kubectl = len(asked)
        without = answer({"KUBECONFIG": str(config), "PATH": str(tmp_path)}, *told)
        by_ourselves = len(asked)
        assert by_ourselves > by_kubectl
        watched = ("shadow", str(tmp_path / "day"), *told[1:], "--every", "1", "--hours", str(2 / 3600))
        assert answer({"KUBECONFIG": str(config), "PATH": str(tmp_path)}, *watched)["observations"] >= 2
        assert len(asked) > by_ourselves
        assert {each.split()[0] for each in asked} == {"GET"}
        check_findings(with_kubectl, f"{space}/whole")
        check_findings(without, f"{space}/whole")
        listed = kubernetes.kubectl("get", "nodes,pods", "-A", "-o", "json")
        (tmp_path / "list.json").write_text(listed)
        check_findings(answer({}, "audit", str(tmp_path / "list.json")), f"{space}/whole")
    kubernetes.kubectl("delete", "namespace", "compass-abs", "--timeout=60s")


def test_audit_of_a_context_that_is_not_there_says_so(kubernetes: KubernetesCluster) -> None:
    environment = {"KUBECONFIG": str(kubernetes.kubeconfig), "PATH": f"{binaries()}:{os.environ['PATH']}"}
    command = [*COMPASS, "audit", "--kubernetes", "--context", "nowhere"]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nowhere" in done.stderr
    assert "Traceback" not in done.stderr


# ---- Slurm


def submitted(slurm: SlurmCluster, gpus: int, *options: str) -> int:
    """A job that sleeps; when it runs, or waits for resources, it is on record."""
    script = slurm.base / "sleep.sh"
    script.write_text("#!/bin/sh\nexec sleep 1000\n")
    options = ("--parsable", f"--gres=gpu:{gpus}", "--output=/dev/null", "--partition=others", *options)
    return int(slurm.run("sbatch", *options, str(script)))


def running(slurm: SlurmCluster, *jobs: int) -> None:
    """Returns when all of these run."""
    deadline = time.monotonic() + 20
    while not set(map(str, jobs)) <= set(slurm.run("squeue", "-h", "-t", "R", "-o", "%i").split()):
        assert time.monotonic() < deadline, slurm.run("squeue")
        time.sleep(0.1)


def slurm_halves(slurm: SlurmCluster) -> tuple[int, int, int]:
    """The same on two nodes: two halves that may be moved, and a job that wants a whole node."""
    movable = "--comment=compass-abs/movable=true"
    first, filler, second = submitted(slurm, 4, movable), submitted(slurm, 4), submitted(slurm, 4, movable)
    running(slurm, first, filler, second)
    slurm.run("scancel", str(filler))
    whole = submitted(slurm, 8)
    deadline = time.monotonic() + 20
    while "Resources" not in slurm.run("squeue", "-h", "-j", str(whole), "-o", "%r") or str(filler) in slurm.run(
        "squeue", "-h", "-o", "%i"
    ):
        assert time.monotonic() < deadline, slurm.run("squeue")
        time.sleep(0.1)
    return first, second, whole


def test_audit_of_slurm_finds_what_waits_live_and_from_files(slurm: SlurmCluster, tmp_path: Path) -> None:
    _, _, whole = slurm_halves(slurm)
    environment = {"SLURM_CONF": str(slurm.conf)}
    before = slurm.run("scontrol", "show", "job")
    check_findings(answer(environment, "audit", "--slurm"), str(whole))
    for command in ("squeue", "sinfo"):
        (tmp_path / f"{command}.json").write_text(slurm.run(command, "--json"))
    check_findings(answer({}, "audit", *(str(tmp_path / f"{c}.json") for c in ("squeue", "sinfo"))), str(whole))
    after = slurm.run("scontrol", "show", "job")
    steady = [line for line in before.splitlines() if "Time=" not in line and "LastSched" not in line]
    assert steady == [line for line in after.splitlines() if "Time=" not in line and "LastSched" not in line]
    slurm.run("scancel", "--partition=others")


# ---- a day in the shadow


def day(environment: dict[str, str], state: Path, *source: str, meanwhile: Callable[[], None]) -> dict[str, Any]:
    """A watch that is killed in the middle and started again; what it reports in the end."""
    command = [*COMPASS, "shadow", str(state), *source, "--every", "1", "--hours", str(DAY / 3600), "--json"]
    everything = {**os.environ, **environment}
    first = subprocess.Popen(command, env=everything, stdout=subprocess.DEVNULL)
    time.sleep(DAY * 0.4)
    first.kill()
    first.wait()
    meanwhile()
    with state.open("ab") as file:
        file.write(b'{"kind":"node","time":1')  # torn off while it was being written
    done = subprocess.run(command, env=everything, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def check_day(found: dict[str, Any], job: str) -> None:
    assert DAY * 0.6 < found["end"] - found["begin"] < DAY * 2
    assert found["observations"] >= 5
    (waited,) = [each for each in found["jobs"] if each["job"] == job]
    # Really it waited until somebody made room; the other scheduler moves half a node and starts it at once.
    assert waited["really"] - waited["submitted"] > waited["shadow"] - waited["submitted"]
    assert found["jobs_earlier"] == 1
    assert found["jobs_later"] == 0
    (pool,) = found["pools"]
    assert pool["moves"] == 1
    assert pool["shadow_avoidable"] < pool["really_avoidable"]


def test_shadow_of_kubernetes_survives_its_death_and_says_what_would_have_been(
    kubernetes: KubernetesCluster, admin: Client, tmp_path: Path
) -> None:
    with kubernetes.namespace() as space:
        halves(admin, space)

        def room() -> None:
            admin.delete(pod_path(space, "on-1"), grace=1)
            while admin.find(pod_path(space, "on-1")) is not None:
                time.sleep(0.1)
            admin.bind(space, "whole", "n1")

        environment = {"KUBECONFIG": str(kubernetes.kubeconfig), "PATH": f"{binaries()}:{os.environ['PATH']}"}
        found = day(environment, tmp_path / "day.jsonl", "--kubernetes", meanwhile=room)
        check_day(found, f"{space}/whole")


def test_shadow_of_slurm_survives_its_death_and_says_what_would_have_been(slurm: SlurmCluster, tmp_path: Path) -> None:
    first, _, whole = slurm_halves(slurm)
    environment = {"SLURM_CONF": str(slurm.conf)}
    found = day(
        environment, tmp_path / "day.jsonl", "--slurm", meanwhile=lambda: void(slurm.run("scancel", str(first)))
    )
    check_day(found, str(whole))
    slurm.run("scancel", "--partition=others")


def void(value: object) -> None:
    """Nobody wants to know."""
