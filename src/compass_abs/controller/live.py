"""What the controller remembers of a job only while it runs: never needed to be right, only to be quick or patient."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from compass_abs.controller.effects import EffectKind, EffectResult
from compass_abs.controller.runs import Gang, View
from compass_abs.engines.protocol import StartOrder


class Clock(Protocol):
    """Two clocks: one that people read and that may jump, one that only goes forward."""

    def wall(self) -> float:
        """Seconds since the epoch."""

    def monotonic(self) -> float:
        """Seconds since some time: for everything that has a limit."""


@dataclass(slots=True)
class Live:
    """The runtime side of a job."""

    gang: Gang = field(default_factory=Gang)
    #: Id of the effect under way; 0 when there is none.
    busy: int = 0
    #: What the latest effect of each kind came to in this phase.
    results: dict[EffectKind, EffectResult] = field(default_factory=dict)
    #: Identifies the phase that `entered`, `results` and `tries` belong to.
    key: tuple[object, ...] = ()
    entered: float = 0.0
    tries: int = 0
    retry_at: float = 0.0
    #: Starts that the engine refused, in a row.
    refusals: int = 0
    #: Why a migration is to be called off; empty when it isn't.
    call_off: str = ""
    #: Seconds of each finished phase of the migration under way.
    seconds: dict[str, float] = field(default_factory=dict)
    #: Seconds of running before this controller's time, and when that was.
    ran_before: float = 0.0
    run_began: float | None = None
    #: Failed starts from each checkpoint that never did a step.
    failed_from: dict[str, int] = field(default_factory=dict)
    #: When an effect of each kind last began, in this phase.
    acted: dict[EffectKind, float] = field(default_factory=dict)
    #: Since when all runs of a new generation have been up.
    up_since: float | None = None
    #: Id of the called-off migration after which the runs have been told to train on.
    told_to_resume: str = ""

    def enter(self, key: tuple[object, ...], now: float) -> None:
        """Starts the clock of a phase, unless it is the one already under way."""
        if key != self.key:
            self.key, self.entered = key, now
            self.results.clear()
            self.acted.clear()
            self.up_since = None
            self.tries, self.retry_at = 0, 0.0

    def expect(self, orders: Iterable[StartOrder]) -> None:
        """These are being started now: what an observation under way doesn't show may yet come."""
        for order in orders:
            self.gang.views.setdefault(order.run, View(order.run, order.node)).ticket = -1

    def waited(self, now: float) -> float:
        """Seconds in this phase."""
        return now - self.entered

    def succeeded(self, kind: EffectKind) -> bool:
        """True when an effect of this kind has been carried out in this phase."""
        result = self.results.get(kind)
        return result is not None and result.succeeded

    def refused(self, kind: EffectKind) -> str:
        """Why an effect of this kind was refused in this phase; empty when it wasn't."""
        result = self.results.get(kind)
        return result.refused if result is not None else ""
