"""Ends processes of test clusters as a crash or a power failure does."""

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PATIENCE = 30.0


def kill_all(pids: Iterable[int]) -> None:
    """Kills them at once, and returns when they are gone: until then their ports are held."""
    victims = list(pids)
    for pid in victims:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + _PATIENCE
    while any(map(_lives, victims)):
        assert time.monotonic() < deadline, f"killed {_PATIENCE:g} s ago, and still there: {victims}"
        time.sleep(0.005)


def _lives(pid: int) -> bool:
    """Whether a process, or a thread of it, still runs; one that is only waited for doesn't."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1  # noqa: PTH208 - names are wanted
    except OSError:
        return False
