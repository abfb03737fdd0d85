"""kube-scheduler's default scoring, as far as GPUs go: spread over the least allocated nodes."""

from typing import ClassVar

from compass_abs.model import ClusterState, Job
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.histogram import Order
from compass_abs.schedulers.histogram_scheduler import HistogramScheduler


class LeastAllocated(HistogramScheduler):
    """Spread: each instance goes to the node with the most free GPUs (kube-scheduler's LeastAllocated).

    NodeResourcesFit scores a node by the share of its resources that would stay free, here of GPUs alone. Gangs are
    admitted whole, as a coscheduling plugin does. All nodes are scored (`percentageOfNodesToScore: 100`), and ties go
    to the lowest node, where kube-scheduler picks one at random.
    """

    name: ClassVar[str] = "spread"
    source: ClassVar[str] = "Kubernetes: NodeResourcesFit, scoringStrategy LeastAllocated (the default)"

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state)
        self._orders = [range(state.capacity, gpus - 1, -1) for gpus in range(state.capacity + 1)]

    def order(self, job: Job, situation: Situation) -> Order:
        """From an empty node to the tightest fit."""
        return self._orders[job.gpus]
