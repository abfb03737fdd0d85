"""A threshold defragmenter, as operators bolt onto a scheduler: now and then, within a budget, a few moves."""

from collections import deque
from math import floor
from typing import Annotated, ClassVar

from compass_abs.model import Cause, ClusterState, Decision, Instance, Migration
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.best_fit import BestFit
from compass_abs.schedulers.parameters import Within

_HOUR = 3600.0


def next_multiple(now: float, period: float) -> float:
    """The first multiple of the period after now: rounds on a fixed grid need no memory of the last one."""
    at = (floor(now / period) + 1) * period
    return at if at > now else at + period


class ThresholdDefragmenter(BestFit):
    """Best fit, and every five minutes, if fragmentation is above a threshold, a few moves off the emptiest nodes.

    The score is the share of idle GPUs that lie on partial nodes. Above the threshold, instances of nodes with less
    than `low` of their GPUs in use move to the fullest nodes that hold them, none emptier than theirs: emptiest node
    first, largest instance first. At most `moves` are in flight, `hourly` start within an hour, and a job that moved
    is left alone for `cooldown` seconds.

    Interpretation: such tools differ in detail; this one is the Kubernetes descheduler's HighNodeUtilization with the
    limits that operators put on evictions. Its moves checkpoint, as everybody's here do. A move is over before the
    next round, so at most `moves` are begun in a round.
    """

    name: ClassVar[str] = "threshold"
    source: ClassVar[str] = "after the Kubernetes descheduler's HighNodeUtilization, with budgets"

    def __init__(
        self,
        state: ClusterState,
        *,
        period: Annotated[float, Within("seconds between scores", above=0)] = 300.0,
        score: Annotated[
            float, Within("share of idle GPUs on partial nodes above which it acts", least=0, most=1)
        ] = 0.2,
        low: Annotated[float, Within("share of GPUs in use below which a node is drained", least=0, most=1)] = 0.5,
        moves: Annotated[int, Within("moves in flight", least=0)] = 3,
        hourly: Annotated[int, Within("moves an hour", least=0)] = 10,
        cooldown: Annotated[float, Within("seconds for which a moved job is left alone", least=0)] = 1800.0,
    ) -> None:
        super().__init__(state)
        self._period, self._score, self._low = period, score, low
        self._moves, self._hourly, self._cooldown = moves, hourly, cooldown
        #: When each move of the last hour began, and each job last moved.
        self._begun: deque[float] = deque()
        self._moved: dict[str, float] = {}

    def next_round(self, now: float) -> float | None:
        """The next multiple of the period."""
        return next_multiple(now, self._period)

    def round(self, situation: Situation) -> Decision:
        """Moves what the threshold, the budget and the cooldowns allow."""
        now, state = situation.now, self.state
        while self._begun and self._begun[0] <= now - _HOUR:
            self._begun.popleft()
        self._moved = {job: at for job, at in self._moved.items() if at > now - self._cooldown and job in state.gangs}
        made: list[Migration] = []
        while len(made) < self._moves and len(self._begun) < self._hourly and self._fragmentation() > self._score:
            move = self._next_move(now, made)
            if move is None:
                break
            state.move(move.instance, move.target)
            made.append(move)
            self._begun.append(now)
            self._moved[move.instance.job_id] = now
        return Decision(after=tuple(made))

    def _fragmentation(self) -> float:
        free = self.state.free_gpus
        on_empty = self.state.empty_nodes * self.state.capacity
        return (free - on_empty) / free if free else 0.0

    def _next_move(self, now: float, made: list[Migration]) -> Migration | None:
        state = self.state
        fullest = state.capacity - 1
        for free in range(fullest, 0, -1):
            if state.capacity - free >= self._low * state.capacity:
                break
            for source in state.by_free[free]:
                contents = state.nodes[source].contents
                for instance, gpus in sorted(contents.items(), key=lambda entry: (-entry[1], entry[0])):
                    # A job that moved in this round pauses anyhow: its other instances may move with it.
                    if not self._may_move(instance, now):
                        continue
                    # Never to an emptier node, so that no instance goes back and forth.
                    for room in range(gpus, free + 1):
                        target = next((node for node in state.by_free[room] if node != source), -1)
                        if target >= 0:
                            return Migration(instance, source, target, gpus, Cause.TIDY)
        return None

    def _may_move(self, instance: Instance, now: float) -> bool:
        moved = self._moved.get(instance.job_id)
        return self.state.gangs[instance.job_id].job.movable and (moved is None or moved == now)
