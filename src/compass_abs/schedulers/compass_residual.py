"""COMPASS-ABS with residual fillers: SIF = 0 after every event under the workload condition. `compass-abs-residual`.

Deviation: the space lets 1-GPU instances occupy GPUs of a slotted node that no slot has profiled, and Compact ends by
merging the last partial pool node into the last partial slotted node. Then at most one node is partial, which is Φ*,
and nothing of the paper's separation of pool and slots is lost to admission: a 1-GPU job fits whenever a GPU is free.
It is lazy: residual fillers of a full node are left alone. The price is more moves (docs/compass-abs.md).
"""

from typing import ClassVar

from compass_abs.model import Cause, Job
from compass_abs.schedulers.anchor_based_space import SLOTTED
from compass_abs.schedulers.compass_abs import CompassAbs


class CompassAbsResidual(CompassAbs):
    """At most one partial node after every event under the condition."""

    name: ClassVar[str] = "compass-abs-residual"
    source: ClassVar[str] = "this project, beyond the paper (docs/compass-abs.md)"

    # ---- Place

    def _fits_anchors(self, job: Job) -> bool:
        width, capacity = self.space.width_of(job.gpus), self.state.capacity
        room = self.housing.openable() * (capacity // width)
        if room >= job.instances:
            return True
        return room + sum(self._anchors_that_fit(index, job.gpus) for index in self.space.slotted(job.gpus)) >= (
            job.instances
        )

    def _anchors_that_fit(self, index: int, gpus: int) -> int:
        """Anchors of this size whose slots can be profiled on a node; residual fillers there become their fillers."""
        unprofiled = self.state.capacity - self.space.profiles[index].width
        return min(unprofiled // self.space.width_of(gpus), self.space.room(index) // gpus)

    def _place_anchors(self, job: Job) -> list[int]:
        nodes: list[int] = []
        if self.space.width_of(job.gpus) < self.state.capacity:
            for index in self.space.slotted(job.gpus):
                nodes += [index] * self._anchors_that_fit(index, job.gpus)
                if len(nodes) >= job.instances:
                    break
        return self._open_empty(job, nodes, self.state.capacity // self.space.width_of(job.gpus))

    def _room_for_singles(self, job: Job) -> int:
        free = self.state.free_gpus - self.state.empty_nodes * self.state.capacity
        return free if job.movable else super()._room_for_singles(job)

    def _hosts_of_singles(self, job: Job) -> list[int]:
        """Vacancies, partial pool nodes, and then unprofiled GPUs of slotted nodes."""
        nodes = super()._hosts_of_singles(job)
        if job.movable and len(nodes) < job.instances:
            for index in self.space.slotted(1):
                nodes += [index] * (self.state.nodes[index].free - self.space.profiles[index].vacancy)
                if len(nodes) >= job.instances:
                    break
        return nodes

    # ---- Compact

    def compact(self) -> None:
        """Vacancies filled, pool drained, slots joined, and the last two partial nodes merged."""
        self._compact_once()
        if self.space.uneven:
            # Filling a remainder can make room for a slot that had none.
            before = len(self.state.nodes) + 1
            while 1 < self.space.partial[SLOTTED] < before:
                before = self.space.partial[SLOTTED]
                self._compact_once()

    def _compact_once(self) -> None:
        space = self.space
        self._fill_vacancies()
        self._drain_pool()
        if space.partial[SLOTTED] > 1:
            self._join_slots()
            if space.uneven:
                self._fill_vacancies()
                self._fill_wide_nodes()
            self._drain_pool()
        self._merge()

    def _fill_vacancies(self) -> None:
        if self.space.vacancies:
            self._refill()
            if self.space.vacancies:
                self._refill_from_residual()

    def _refill_from_residual(self) -> None:
        """Fills vacancies that the pool could not with residual fillers, those of nodes with room first."""
        space = self.space
        for index in sorted(space.overfull, key=lambda i: (space.room(i) == 0, i)):
            for single in space.residual_first(index):
                if not space.vacancies:
                    return
                if not space.residual(index):
                    break
                self._move(single, 1, index, space.vacant.first(), Cause.FILLER)

    def _fill_wide_nodes(self) -> None:
        """Fills nodes whose slots are wider than P, the largest power of two in K, while two slotted nodes have room.

        Deviation: joining needs room for a block of slots. Beside P such a node has less where K - P is no power of two
        (two nodes of 7 with {4, 2} have one each), so 1-GPU instances fill them: from partial and full pool nodes, then
        the residual fillers of nodes with narrower slots, which may be joined afterwards.
        """
        space = self.space
        while space.partial[SLOTTED] > 1:
            target = next((index for index in space.movable_slotted() if space.is_wide(index)), -1)
            if target < 0:
                return
            source = space.sparsest_movable_pool(self.state.capacity)
            taken = space.singles_on(source) if source >= 0 else []
            if source < 0:
                narrow = [index for index in space.overfull if not space.is_wide(index)]
                source = max(narrow, key=lambda index: (space.residual(index), -index), default=-1)
                taken = space.residual_first(source)[: space.residual(source)] if source >= 0 else []
            if not taken:
                return
            for single in taken[: space.room(target)]:
                self._move(single, 1, source, target, Cause.POOL)

    def _merge(self) -> None:
        """Fills rooms of slotted nodes with 1-GPU instances of other partial nodes while that leaves fewer partial."""
        space = self.space
        while True:
            hosts = list(space.slotted(1))
            pool = space.sparsest_movable_pool(self.state.capacity - 1)
            if hosts and pool >= 0:
                source, target, taken = pool, hosts[0], space.singles_on(pool)
            else:
                pair = self._residual_that_fills(hosts)
                if pair is None:
                    return
                source, target = pair
                taken = space.residual_first(source)
            for single in taken[: space.room(target)]:
                self._move(single, 1, source, target, Cause.POOL)

    def _residual_that_fills(self, hosts: list[int]) -> tuple[int, int] | None:
        """(source, target): a node whose residual fillers fill the room of another."""
        space = self.space
        for source in reversed(hosts):
            # A pinned instance is no residual filler to be had.
            movable = min(space.residual(source), len(space.singles_on(source)))
            for target in hosts:
                if source != target and movable >= space.room(target):
                    return source, target
        return None
