"""Makes a program migratable that can't import us: we speak the contract, it gets signals.

    python -m compass_abs.training.wrap --checkpoint 'out/step-*.pt' --signal USR1 -- python train.py --resume auto

On a request the program gets its signal, and its own new checkpoint file is the acknowledgement. With `--periodic`
nothing is asked of it: it is frozen where it is and restarts from its latest checkpoint; what that repeats is counted.
"""

import argparse
import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

from compass_abs.model import CompassError
from compass_abs.training.contract import (
    Acknowledgement,
    ContractError,
    DirectiveKind,
    ProcessState,
    Request,
    RequestKind,
    Worker,
    read_json,
    write_json,
)
from compass_abs.training.mailbox import GLANCE, Mailbox

_LOST_FILE = "lost.json"
#: The last number in a checkpoint's name is its step, unless told otherwise.
_LAST_NUMBER = r"(\d+)(?!.*\d)"


class Cooperation(StrEnum):
    """What the program can do for us."""

    SAVES_AND_EXITS = "exits"
    SAVES_AND_GOES_ON = "goes-on"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Rules:
    """How to deal with a program that we know nothing of."""

    command: tuple[str, ...]
    cooperation: Cooperation
    #: Where its checkpoints appear: a glob.
    checkpoint: str
    signal: int
    #: Seconds that a save may take.
    grace: float = 300.0
    #: A file that hasn't changed for so many seconds is complete.
    settled: float = 0.2
    #: Seconds that a started program must live to count as training.
    alive: float = 5.0
    step: str = _LAST_NUMBER
    #: Appended to the command when there is a checkpoint; `{checkpoint}` in it stands for the path.
    resume: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class Found:
    """A checkpoint of the program's own making; later ones are larger."""

    changed: int
    path: str
    size: int


class Wrapped:
    """The program, and the contract spoken in its place."""

    def __init__(self, rules: Rules, worker: Worker) -> None:
        self.rules = rules
        self.worker = worker
        self.mailbox = Mailbox(worker)
        self._child: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._base: Found | None = None

    def run(self) -> NoReturn:
        """Until the program or the job's stay here ends; exits as the program does."""
        self.mailbox.listen()
        self._count_lost()
        self._start()
        while True:
            assert self._child is not None
            code = self._child.poll()
            if code is not None:
                self._exit(ProcessState.FAILED if code else ProcessState.FINISHED, code if code >= 0 else 128 - code)
            self._beat()
            request = self.mailbox.poll()
            if request is not None:
                self._obey(request)
            time.sleep(0.02)

    # ---- the program

    def _start(self) -> None:
        self._base = self._newest()
        resume = self.worker.resume_from if Path(self.worker.resume_from or "/").is_file() else ""
        resume = resume or (self._base.path if self._base else "")
        arguments = [word.replace("{checkpoint}", resume) for word in self.rules.resume] if resume else []
        environment = {**os.environ, "COMPASS_RESUME_FROM": resume}
        try:
            self._child = subprocess.Popen(
                [*self.rules.command, *arguments],
                env=environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            raise CompassError(f"command {self.rules.command[0]!r}: {error.strerror}") from None
        self._started = time.time()
        step = self._step(resume)
        self.mailbox.tell(ProcessState.STARTING, step=step, resumed_at=step, resumed_from=resume)

    def _newest(self) -> Found | None:
        """Its latest checkpoint; for one that is a folder, the latest change inside."""
        found = []
        pattern = Path(self.rules.checkpoint)
        for path in Path(pattern.anchor).glob(str(pattern.relative_to(pattern.anchor))):
            try:
                parts = [path, *path.rglob("*")] if path.is_dir() else [path]
                states = [part.stat() for part in parts]
            except OSError:
                continue
            found.append(
                Found(max(s.st_mtime_ns for s in states), str(path.absolute()), sum(s.st_size for s in states))
            )
        return max(found, default=None)

    def _step(self, path: str) -> int:
        match = re.search(self.rules.step, Path(path).name) if path else None
        return int(match.group(1)) if match else -1

    def _signal_all(self, number: int) -> None:
        assert self._child is not None
        try:
            os.killpg(self._child.pid, number)
        except ProcessLookupError:
            return

    def _end_child(self) -> None:
        """TERM where it may tidy up, KILL where it is frozen or doesn't go."""
        assert self._child is not None
        if self.rules.cooperation is not Cooperation.NONE and self._child.poll() is None:
            self._signal_all(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(min(self.rules.grace, 10.0))
        self._signal_all(signal.SIGKILL)
        self._child.wait()

    # ---- requests

    def _obey(self, request: Request) -> None:
        seen = time.time()
        holds = request.kind is RequestKind.HOLD
        leaves = request.kind in (RequestKind.STOP, RequestKind.REFORM)
        found, error = self._save(goes_on=not (holds or leaves))
        lost = self._lost(found) if self.rules.cooperation is Cooperation.NONE else 0.0
        told = self.mailbox.answer(
            Acknowledgement(
                request=request.id,
                rank=self.worker.rank,
                generation=self.worker.generation,
                step=self._step(found.path) if found else -1,
                path=found.path if found else "",
                error=error,
                lost_seconds=round(lost, 3),
                phases={"seen": seen, "agreed": seen, "saved": time.time()},
            )
        )
        if error or not told:
            self._signal_all(signal.SIGCONT)
            return
        if leaves:
            self._leave()
        if holds:
            self._hold(request)

    def _save(self, *, goes_on: bool) -> tuple[Found | None, str]:
        """A checkpoint that is complete, and why there is none."""
        assert self._child is not None
        before = self._newest()
        if self.rules.cooperation is Cooperation.NONE:
            if not goes_on:
                self._signal_all(signal.SIGSTOP)
            return before, ""
        if goes_on and self.rules.cooperation is Cooperation.SAVES_AND_EXITS:
            return None, "this program saves only when it ends"
        self._child.send_signal(self.rules.signal)
        deadline = time.monotonic() + self.rules.grace
        latest, since = before, time.monotonic()
        while time.monotonic() < deadline:
            ended = self._child.poll() is not None
            now = self._newest()
            if now is not None and latest is not None and latest != before and now.path != latest.path:
                # It is at the next one already, so this one is complete; waiting for quiet might last for ever.
                return latest, ""
            if now != latest:
                latest, since = now, time.monotonic()
            complete = ended or (
                self.rules.cooperation is Cooperation.SAVES_AND_GOES_ON
                and time.monotonic() - since >= self.rules.settled
            )
            if latest is not None and latest != before and complete:
                return latest, ""
            if ended:
                return None, f"the program ended with {self._child.returncode} and no new {self.rules.checkpoint!r}"
            self.mailbox.beat(self.mailbox.progress.state)
            time.sleep(GLANCE)
        return None, f"no new {self.rules.checkpoint!r} within {self.rules.grace:g} s of the signal"

    def _hold(self, request: Request) -> None:
        assert self._child is not None
        self._signal_all(signal.SIGSTOP)
        self.mailbox.tell(ProcessState.HELD)
        while (directive := self.mailbox.directive(request.id)) is None and not self.mailbox.terminated:
            self.mailbox.beat(ProcessState.HELD)
            time.sleep(GLANCE)
        if directive is None or directive.kind is DirectiveKind.STOP:
            self._leave()
        if directive.kind is DirectiveKind.REJOIN:
            raise ContractError("a wrapped program can't rejoin: stop it and start it from its checkpoint")
        if self._child.poll() is None:
            self._signal_all(signal.SIGCONT)
        else:
            self._start()

    def _leave(self) -> NoReturn:
        if self.rules.cooperation is Cooperation.NONE:
            self._note_alive()
        self._end_child()
        self._exit(ProcessState.STOPPED, 0)

    def _exit(self, state: ProcessState, code: int) -> NoReturn:
        newest = self._newest()
        self.mailbox.tell(state, step=self._step(newest.path) if newest else self.mailbox.progress.step)
        if state is ProcessState.FINISHED:
            (self.worker.checkpoint_dir / f"alive-{self.worker.rank}.json").unlink(missing_ok=True)
        sys.stdout.flush()
        os._exit(code)

    # ---- progress, and what was lost

    def _beat(self) -> None:
        newest = self._newest() if time.time() - self.mailbox.progress.time >= 1.0 else None
        settled = time.time() - self._started >= self.rules.alive or (newest is not None and newest != self._base)
        state = ProcessState.RUNNING if settled else ProcessState.STARTING
        if newest is not None:
            changes = {"checkpoint": newest.path, "checkpoint_step": self._step(newest.path)}
            if changes["checkpoint_step"] != -1:
                changes["step"] = changes["checkpoint_step"]
            self.mailbox.beat(state, **changes)
        else:
            self.mailbox.beat(state)
        if self.rules.cooperation is Cooperation.NONE and newest is not None:
            self._note_alive()

    def _lost(self, found: Found | None) -> float:
        """Seconds of training since its latest checkpoint, or since its start here."""
        return max(0.0, time.time() - max(self._started, found.changed / 1e9 if found else 0.0))

    def _note_alive(self) -> None:
        self.worker.checkpoint_dir.mkdir(parents=True, exist_ok=True)
        value = {"started": self._started, "alive": time.time()}
        write_json(self.worker.checkpoint_dir / f"alive-{self.worker.rank}.json", value)

    def _count_lost(self) -> None:
        """Adds what the last stop or crash threw away to `lost.json`: a crash leaves nobody else to count it."""
        path = self.worker.checkpoint_dir / f"alive-{self.worker.rank}.json"
        last = read_json(path)
        if last is None:
            return
        newest = self._newest()
        begin = max(float(last["started"]), newest.changed / 1e9 if newest else 0.0)
        lost = max(0.0, float(last["alive"]) - begin)
        if self.worker.rank == 0:
            total = read_json(self.worker.checkpoint_dir / _LOST_FILE) or {"restarts": 0, "seconds": 0.0}
            value = {"restarts": total["restarts"] + 1, "seconds": total["seconds"] + lost, "last": lost}
            write_json(self.worker.checkpoint_dir / _LOST_FILE, value)
        path.unlink(missing_ok=True)


_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1


def _die_with_parent() -> None:
    """A program that nobody speaks for any more must not train on beside its successor."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _rules(arguments: Sequence[str]) -> Rules:
    parser = argparse.ArgumentParser(
        prog="python -m compass_abs.training.wrap",
        description="Makes a program that can't import compass_abs migratable.",
    )
    parser.add_argument("--checkpoint", default="", metavar="GLOB", help="where its checkpoints appear")
    parser.add_argument("--signal", default="TERM", help="makes it save (default: TERM)")
    parser.add_argument("--goes-on", action="store_true", help="it saves on the signal and trains on")
    parser.add_argument("--periodic", action="store_true", help="it can't be asked; use its latest checkpoint")
    parser.add_argument("--grace", type=float, default=300.0, metavar="SECONDS", help="how long a save may take")
    parser.add_argument("--settled", type=float, default=0.2, metavar="SECONDS", help="unchanged so long: complete")
    parser.add_argument("--alive", type=float, default=5.0, metavar="SECONDS", help="alive so long: it trains")
    parser.add_argument("--step", default=_LAST_NUMBER, metavar="REGEX", help="finds the step in a checkpoint's name")
    parser.add_argument(
        "--resume-argument",
        action="append",
        default=[],
        metavar="WORD",
        help="appended when there is a checkpoint; {checkpoint} stands for its path; may be given several times",
    )
    parser.add_argument("command", nargs="+", metavar="-- COMMAND")
    given = parser.parse_args(arguments)
    name = given.signal.upper().removeprefix("SIG")
    if not hasattr(signal, f"SIG{name}"):
        raise CompassError(f"--signal is {given.signal!r}, expected a signal like USR1")
    if not given.checkpoint:
        raise CompassError("--checkpoint is missing: a program is only stopped once its checkpoint is there")
    try:
        groups = re.compile(given.step).groups
    except re.error as error:
        raise CompassError(f"--step is {given.step!r}: {error}") from None
    if groups < 1:
        raise CompassError(f"--step is {given.step!r}, expected a group around the digits, like 'step-(\\d+)'")
    cooperation = Cooperation.SAVES_AND_GOES_ON if given.goes_on else Cooperation.SAVES_AND_EXITS
    return Rules(
        command=tuple(given.command),
        cooperation=Cooperation.NONE if given.periodic else cooperation,
        checkpoint=given.checkpoint,
        signal=getattr(signal, f"SIG{name}"),
        grace=given.grace,
        settled=given.settled,
        alive=given.alive,
        step=given.step,
        resume=tuple(given.resume_argument),
    )


def main() -> None:
    """Parses, then runs the program."""
    try:
        Wrapped(_rules(sys.argv[1:]), Worker.from_environment()).run()
    except CompassError as error:
        print(f"compass: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
