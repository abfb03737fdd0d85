"""What runs on a node: becomes the parent of one instance, and leaves behind how it ended.

Run as `python -I -S instance.py ORDER.json` by a Slurm job or a Ray actor, from a copy in the engine's folder:
standard library only, since the node may have nothing else. It starts the instance at most once, whatever the platform
does with its job; hands signals on; ends what overstays its grace without anybody's help, and the instance when its own
parent is gone; and, when a Slurm instance left for a move, keeps the allocation for a moment: the successor waits for
it with `afterany`, which Slurm acts on at once, while a new request would wait for its scheduler's next round.
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIMITS = {
    "memory_bytes": resource.RLIMIT_AS,
    "open_files": resource.RLIMIT_NOFILE,
    "file_bytes": resource.RLIMIT_FSIZE,
    "processes": resource.RLIMIT_NPROC,
}
_HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
#: What the platform says about this allocation, for the program to see.
_ALLOCATION = ("SLURM_", "CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK")
#: Who says which GPUs of the node these are.
_INDICES = ("COMPASS_SLOTS", "SLURM_JOB_GPUS", "SLURM_STEP_GPUS", "CUDA_VISIBLE_DEVICES")
#: How often the request to end is looked for, in case its signal got lost.
_LOOK_EVERY = 1.0
#: How long an allocation is kept for the successor's request. Slurm's own scheduling round takes as long.
_HANDOVER = 1.0
_EXIT_CLAIMED = 75


def write(path: str, value: dict[str, object]) -> None:
    """Replaces a file as a whole, durably."""
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs a third of the start-up time
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)  # noqa: PTH105


def read(path: str) -> Any:
    """What a file holds; None when there is none."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            return json.load(file)
    except (OSError, ValueError):
        return None


def claim(path: str) -> bool:
    """True for the first that asks: a job that Slurm starts a second time must not double a rank."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        return False
    return True


def become(order: Any) -> None:
    """The child: turns into the user's program."""
    try:
        os.setsid()
        # Without its supervisor nobody would end it in time, or tell that it has ended.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        for name, kind in _LIMITS.items():
            if order["limits"].get(name) is not None:
                soft = int(order["limits"][name])
                hard = resource.getrlimit(kind)[1]
                soft = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
                resource.setrlimit(kind, (soft, soft))
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(order["workdir"])
        allocation = {name: value for name, value in os.environ.items() if name.startswith(_ALLOCATION)}
        # A container's environment is its image's and its pod's: the program is to find it.
        given = dict(os.environ) if order.get("inherit") else {}
        os.execvpe(order["command"][0], order["command"], {**given, **order["environment"], **allocation})
    except BaseException as error:
        sys.stderr.write(f"compass: can't start {order['command']!r}: {error}\n")
        sys.stderr.flush()
    os._exit(127)


def signal_group(pid: int, number: int) -> None:
    """Signals the instance and everything in its group."""
    try:  # noqa: SIM105 - contextlib costs start-up time
        os.killpg(pid, number)
    except OSError:
        pass


def children() -> list[int]:
    """Processes that are ours by now."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:  # noqa: PTH123
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def end_rest() -> None:
    """Ends whatever the instance has left behind."""
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        left = children()
        if not left:
            return
        for pid in left:
            try:  # noqa: SIM105
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def reap(child: int) -> int | None:
    """Collects what has ended; the wait status of the child once it has."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def watch_over(child: int, order: Any) -> tuple[int, Any, int]:
    """Waits for the instance's end: its wait status, the last request to end, and the last signal of others."""
    kill_at: float | None = None
    asked, outside = None, 0
    look_every, parent = float(order.get("look_every", _LOOK_EVERY)), os.getppid()
    while True:
        wait = look_every if kill_at is None else min(look_every, max(0.0, kill_at - time.monotonic()))
        came = signal.sigtimedwait((signal.SIGCHLD, *_HANDED_ON), wait)
        status = reap(child)
        if status is not None:
            return status, asked, outside
        if os.getppid() != parent:
            # What held the GPUs for us is gone, and they may be given to others.
            kill_at = time.monotonic()
        request = read(order["stop_file"])
        if request is not None and request != asked:
            if request.get("signal"):
                signal_group(child, getattr(signal, "SIG" + request["signal"]))
            until = time.monotonic() + float(request["grace"])
            kill_at = until if kill_at is None else min(kill_at, until)
            asked = request
        elif came is not None and came.si_signo != signal.SIGCHLD and request is None:
            # Somebody else's: Slurm at a time limit, an operator's scancel.
            outside = came.si_signo
            signal_group(child, outside)
        if kill_at is not None and time.monotonic() >= kill_at:
            signal_group(child, signal.SIGKILL)
            kill_at = time.monotonic() + 1.0


def main() -> None:
    """Starts, waits, tells."""
    order = read(sys.argv[1])
    if order is None or not claim(order["claim_file"]):
        sys.stderr.write("compass: this run was started before, or forgotten; not starting it again\n")
        os._exit(_EXIT_CLAIMED)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGCHLD, *_HANDED_ON))
    child = os.fork()
    if child == 0:
        become(order)
    gpus = next((os.environ[name] for name in _INDICES if os.environ.get(name)), "")
    write(order["process_file"], {"pid": child, "shim": os.getpid(), "gpus": gpus, "time": time.time()})
    status, asked, outside = watch_over(child, order)
    end_rest()
    code = os.waitstatus_to_exitcode(status)
    write(order["end_file"], {"code": code, "outside": outside, "time": time.time()})
    if asked is not None and asked.get("handover"):
        signal.sigtimedwait(_HANDED_ON, _HANDOVER)
    os._exit(code if code >= 0 else 128 - code)


main()
