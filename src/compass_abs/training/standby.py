"""A warm standby: one process a node that has imported the framework and forks successors of running jobs.

    python -m compass_abs.training.standby SOCKET [MODULE ...]

Importing torch takes most of a cold start; a fork of a process that has done so takes milliseconds. The standby never
touches a GPU: a CUDA context doesn't survive a fork, so each successor makes its own.

One JSON object a connection, ended by a newline: `{"argv": [...], "env": {...}, "cwd": "...", "stdout": "..."}`,
answered by `{"pid": N}`, and on the same connection by `{"pid": N, "returncode": N}` when that process has ended
(negative for a signal), at once. The connection's end without it means that the standby itself has died. Only the
standby's own user (and root) is served, and nothing goes through a shell.
"""

import contextlib
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from compass_abs.model import CompassError
from compass_abs.training.leaving import leave

#: What costs a second or more to import, and what wrapping a model in DDP pulls in.
PRELOAD = ("torch", "torch.distributed", "torch.nn.parallel", "torch.optim", "torch._dynamo", "numpy")
_LARGEST_REQUEST = 1 << 20
_CREDENTIALS = struct.Struct("3i")


class StandbyError(CompassError):
    """A standby that is not there, or that refused."""


# ---- the client


@dataclass(slots=True)
class Successor:
    """A process that a standby has forked for us."""

    pid: int
    #: Readable when the process has ended; for a selector.
    connection: socket.socket

    def wait(self, timeout: float | None = None) -> int | None:
        """Its exit code, negative for a signal; None when it still runs after `timeout` seconds.

        `StandbyError` when the standby has died: the process may live, and nobody will learn its code.
        """
        self.connection.settimeout(timeout)
        try:
            message = _receive(self.connection)
        except TimeoutError:
            return None
        self.connection.close()
        if message is None:
            raise StandbyError(f"the standby of process {self.pid} has died; how the process ended is unknown")
        return int(message["returncode"])


def fork_successor(
    address: Path,
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    cwd: Path | None = None,
    output: Path | None = None,
    timeout: float = 10.0,
) -> Successor:
    """Starts `python ARGV...` (a script, or `-m MODULE`) as a fork of the standby, with exactly this environment.

    Its output is appended to `output`, both streams; without one it goes where the standby's goes.
    """
    request = {"argv": list(argv), "env": dict(environment), "cwd": str(cwd or Path.cwd()), "output": str(output or "")}
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(timeout)
    try:
        connection.connect(str(address))
        connection.sendall(json.dumps(request).encode() + b"\n")
        answer = _receive(connection)
    except OSError as error:
        connection.close()
        raise StandbyError(f"standby {address}: {error.strerror or error}; start the job cold instead") from None
    if answer is None or "pid" not in answer:
        connection.close()
        raise StandbyError(f"standby {address} refused: {(answer or {}).get('error', 'it hung up')}")
    return Successor(int(answer["pid"]), connection)


def end_standby(address: Path, timeout: float = 5.0) -> None:
    """Ends whatever standby listens there, whoever started it; returns once its socket is gone."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(timeout)
        connection.connect(str(address))
        # The kernel knows who listens; a file with its number could tell of a process long gone.
        pid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout
    while address.exists() and time.monotonic() < deadline:
        time.sleep(0.01)


def _receive(connection: socket.socket) -> dict[str, Any] | None:
    """The next line of the connection; None at its end."""
    data = b""
    while not data.endswith(b"\n"):
        # Two messages may have arrived at once: only the first line is taken off the socket.
        waiting = connection.recv(1 << 16, socket.MSG_PEEK)
        if not waiting:
            return None
        data += connection.recv(waiting.find(b"\n") + 1 or len(waiting))
        if len(data) > _LARGEST_REQUEST:
            raise StandbyError(f"a message of more than {_LARGEST_REQUEST} bytes")
    value = json.loads(data)
    if not isinstance(value, dict):
        raise StandbyError("a message that is no JSON object")
    return value


# ---- the standby


class Standby:
    """Listens, forks, and tells each client how its process ended."""

    def __init__(self, address: Path) -> None:
        self.address = address
        self._clients: dict[int, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._listener = _listen(address)
        self._wake, wake_writer = os.pipe()
        for descriptor in (self._wake, wake_writer):
            os.set_blocking(descriptor, False)
        self._wake_writer = wake_writer
        self._stopping = False
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        signal.set_wakeup_fd(self._wake_writer, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Until TERM. Processes that it has forked live on."""
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        while not self._stopping:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self._wake, 4096)
            self._reap()
        self.address.unlink(missing_ok=True)

    def _stop(self, number: int, frame: object) -> None:
        self._stopping = True

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(5.0)
        try:
            request = _checked(connection)
            pid = os.fork()
        except (OSError, ValueError, CompassError) as error:
            _tell(connection, {"error": str(error)})
            connection.close()
            return
        if pid == 0:
            self._become(request, connection)
        self._clients[pid] = connection
        _tell(connection, {"pid": pid})

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            connection = self._clients.pop(pid, None)
            if connection is not None:
                _tell(connection, {"pid": pid, "returncode": os.waitstatus_to_exitcode(status)})
                connection.close()

    def _become(self, request: dict[str, Any], ours: socket.socket) -> NoReturn:
        """Turns the forked child into the program that was asked for."""
        code = 1
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)
            os.setsid()
            self._listener.close()
            self._selector.close()
            os.close(self._wake)
            os.close(self._wake_writer)
            for connection in (ours, *self._clients.values()):
                connection.close()
            _redirect(request["output"])
            os.chdir(request["cwd"])
            os.environ.clear()
            os.environ.update(request["env"])
            code = _run(request["argv"])
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
        except BaseException:
            sys.excepthook(*sys.exc_info())
        leave(code)


def _listen(address: Path) -> socket.socket:
    address.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    listener = socket.socket(socket.AF_UNIX)
    with contextlib.suppress(FileNotFoundError, ConnectionRefusedError), socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(address))
        raise StandbyError(f"a standby listens at {address} already")
    address.unlink(missing_ok=True)
    mask = os.umask(0o177)
    try:
        listener.bind(str(address))
    except OSError as error:
        raise StandbyError(f"socket {address}: {error}; a path of at most 107 bytes is needed") from None
    finally:
        os.umask(mask)
    listener.listen(64)
    return listener


def _checked(connection: socket.socket) -> dict[str, Any]:
    """The request, from a user who may make one and of the form we know."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(credentials)
    if uid not in (0, os.geteuid()):
        raise StandbyError(f"user {uid} is not served by the standby of user {os.geteuid()}")
    request = _receive(connection)
    if request is None:
        raise StandbyError("no request")
    argv, env = request.get("argv"), request.get("env")
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        raise StandbyError("argv must be a list of strings, not empty")
    if argv[0] == "-m" and len(argv) < 2:
        raise StandbyError("argv is only -m; expected a module's name after it")
    if not isinstance(env, dict) or not all(isinstance(k, str) and isinstance(v, str) for k, v in env.items()):
        raise StandbyError("env must map strings to strings")
    for name in ("cwd", "output"):
        if not isinstance(request.setdefault(name, ""), str):
            raise StandbyError(f"{name} must be a string")
    request["cwd"] = request["cwd"] or str(Path.cwd())
    return request


def _tell(connection: socket.socket, message: dict[str, Any]) -> None:
    # A client that has gone needs no answer.
    with contextlib.suppress(OSError):
        connection.sendall(json.dumps(message).encode() + b"\n")


def _redirect(output: str) -> None:
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    if output:
        descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]


def _run(argv: list[str]) -> int:
    torch = sys.modules.get("torch")
    threads = os.environ.get("OMP_NUM_THREADS", "")
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if torch is not None:
        # Every fork would draw the same "random" numbers otherwise; Python's own generator sees to itself.
        torch.seed()
    if torch is not None and threads.isdigit() and int(threads):
        # Read at import by a process of its own; here that is long past.
        torch.set_num_threads(int(threads))
    if argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path[0] = os.getcwd()  # noqa: PTH109 - what the interpreter itself does for -m
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        sys.path[0] = str(Path(argv[0]).resolve().parent)
        runpy.run_path(argv[0], run_name="__main__")
    return 0


def main() -> NoReturn:
    """Imports what successors will need, says so, and serves."""
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__)
        leave(0 if len(sys.argv) > 1 else 2)
    # Asks the driver for devices without opening one, which a fork would not survive.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
    for name in (*PRELOAD, *sys.argv[2:]):
        with contextlib.suppress(ImportError) if name in PRELOAD else contextlib.nullcontext():
            import_module(name)
    torch = sys.modules.get("torch")
    if torch is not None:
        # A pool of threads doesn't survive a fork either; each successor starts its own.
        torch.set_num_threads(1)
        if torch.cuda.is_initialized():
            raise StandbyError("a preloaded module has opened a GPU, which a fork would not survive; don't preload it")
    standby = Standby(Path(sys.argv[1]))
    print("ready", flush=True)
    standby.serve()
    # Nothing of ours is left, and taking down torch in good order takes seconds on a busy node.
    leave(0)


if __name__ == "__main__":
    try:
        main()
    except CompassError as error:
        print(f"compass: {error}", file=sys.stderr)
        sys.exit(2)
