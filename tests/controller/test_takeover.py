"""A real controller is killed with -9 while real processes run; another one takes them over."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from compass_abs.controller.client import Client, ControllerError
from tests.engines.conformance import COOPERATIVE


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def serve(state: Path, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "compass_abs", "serve", "--state", str(state), "--port", str(port), "--nodes", "2"]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def until(read: Callable[[], Any], what: Callable[[Any], bool], seconds: float = 30.0) -> Any:
    deadline, value = time.monotonic() + seconds, None
    while time.monotonic() < deadline:
        try:
            value = read()
        except ControllerError:
            value = None
        if value is not None and what(value):
            return value
        time.sleep(0.05)
    raise AssertionError(value)


def test_controller_killed_and_started_again_takes_over_what_runs(tmp_path: Path) -> None:
    port = free_port()
    first = serve(tmp_path, port)
    try:
        with Client(f"http://127.0.0.1:{port}") as client:
            until(lambda: client.get("/overview"), lambda found: found["ready"])
            fields = {"name": "steps", "command": [sys.executable, str(COOPERATIVE), "100000", "0.02"], "instances": 2}
            job = client.submit_fields(fields)
            short = client.submit_fields({**fields, "name": "short", "command": ["sleep", "1.5"]})
            found = until(
                lambda: client.get(f"/jobs/{job}"), lambda found: found["phase"] == "running" and found["step"] > 3
            )
            before = {run["instance"]: run["handle"] for run in found["runs"]}
            second = serve(tmp_path, free_port())
            assert second.wait(30) == 2
            assert second.stderr is not None
            assert b"held by another controller" in second.stderr.read()
            second.stderr.close()
            os.kill(first.pid, signal.SIGKILL)
            first.wait(10)
            time.sleep(1.5)
            assert first.stderr is not None
            first.stderr.close()
            first = serve(tmp_path, port)
            found = until(lambda: client.get(f"/jobs/{job}"), lambda found: len(found["runs"]) == 2)
            assert {run["instance"]: run["handle"] for run in found["runs"]} == before, "the same processes"
            assert (found["generation"], found["restarts"]) == (1, 0)
            # It ended while nobody looked; its supervisor wrote down how.
            until(lambda: client.get(f"/jobs/{short}"), lambda found: found["phase"] == "done")
            client.post(f"/jobs/{job}/cancel")
            until(lambda: client.get(f"/jobs/{job}"), lambda found: found["phase"] == "cancelled")
    finally:
        first.kill()
        first.wait(10)
        if first.stderr is not None:
            first.stderr.close()
