"""The same sweep on a real local Ray cluster, and through submitit."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from compass_abs.experiments import ResultStore, cells_of, make_executor, run_cells
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
