"""FFT: best fit, and every few minutes an exact program repacks all running jobs with the fewest moves."""

from typing import Annotated, ClassVar

from compass_abs.model import Cause, ClusterState, Decision
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.best_fit import BestFit
from compass_abs.schedulers.parameters import Within
from compass_abs.schedulers.repacking import tidying
from compass_abs.schedulers.threshold import next_multiple


class FastAndFairTraining(BestFit):
    """FFT: best fit between rounds; in each round an optimal packing of all running jobs with the fewest moves.

    Interpretation: of the published program (completion time, fairness and switching penalty by job and GPU type)
    one type and no preemption leave the quality of the packing and the penalty for switching. The program is solved
    exactly (`compass_abs.planner`, over patterns of nodes: its size is independent of the cluster's): the fewest
    partial and used nodes, and of all such packings one that moves the fewest instances. Of equal instances on a
    node those leave whose gang moves anyhow, then those that run longest. With pinned jobs: the fewest partial nodes
    around them. The published round of five minutes is the default.
    """

    name: ClassVar[str] = "fft"
    source: ClassVar[str] = "Mo et al., ICS'25, doi 10.1145/3721145.3728488"

    def __init__(
        self,
        state: ClusterState,
        *,
        period: Annotated[float, Within("seconds between rounds", above=0)] = 300.0,
    ) -> None:
        super().__init__(state)
        self._period = period

    def next_round(self, now: float) -> float | None:
        """The next multiple of the period."""
        return next_multiple(now, self._period)

    def round(self, situation: Situation) -> Decision:
        """Repacks all running jobs."""
        moves = tidying(self.state, situation, Cause.ROUND)
        self.state.move_all(moves)
        return Decision(after=moves)
