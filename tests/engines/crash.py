"""A daemon's crash that is over when it returns: what started anew finds its ports free."""

import os
import signal
import time
from pathlib import Path


def crash(pid: int, seconds: float = 30.0) -> None:
    """Kills a process and waits until the last of its threads is gone: only then are its sockets closed."""
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + seconds
    while not _gone(pid):
        assert time.monotonic() < deadline, f"process {pid} was killed {seconds} s ago and is still there"
        time.sleep(0.01)


def _gone(pid: int) -> bool:
    """Whether nothing is left of it but what its parent hasn't asked for."""
    try:
        states = [
            (task / "stat").read_text().rpartition(")")[2].split()[0] for task in Path(f"/proc/{pid}/task").iterdir()
        ]
    except (FileNotFoundError, ProcessLookupError):
        # The folder, or a thread while it was looked at: look again unless all of it is gone.
        return not Path(f"/proc/{pid}").exists()
    return all(state in "ZX" for state in states)
