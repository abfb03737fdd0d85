"""A process's ear and mouth: signals and its control directory."""

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from types import FrameType
from typing import Any

from compass_abs.training.contract import (
    DEFAULT_NUDGE,
    GO_FILE,
    NUDGE_VARIABLE,
    REQUEST_FILE,
    Acknowledgement,
    ContractError,
    Directive,
    ProcessState,
    Progress,
    Request,
    RequestKind,
    Worker,
    acknowledge,
    read_acknowledgement,
    read_directive,
    read_json,
    read_request,
    report,
)

#: A held process looks for its directive this often: well under the time that anything else in a migration takes.
GLANCE = 0.005
_HEARTBEAT = 1.0


class Mailbox:
    """What this process was asked, and where it answers."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.progress = Progress(worker.rank, worker.generation, -1, 0.0, ProcessState.STARTING, os.getpid())
        self.terminated = False
        self._nudged = False
        self._seen: tuple[int, ...] = ()
        self._unanswered: Request | None = None
        self._answered = ""
        self._nudges = 0
        self._next_beat = 0.0
        self._previous: dict[int, Any] = {}
        if worker.control_dir is not None:
            earlier = read_acknowledgement(worker.control_dir, worker.rank)
            self._answered = "" if earlier is None else earlier.request

    # ---- signals

    def listen(self) -> None:
        """Takes TERM and the nudge signal; only a main thread can."""
        if threading.current_thread() is not threading.main_thread():
            return
        name = os.environ.get(NUDGE_VARIABLE, DEFAULT_NUDGE).removeprefix("SIG")
        if not hasattr(signal, f"SIG{name}"):
            raise ContractError(f"environment variable {NUDGE_VARIABLE} is {name!r}, expected a signal like USR2")
        for number, handler in ((signal.SIGTERM, self._terminate), (getattr(signal, f"SIG{name}"), self._nudge)):
            self._previous[number] = signal.signal(number, handler)

    def unlisten(self) -> None:
        """Gives the signals back."""
        for number, handler in self._previous.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        self._previous.clear()

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self.terminated = True

    def _nudge(self, number: int, frame: FrameType | None) -> None:
        self._nudged = True

    # ---- requests

    def poll(self) -> Request | None:
        """The request that waits for an answer. The signal is only a hint: the file is looked at each time."""
        if self.terminated:
            return Request("signal-TERM", RequestKind.STOP)
        control = self.worker.control_dir
        if control is None:
            # Without an engine the signal itself is the request, as in `sbatch --signal=USR1@60`.
            return Request(f"signal-{self._nudges}", RequestKind.STOP) if self._nudged else None
        self._nudged = False
        try:
            status = (control / REQUEST_FILE).stat()
        except OSError:
            return None
        version = (status.st_mtime_ns, status.st_ino, status.st_size)
        if version != self._seen:
            self._seen = version
            try:
                request = read_request(control)
            except (ContractError, OSError) as error:
                print(f"compass: {error}; ignored", file=sys.stderr)
                return self._unanswered
            if request is not None and request.id != self._answered:
                self._unanswered = request
        return self._unanswered

    def answer(self, answer: Acknowledgement) -> bool:
        """Acknowledges a request, once; False when that could not be written, and the request still waits."""
        if self.worker.control_dir is not None:
            try:
                acknowledge(self.worker.control_dir, replace(answer, time=time.time()))
            except OSError as error:
                print(f"compass: {error}; acknowledged at the next step instead", file=sys.stderr)
                return False
        self._answered = answer.request
        if self._unanswered is not None and self._unanswered.id == answer.request:
            self._unanswered = None
        self._nudged = False
        self._nudges += 1
        return True

    def directive(self, request: str) -> Directive | None:
        """What to do after this request, once it is known."""
        if self.worker.control_dir is None:
            return None
        try:
            return read_directive(self.worker.control_dir, self.worker.instance, request)
        except (ContractError, OSError) as error:
            print(f"compass: {error}; ignored", file=sys.stderr)
            return None

    def go(self) -> dict[str, Any] | None:
        """What the engine wrote for a successor that was started ahead; None while it is to wait."""
        return None if self.worker.control_dir is None else read_json(self.worker.control_dir / GO_FILE)

    # ---- progress

    @property
    def resumed(self) -> bool:
        """True once a step was done since this process began or rejoined."""
        return "first_step" in self.progress.phases

    def mark(self, phase: str) -> None:
        """Notes the end of a phase of the start, for the next report."""
        self.progress = replace(self.progress, phases={**self.progress.phases, phase: time.time()})

    def tell(self, state: ProcessState, **changes: Any) -> None:
        """Reports a change at once."""
        now = time.time()
        self.progress = replace(self.progress, state=state, time=now, **changes)
        self._next_beat = now + _HEARTBEAT
        if self.worker.control_dir is not None:
            try:
                report(self.worker.control_dir, self.progress)
            except OSError as error:
                # A heartbeat less is no reason to lose a training run.
                print(f"compass: {error}; progress not reported", file=sys.stderr)

    def beat(self, state: ProcessState, **changes: Any) -> None:
        """Reports when the state is new or the last report is a while ago."""
        if state is not self.progress.state or time.time() >= self._next_beat:
            self.tell(state, **changes)
