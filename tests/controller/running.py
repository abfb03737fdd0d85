"""A service with a scripted engine in real time, for tests of what is around the controller."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from compass_abs.controller.journal import SqliteJournal
from compass_abs.controller.reconcile import Config, Controller
from compass_abs.controller.service import Service
from compass_abs.engines.protocol import EngineRefusalError, RunId
from tests.journeys.scripted_engine import ManualClock, ScriptedEngine

LOG = b"step 1\n<script>alert(1)</script>\n"


class RealClock(ManualClock):
    """The machine's own time."""

    def monotonic(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class LivingEngine(ScriptedEngine):
    """A scripted engine whose processes live by themselves."""

    def __init__(self, **options: object) -> None:
        super().__init__(RealClock(), **options)  # type: ignore[arg-type]
        self.start_seconds = self.save_seconds = self.stop_seconds = 0.02
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._live_on, daemon=True)
        self._thread.start()
        for name in ("observe", "start", "rejoin", "request_checkpoint", "resume", "stop", "kill", "forget"):
            setattr(self, name, self._locked(getattr(self, name)))

    def _locked(self, method):  # type: ignore[no-untyped-def]
        def call(*arguments):  # type: ignore[no-untyped-def]
            with self._lock:
                return method(*arguments)

        return call

    def _live_on(self) -> None:
        last = time.monotonic()
        while not self._over.wait(0.02):
            now = time.monotonic()
            with self._lock:
                self.advance(now - last)
            last = now

    def read_log(self, run: RunId, offset: int, limit: int) -> bytes:
        if run not in self.processes:
            raise EngineRefusalError(f"{run} has no log")
        return LOG[offset if offset >= 0 else max(0, len(LOG) + offset) :][:limit]

    def close(self) -> None:
        self._over.set()
        self._thread.join(5)


@contextmanager
def service(folder: Path, config: Config | None = None, **engine: object) -> Iterator[Service]:
    """A running service, ready."""
    hands = LivingEngine(**{"steps": 10_000, "seconds_per_step": 0.01, **engine})
    running = Service(SqliteJournal(folder / "journal.sqlite"), hands, config or Config(scheduler="best-fit"))
    running.start()
    try:
        running.wait_until_ready()
        yield running
    finally:
        running.close()
        hands.close()


def wait_until(running: Service, what: Callable[[Controller], bool], seconds: float = 20.0) -> None:
    """Until the controller is in such a state."""
    deadline = time.monotonic() + seconds
    while not running.ask(what):
        assert time.monotonic() < deadline
        time.sleep(0.02)
