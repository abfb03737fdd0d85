"""The operators of the tiers above the panels: residual fillers, and anchors that may join a pool."""

from collections.abc import Iterator
from itertools import chain

from compass_abs.model import Job
from compass_abs.schedulers.compass_residual import CompassAbsResidual


class DomainOperators(CompassAbsResidual):
    """`compass-abs-residual` with anchors on pool nodes.

    Deviation: the paper gives an anchor a slotted node or an empty one. There are few domains, and each is large: one
    that holds a single shared panel, or has lost a tray, would be closed to every larger instance.
    """

    def _fits_anchors(self, job: Job) -> bool:
        room = self.housing.openable() * (self.state.capacity // self.space.width_of(job.gpus))
        if room >= job.instances:
            return True
        for index in self._hosts_of_anchors(job):
            room += self._anchors_that_fit(index, job.gpus)
            if room >= job.instances:
                return True
        return False

    def _place_anchors(self, job: Job) -> list[int]:
        nodes: list[int] = []
        for index in self._hosts_of_anchors(job):
            nodes += [index] * self._anchors_that_fit(index, job.gpus)
            if len(nodes) >= job.instances:
                break
        return self._open_empty(job, nodes, self.state.capacity // self.space.width_of(job.gpus))

    def _hosts_of_anchors(self, job: Job) -> Iterator[int]:
        """Slotted nodes, those with least room first, then pool nodes, the fullest first."""
        return chain(self.space.slotted(job.gpus), self.space.partial_pool())

    def _anchors_that_fit(self, index: int, gpus: int) -> int:
        unprofiled = self.state.capacity - self.space.profiles[index].width
        return min(unprofiled // self.space.width_of(gpus), self.state.nodes[index].free // gpus)
