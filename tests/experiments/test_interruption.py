"""A sweep killed at random moments, as a user's machine would kill it, and started again."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
import yaml

from compass_abs.experiments import cells_of, make_executor
from tests.experiments.small import small_study


def command(study: Path, out: Path) -> list[str]:
    return [sys.executable, "-m", "compass_abs", "sweep", str(study), "--out", str(out), "--workers", "2", "--quiet"]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    path = tmp_path / "small.yaml"
    # Enough work that a kill finds something unfinished; no figures, which take longer than the runs.
    busy = small_study(
        workloads=[{"synth": "demo", "length": 4, "seed": 5, "days": "all"}], figures=[], eta=[0.85, 0.9, 0.95]
    )
    path.write_text(yaml.safe_dump(busy.model_dump(mode="json")), encoding="utf-8")
    return path


def children_of(pid: int) -> list[int]:
    """Processes whose parent this is."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid:
                found.append(int(entry.name))
    return found


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def gone(pids: list[int], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not any(Path(f"/proc/{pid}").exists() for pid in pids):
            return True
        time.sleep(0.1)
    return False


def count(out: Path) -> int:
    return len(list(out.rglob("cells/*/*.json")))


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for orphans in /proc")
def test_sweep_killed_at_random_moments_ends_with_the_same_results(study: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run(command(study, whole), check=True, capture_output=True)
    random, kills = Random(1), 0
    for _ in range(4):
        before = count(killed)
        process = subprocess.Popen(command(study, killed), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while process.poll() is None and count(killed) == before:
            time.sleep(0.02)
        time.sleep(random.uniform(0, 0.4))
        workers = children_of(process.pid)
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
        assert gone(workers, 10), "workers outlived the sweep that started them"
        if process.returncode == 0:
            break
    assert kills > 0
    assert count(killed) > 0
    subprocess.run(command(study, killed), check=True, capture_output=True)
    names = sorted(path.name for path in (whole / "small").iterdir())
    assert names == ["README.md", "overall.csv", "runs.parquet"]
    for name in names:
        assert (whole / "small" / name).read_bytes() == (killed / "small" / name).read_bytes(), name


@pytest.mark.slow
def test_sweep_interrupted_from_the_keyboard_says_how_to_go_on(study: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = subprocess.Popen(
        command(study, out),
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # A shell that starts its jobs in the background makes them deaf to the keyboard, and us with them.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    while process.poll() is None and count(out) < 3:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the same command goes on from there" in errors
    assert "Traceback" not in errors


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for orphans in /proc")
def test_abandoned_sweep_ends_its_workers_in_the_middle_of_a_long_run() -> None:
    """Runs that would take minutes: nobody who presses Ctrl-C is to wait for them."""
    large = {"synth": "gfs", "knobs": {"load": 16.0}, "seed": 1}
    cells = cells_of(
        small_study(workloads=[large], schedulers=["gfs", *[f"compass-jit:pause={k}" for k in range(1, 5)]], eta=[0.9])
    )
    outcomes = make_executor("local", 2).run(cells)
    assert next(outcomes).result is not None
    # The resource tracker is a child too, and stays.
    workers = [pid for pid in children_of(os.getpid()) if "spawn_main" in command_line(pid)]
    assert len(workers) == 2
    outcomes.close()  # type: ignore[attr-defined]
    assert gone(workers, 20)
