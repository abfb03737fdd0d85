"""The controller as a running service: one thread that steps it, a mailbox, and pictures of it for others."""

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog

from compass_abs.controller.effects import Effect, EffectResult, ThreadedEffects
from compass_abs.controller.journal import Journal
from compass_abs.controller.reconcile import Config, Controller
from compass_abs.controller.records import Record
from compass_abs.engines.protocol import Engine, EngineRefusalError, EngineUnavailableError, Observation, Report
from compass_abs.model import CAPACITIES, CompassError

Answer = TypeVar("Answer")

#: Everything is looked at this often even if the engine's watch says nothing.
_OBSERVE_EVERY = 10.0
#: The pause after a look that failed.
_OBSERVE_RETRY = 1.0
#: Events kept for readers that come back.
_EVENTS_KEPT = 5000


class SystemClock:
    """The machine's clocks."""

    def wall(self) -> float:
        """Seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds since the machine started."""
        return time.monotonic()


@dataclass(frozen=True, slots=True)
class Event:
    """A record that has become durable, and its place in the journal: a restart goes on counting."""

    number: int
    record: Record


@dataclass(frozen=True, slots=True)
class _Observed:
    observation: Observation
    ticket: int


@dataclass(frozen=True, slots=True)
class _Command:
    """Something to be done on the controller's thread; answered once what it did is durable."""

    action: Callable[[Controller], Any]
    answer: "Future[Any]"


class ServiceError(CompassError):
    """The controller has stopped."""


class Service:
    """Runs a controller until it is closed."""

    def __init__(self, journal: Journal, engine: Engine, config: Config | None = None) -> None:
        self.engine = engine
        self._journal = journal
        self._inbox: queue.SimpleQueue[Report | EffectResult | _Observed | _Command | None] = queue.SimpleQueue()
        self._effects = ThreadedEffects(engine, self._inbox.put)
        self._log = structlog.get_logger("controller")
        self.events: deque[Event] = deque(maxlen=_EVENTS_KEPT)
        self._listeners: list[Callable[[Event], None]] = []
        self.controller = Controller(journal, engine, self._submit, SystemClock(), config, self._on_record)
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._observing = threading.Event()
        self._look_now = threading.Event()
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)
        self._observer = threading.Thread(target=self._observe, name="observer", daemon=True)

    def start(self) -> None:
        """Begins to look and to act."""
        self.engine.watch(self._inbox.put)
        self._look_now.set()
        self._observer.start()
        self._thread.start()

    def join(self) -> None:
        """Returns once the controller decides no more: it was closed, or has failed."""
        self._thread.join()

    def close(self) -> None:
        """Stops; what runs, runs on."""
        self._stopping.set()
        self._look_now.set()
        self._inbox.put(None)
        for thread in (self._thread, self._observer):
            if thread.is_alive():
                thread.join(30.0)
        self._effects.close()
        self._journal.close()

    # ---- for others

    def do(self, action: Callable[[Controller], Answer]) -> "Future[Answer]":
        """Lets something be done on the controller's thread; the answer comes once it is durable."""
        future: Future[Answer] = Future()
        if self._stopping.is_set() or self.failure is not None:
            future.set_exception(ServiceError(f"the controller has stopped: {self.failure or 'it was closed'}"))
            return future
        self._inbox.put(_Command(action, future))
        return future

    def ask(self, action: Callable[[Controller], Answer], seconds: float = 30.0) -> Answer:
        """Like `do`, and waits."""
        return self.do(action).result(seconds)

    def subscribe(self, listener: Callable[[Event], None]) -> Callable[[], None]:
        """Calls back, on the controller's thread, with every record; returns how to end that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def wait_until_ready(self, seconds: float = 30.0) -> None:
        """Returns once the engine has been seen."""
        deadline = time.monotonic() + seconds
        while not self.ask(lambda controller: controller.ready):
            unfit = self.ask(lambda controller: {} if controller.pools else dict(controller.unfit_nodes))
            if unfit:
                raise ServiceError(_none_fits(self.engine.name, unfit))
            if time.monotonic() > deadline:
                raise ServiceError(f"engine {self.engine.name!r} could not be seen within {seconds:g} s")
            time.sleep(0.01)

    # ---- the loop

    def _submit(self, effect: Effect) -> None:
        self._effects.submit(effect)

    def _on_record(self, number: int, record: Record) -> None:
        event = Event(number, record)
        self.events.append(event)
        fields = {
            name: value
            for name in ("job_id", "migration_id", "generation", "outcome", "phase", "why", "name", "status")
            if (value := getattr(record, name, None)) not in (None, "")
        }
        self._log.info(record.kind, **fields)
        for listener in list(self._listeners):
            listener(event)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._turn()
        except BaseException as error:
            # Crash only: what was intended is in the journal, the next controller goes on from there.
            self.failure = error
            self._log.error("controller failed", error=str(error), exc_info=True)
        self._refuse_the_rest()

    def _turn(self) -> None:
        controller = self.controller
        due = controller.next_wake()
        timeout = None if due is None else max(0.0, due - controller.now)
        answers: list[tuple[_Command, Any, BaseException | None]] = []
        with contextlib.suppress(queue.Empty):
            message = self._inbox.get(timeout=min(timeout, 60.0) if timeout is not None else 60.0)
            for _ in range(1000):
                self._take(message, answers)
                message = self._inbox.get_nowait()
        try:
            controller.step()
        except BaseException as failure:
            # Nothing of this turn is durable: whoever asked is told so, rather than left to wait.
            for command, _, _ in answers:
                command.answer.set_exception(ServiceError(f"the controller has stopped: {failure}"))
            raise
        if controller.wants_observation and not self._observing.is_set():
            self._look_now.set()
        for command, answer, error in answers:
            if error is None:
                command.answer.set_result(answer)
            else:
                command.answer.set_exception(error)

    def _take(
        self,
        message: Report | EffectResult | _Observed | _Command | None,
        answers: list[tuple[_Command, Any, BaseException | None]],
    ) -> None:
        if isinstance(message, _Command):
            if message.answer.set_running_or_notify_cancel():
                try:
                    answers.append((message, message.action(self.controller), None))
                except CompassError as error:
                    answers.append((message, None, error))
        elif isinstance(message, EffectResult):
            self.controller.on_effect(message)
        elif isinstance(message, _Observed):
            self.controller.on_observation(message.observation, message.ticket)
        elif message is not None:
            self.controller.on_report(message)

    def _refuse_the_rest(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                message = self._inbox.get_nowait()
                if isinstance(message, _Command):
                    message.answer.set_exception(ServiceError(f"the controller has stopped: {self.failure}"))

    def _observe(self) -> None:
        """Looks at everything now and then, and whenever the controller wants it."""
        while not self._stopping.is_set():
            self._look_now.wait(_OBSERVE_EVERY)
            if self._stopping.is_set():
                return
            self._look_now.clear()
            self._observing.set()
            ticket = self.controller.ticket
            self.controller.wants_observation = False
            try:
                self._inbox.put(_Observed(self.engine.observe(), ticket))
            except (EngineUnavailableError, EngineRefusalError) as error:
                self._log.warning("engine can't be seen", engine=self.engine.name, error=str(error))
                self.controller.wants_observation = True
                self._stopping.wait(_OBSERVE_RETRY)
                self._look_now.set()
            finally:
                self._observing.clear()


def _none_fits(engine: str, unfit: dict[str, int]) -> str:
    shown = ", ".join(f"{name} has {gpus}" for name, gpus in list(unfit.items())[:5])
    sizes = ", ".join(map(str, CAPACITIES))
    return f"engine {engine!r} has no node with {sizes} GPUs: {shown}{', ...' if len(unfit) > 5 else ''}"
