"""The same sweep on a real local Ray cluster, on a real Slurm cluster, and through submitit without one."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from compass_abs.experiments import ResultStore, cells_of, make_executor, run_cells
from tests.engines.slurm_cluster import SlurmCluster, skip_without_slurm
from tests.experiments.small import small_study

# Ray looks for this machine's address and would bind it: in a network namespace there is only loopback.
_IN_NAMESPACE = ["unshare", "-n", "bash", "-c", 'ip link set lo up; exec "$@"', "bash"]


def namespaces_work() -> bool:
    if not shutil.which("unshare") or not shutil.which("ip"):
        return False
    probe = [*_IN_NAMESPACE, "true"]
    return subprocess.run(probe, capture_output=True).returncode == 0


def study_file(folder: Path) -> Path:
    path = folder / "small.yaml"
    path.write_text(yaml.safe_dump(small_study(figures=[]).model_dump(mode="json")), encoding="utf-8")
    return path


@pytest.mark.engine
@pytest.mark.slow
def test_sweep_on_a_ray_cluster_gives_what_this_machine_gives(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="pip install 'compass-abs[sweep]'")
    if not namespaces_work():
        pytest.skip("needs root and iproute2 to give Ray a network of its own (unshare -n)")
    study = study_file(tmp_path)
    here, there = tmp_path / "here", tmp_path / "there"
    command = [sys.executable, "-m", "compass_abs", "sweep", str(study), "--quiet", "--workers", "2"]
    local = subprocess.run([*command, "--out", str(here)], capture_output=True, text=True)
    assert local.returncode == 0, local.stderr
    script = f"""
import ray, subprocess, sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args=dict(
    num_cpus=0, object_store_memory=100 * 2**20, include_dashboard=False))
for _ in range(2):
    cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20, wait=False)
cluster.wait_for_nodes()
options = ["--engine", "ray", "--engine-option", "address=" + cluster.address, "--engine-option", "batch=3"]
code = subprocess.run({[*command, "--out", str(there)]!r} + options).returncode
cluster.shutdown()
sys.exit(code)
"""
    done = subprocess.run(
        [*_IN_NAMESPACE, sys.executable, "-c", script], capture_output=True, text=True, timeout=240, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("README.md", "overall.csv", "runs.parquet"):
        assert (here / "small" / name).read_bytes() == (there / "small" / name).read_bytes(), name


@pytest.mark.slow
def test_sweep_through_submitit_gives_what_this_machine_gives(tmp_path: Path) -> None:
    """`cluster=local` starts the very tasks that a Slurm array would, as processes."""
    pytest.importorskip("submitit", reason="pip install 'compass-abs[sweep]'")
    cells = cells_of(small_study(eta=[0.9]))
    expected = run_cells(cells, ResultStore(tmp_path / "here"), make_executor("local", 1))
    options = {"cluster": "local", "folder": str(tmp_path / "logs"), "batch": "5"}
    found = run_cells(cells, ResultStore(tmp_path / "there"), make_executor("slurm", 2, options))
    assert [r["summary"] for r in found] == [r["summary"] for r in expected]


@pytest.mark.engine
@pytest.mark.slow
def test_sweep_on_a_slurm_cluster_gives_what_this_machine_gives(tmp_path: Path) -> None:
    """A job array on real slurmctld and slurmd daemons."""
    pytest.importorskip("submitit", reason="pip install 'compass-abs[sweep]'")
    skip_without_slurm()
    study = study_file(tmp_path)
    here, there = tmp_path / "here", tmp_path / "there"
    command = [sys.executable, "-m", "compass_abs", "sweep", str(study), "--quiet", "--workers", "2"]
    local = subprocess.run([*command, "--out", str(here)], capture_output=True, text=True)
    assert local.returncode == 0, local.stderr
    # Sockets have short names: pytest's folders may be too deep.
    with tempfile.TemporaryDirectory(prefix="cs-") as base:
        cluster = SlurmCluster(Path(base) / "c", nodes=2, gpus=1)
        try:
            options = {"folder": str(tmp_path / "logs"), "batch": "5", "minutes": "5"}
            engine = [word for name, value in options.items() for word in ("--engine-option", f"{name}={value}")]
            done = subprocess.run(
                [*command, "--out", str(there), "--engine", "slurm", *engine],
                env=dict(os.environ, SLURM_CONF=str(cluster.conf)),
                capture_output=True,
                text=True,
                timeout=240,
            )
        finally:
            cluster.down()
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("README.md", "overall.csv", "runs.parquet"):
        assert (here / "small" / name).read_bytes() == (there / "small" / name).read_bytes(), name
    # 20 runs in batches of 5, each a task of the array, which Slurm started and not we.
    assert len(list((tmp_path / "logs").glob("*_result.pkl"))) == 4
