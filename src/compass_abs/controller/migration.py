"""The migration of a whole gang as a table: phase and signal in, next phase and act out.

::

    REQUESTING ─ saved ─▶ STOPPING ─ stopped ─▶ WAITING ─ room ─▶ STARTING ─ started ─▶ RESUMING ─ trains ─▶ done
        │ not saved, too slow,   │ gang broken      │                  │ refused            │ died, too slow
        │ target gone            ▼                  ▼                  ▼                    ▼
        ▼                        CLEARING: end the rest, restart from the last good checkpoint
    called off: trains on

Nothing is stopped that has not acknowledged. Everything up to then can be called off without harm; everything after
it ends in a start from a checkpoint that is known to be whole.
"""

from enum import StrEnum
from typing import NamedTuple


class Phase(StrEnum):
    """Where a migration is."""

    REQUESTING = "checkpoint"
    """Every instance was asked to save; some may still train."""
    STOPPING = "stop"
    """All have saved and hold; those that move are being ended."""
    WAITING = "wait"
    """Those that move are gone; the GPUs at the new places are not all free yet."""
    STARTING = "start"
    """The successors are being started, those that stay are rejoining."""
    RESUMING = "first_step"
    """All are started; training has not been seen to go on yet."""


class Signal(StrEnum):
    """What the controller saw of the gang."""

    SAVED = "saved"
    """Every instance acknowledged the same step."""
    NOT_SAVED = "not-saved"
    """An instance could not save, or refused the request."""
    TOO_SLOW = "too-slow"
    """The phase took longer than it may."""
    CALLED_OFF = "called-off"
    """The target is gone, migrations were paused, or the move is wanted no more."""
    BROKEN = "broken"
    """An instance that should be alive is not."""
    STOPPED = "stopped"
    """Everything that was to end has ended."""
    ROOM = "room"
    """The GPUs at the new places are free."""
    STARTED = "started"
    """The engine accepted every start."""
    REFUSED = "refused"
    """The engine refused a start, or the target is gone."""
    TRAINS = "trains"
    """A step was done by the new generation."""
    CANCELLED = "cancelled"
    """The job is to end."""
    FINISHED = "finished"
    """Every instance ended by itself with 0 before it was stopped."""


class Act(StrEnum):
    """What to do about it."""

    STOP_MOVERS = "stop-movers"
    KILL_MOVERS = "kill-movers"
    AWAIT_ROOM = "await-room"
    START = "start"
    AWAIT_PROGRESS = "await-progress"
    COMMIT = "commit"
    """The migration is done."""
    RESUME_ALL = "resume-all"
    """Called off: everyone trains on in place."""
    CLEAR = "clear"
    """End what is left, then restart from the last good checkpoint."""
    END = "end"
    """End what is left, then the job is over."""


class Transition(NamedTuple):
    """The phase that follows and what is done on the way; None: the migration is over."""

    phase: Phase | None
    act: Act


TABLE: dict[tuple[Phase, Signal], Transition] = {
    (Phase.REQUESTING, Signal.SAVED): Transition(Phase.STOPPING, Act.STOP_MOVERS),
    (Phase.REQUESTING, Signal.NOT_SAVED): Transition(None, Act.RESUME_ALL),
    (Phase.REQUESTING, Signal.TOO_SLOW): Transition(None, Act.RESUME_ALL),
    (Phase.REQUESTING, Signal.CALLED_OFF): Transition(None, Act.RESUME_ALL),
    (Phase.REQUESTING, Signal.BROKEN): Transition(None, Act.CLEAR),
    (Phase.REQUESTING, Signal.CANCELLED): Transition(None, Act.END),
    (Phase.REQUESTING, Signal.FINISHED): Transition(None, Act.END),
    (Phase.STOPPING, Signal.STOPPED): Transition(Phase.WAITING, Act.AWAIT_ROOM),
    (Phase.STOPPING, Signal.TOO_SLOW): Transition(Phase.STOPPING, Act.KILL_MOVERS),
    (Phase.STOPPING, Signal.CALLED_OFF): Transition(None, Act.CLEAR),
    (Phase.STOPPING, Signal.BROKEN): Transition(None, Act.CLEAR),
    (Phase.STOPPING, Signal.CANCELLED): Transition(None, Act.END),
    (Phase.WAITING, Signal.ROOM): Transition(Phase.STARTING, Act.START),
    (Phase.WAITING, Signal.TOO_SLOW): Transition(None, Act.CLEAR),
    (Phase.WAITING, Signal.CALLED_OFF): Transition(None, Act.CLEAR),
    (Phase.WAITING, Signal.BROKEN): Transition(None, Act.CLEAR),
    (Phase.WAITING, Signal.CANCELLED): Transition(None, Act.END),
    (Phase.STARTING, Signal.STARTED): Transition(Phase.RESUMING, Act.AWAIT_PROGRESS),
    (Phase.STARTING, Signal.REFUSED): Transition(None, Act.CLEAR),
    (Phase.STARTING, Signal.TOO_SLOW): Transition(None, Act.CLEAR),
    (Phase.STARTING, Signal.BROKEN): Transition(None, Act.CLEAR),
    (Phase.STARTING, Signal.CANCELLED): Transition(None, Act.END),
    (Phase.RESUMING, Signal.TRAINS): Transition(None, Act.COMMIT),
    (Phase.RESUMING, Signal.TOO_SLOW): Transition(None, Act.CLEAR),
    (Phase.RESUMING, Signal.BROKEN): Transition(None, Act.CLEAR),
    (Phase.RESUMING, Signal.FINISHED): Transition(None, Act.COMMIT),
    (Phase.RESUMING, Signal.CANCELLED): Transition(None, Act.END),
}


def advance(phase: Phase, signal: Signal) -> Transition | None:
    """What a signal does in a phase; None when it does nothing there."""
    return TABLE.get((phase, signal))


class Patience(NamedTuple):
    """Seconds that each phase may take before it counts as failed."""

    checkpoint: float = 120.0
    #: Grace between the request to end and the kill; a kill is repeated at this interval.
    stop: float = 10.0
    wait: float = 120.0
    start: float = 60.0
    first_step: float = 300.0

    def of(self, phase: Phase) -> float:
        """The limit of a phase."""
        return {
            Phase.REQUESTING: self.checkpoint,
            Phase.STOPPING: self.stop,
            Phase.WAITING: self.wait,
            Phase.STARTING: self.start,
            Phase.RESUMING: self.first_step,
        }[phase]
