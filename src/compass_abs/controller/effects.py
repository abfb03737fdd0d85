"""What the controller wants done: batches of engine calls for one job, carried out elsewhere, answered by a result."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from compass_abs.engines.protocol import Engine, EngineRefusalError, EngineUnavailableError, RunId


class EffectKind(StrEnum):
    """What a batch is for."""

    START = "start"
    CONSENT = "consent"
    REQUEST = "request"
    RESUME = "resume"
    STOP = "stop"
    KILL = "kill"
    FORGET = "forget"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an engine's method, about one run."""

    method: str
    run: RunId
    arguments: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Effect:
    """Calls for one job, made one after the other; the first that fails is the last that is made."""

    id: int
    job_id: str
    kind: EffectKind
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class EffectResult:
    """What came of a batch."""

    effect: Effect
    #: Calls that returned.
    made: int
    #: Why the next one was refused: it certainly did nothing.
    refused: str = ""
    #: Why nobody knows what the next one did.
    unavailable: str = ""

    @property
    def succeeded(self) -> bool:
        """True when every call returned."""
        return self.made == len(self.effect.calls)


def carry_out(engine: Engine, effect: Effect) -> EffectResult:
    """Makes the calls of a batch."""
    for made, call in enumerate(effect.calls):
        try:
            getattr(engine, call.method)(*call.arguments)
        except EngineRefusalError as error:
            return EffectResult(effect, made, refused=str(error) or "refused")
        except EngineUnavailableError as error:
            return EffectResult(effect, made, unavailable=str(error) or "unavailable")
        except Exception as error:
            # A defect of the engine. Whether it acted is unknown, so it counts as unavailable: ask again, observe.
            return EffectResult(effect, made, unavailable=f"{type(error).__name__}: {error}")
    return EffectResult(effect, len(effect.calls))


class EffectRunner(Protocol):
    """Carries batches out, and hands the results to where it was told to."""

    def submit(self, effect: Effect) -> None:
        """Begins a batch; never two of the same job at once."""

    def close(self) -> None:
        """Waits for what was begun."""


class ThreadedEffects:
    """Batches in a few worker threads: engines may take their time, the controller never waits for them."""

    def __init__(self, engine: Engine, deliver: Callable[[EffectResult], None], threads: int = 16) -> None:
        self._engine = engine
        self._deliver = deliver
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="effect")
        self._closed = threading.Event()

    def submit(self, effect: Effect) -> None:
        """Begins a batch."""
        if not self._closed.is_set():
            self._threads.submit(lambda: self._deliver(carry_out(self._engine, effect)))

    def close(self) -> None:
        """Waits for what was begun."""
        self._closed.set()
        self._threads.shutdown(wait=True)
