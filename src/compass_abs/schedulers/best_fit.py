"""GFS's placement: best fit by free GPUs."""

from typing import ClassVar

from compass_abs.model import ClusterState, Job
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.histogram import Order
from compass_abs.schedulers.histogram_scheduler import HistogramScheduler


class BestFit(HistogramScheduler):
    """Best fit: each instance goes to the node with the fewest free GPUs that holds it, the lowest index on ties.

    This is what GFS's public artifact does with whole GPUs (`policy/placer/consolidate.py`, `gpu_select`). Its
    queue (largest demand first, with a bar on demands that failed) is a queue here, not part of the placement;
    its forecasting, spot quota and preemption concern spot jobs, of which the compared workloads have none.
    """

    name: ClassVar[str] = "gfs"
    source: ClassVar[str] = "Duan et al., ASPLOS'26; github.com/Xu-Sheng-lin/GFS-asplos-26"

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state)
        self._orders = [range(gpus, state.capacity + 1) for gpus in range(state.capacity + 1)]

    def order(self, job: Job, situation: Situation) -> Order:
        """From the tightest fit to an empty node."""
        return self._orders[job.gpus]
