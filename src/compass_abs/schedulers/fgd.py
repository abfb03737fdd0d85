"""FGD: fragmentation gradient descent."""

from typing import Annotated, ClassVar

from compass_abs.model import ClusterState, Job
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.demand import WEEK, DemandHistory, descent, most_popular, parse_mix, stranded
from compass_abs.schedulers.histogram import Order
from compass_abs.schedulers.histogram_scheduler import HistogramScheduler
from compass_abs.schedulers.parameters import Within

# The published mix is computed once for a workload. Learning it online, it's renewed once it has grown by this share.
_GROWTH = 0.02


class FragmentationGradientDescent(HistogramScheduler):
    """FGD: each instance goes where the GPUs that the expected demand could not use grow least.

    Interpretation: the demand distribution counts instances (a pod of the original is an instance) of the jobs
    submitted in the last seven days, unless `mix` says what it is. Feed the jobs of the days before through
    `submitted` for a warm start; before any submission it is best fit. All sizes are kept, where the original keeps
    the most popular ones up to 95 % (`typical_share`), a cut that Venus's mix makes at size 4.

    Deviation: the original quantises scores to whole numbers from 0 to 100 and lets kube-scheduler choose among
    equals at random. Here nothing is quantised, and ties go to the fewest free GPUs, then to the lowest node.
    """

    name: ClassVar[str] = "fgd"
    source: ClassVar[str] = "Weng et al., USENIX ATC'23; github.com/hkust-adsl/kubernetes-scheduler-simulator"

    def __init__(
        self,
        state: ClusterState,
        *,
        mix: Annotated[
            str | None, "demand by size, as 1:0.35,2:0.1,8:0.55; learned from submissions if not given"
        ] = None,
        window: Annotated[float, Within("seconds of submissions that it learns from", above=0)] = WEEK,
        typical_share: Annotated[
            float, Within("share of the demand that counts, most popular first", above=0, most=1)
        ] = 1.0,
    ) -> None:
        super().__init__(state)
        self._share = typical_share
        self._history = None if mix is not None else DemandHistory(state.capacity, window)
        self._renew_at = 1
        self._orders: list[tuple[int, ...]] = []
        self._learn(parse_mix(mix, state.capacity) if mix is not None else [0] * (state.capacity + 1))

    def submitted(self, job: Job, situation: Situation) -> None:
        """Learns the demand."""
        history = self._history
        if history is not None and job.gpus <= self.state.capacity:
            history.note(job)
            if history.seen >= self._renew_at:
                self._renew_at = history.seen + max(1, int(_GROWTH * history.seen))
                self._learn(history.weights)

    def _learn(self, weights: list[int]) -> None:
        table = stranded(most_popular(weights, self._share))
        self._orders = [(), *(descent(table, gpus) for gpus in range(1, len(table)))]

    def order(self, job: Job, situation: Situation) -> Order:
        """From the steepest descent of fragmentation to the steepest ascent."""
        return self._orders[job.gpus]
