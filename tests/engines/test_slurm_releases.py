"""All tests of Slurm once more, on later releases than this machine has: deploy/test-clusters/slurm-release.sh."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engines.slurm_cluster import SCRIPTS, skip_without_slurm

pytestmark = [pytest.mark.engine, pytest.mark.nightly]

ROOT = Path(__file__).parents[2]
TESTS = ("test_slurm.py", "test_slurm_scripts.py", "test_slurm_tutorial.py", "test_faults.py", "test_audit_live.py")


@pytest.mark.parametrize("suite", ["trixie", "forky"])
def test_later_release_passes_all_tests_of_slurm(suite: str) -> None:
    skip_without_slurm()
    done = subprocess.run([SCRIPTS / "slurm-release.sh", suite], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the Slurm of {suite} can't be had: {done.stderr.strip()}")
    words = ["python", "-m", "pytest", "-m", "engine and not nightly", "-k", "slurm"]
    words += [f"tests/engines/{name}" for name in TESTS]
    command = f'{done.stdout.strip()}; [ "$(command -v squeue)" != /usr/bin/squeue ] && exec "$@"'
    environment = dict(os.environ, PATH=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    found = subprocess.run(
        ["bash", "-c", command, *words], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
