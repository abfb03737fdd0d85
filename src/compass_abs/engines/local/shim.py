"""The parent of one instance: starts it, outlives the controller, and leaves behind how it ended.

Run as `python -I -S shim.py ORDER.json`, by path, so that it starts in milliseconds: standard library only. It becomes
the reaper of everything that the instance starts, so that nothing of it can escape by changing its process group.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_LIMITS = {
    "memory_bytes": resource.RLIMIT_AS,
    "open_files": resource.RLIMIT_NOFILE,
    "file_bytes": resource.RLIMIT_FSIZE,
    "processes": resource.RLIMIT_NPROC,
}


def write(path: str, value: dict[str, object]) -> None:
    """Replaces a file as a whole, durably."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs a third of the start-up time
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)  # noqa: PTH105


def start_time(pid: int) -> int:
    """When a process began, in clock ticks since the machine did."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
        return int(file.read().rpartition(b")")[2].split()[19])


def become(order: dict[str, object]) -> None:
    """The child: turns into the user's program."""
    try:
        os.setsid()
        limits = order["limits"]
        assert isinstance(limits, dict)
        for name, kind in _LIMITS.items():
            if limits.get(name) is not None:
                soft = int(limits[name])
                hard = resource.getrlimit(kind)[1]
                soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
                resource.setrlimit(kind, (soft, soft))
        if limits.get("cores"):
            os.sched_setaffinity(0, limits["cores"])
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(str(order["workdir"]))
        command, environment = order["command"], order["environment"]
        assert isinstance(command, list)
        assert isinstance(environment, dict)
        os.execvpe(command[0], command, environment)
    except BaseException as error:
        sys.stderr.write(f"compass: can't start {order['command']!r}: {error}\n")
        sys.stderr.flush()
    os._exit(127)


def end_rest() -> None:
    """Ends whatever the instance has left behind; all of it is ours by now."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        children = _children()
        if not children:
            return
        for pid in children:
            try:  # noqa: SIM105 - contextlib costs start-up time
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def main() -> None:
    """Starts, waits, tells."""
    with open(sys.argv[1], encoding="utf-8") as file:  # noqa: PTH123
        order = json.load(file)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        become(order)
    write(
        order["process_file"],
        {
            "shim": os.getpid(),
            "shim_started": start_time(os.getpid()),
            "pid": child,
            "started": start_time(child),
        },
    )
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == child:
            break
    code = os.waitstatus_to_exitcode(status)
    end_rest()
    write(order["end_file"], {"code": code, "time": time.time()})


main()
