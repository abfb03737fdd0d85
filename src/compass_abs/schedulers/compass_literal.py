"""COMPASS-ABS exactly as the paper's pseudo-code prints it, for study: `compass-abs-literal`.

It keeps the omissions of the printed `Place`, `Remove` and `Compact`, so N·SIF is *not* bounded (the tests show how):
nothing refills the vacancy of a filler that left; the three passes run in the order pool, width 4, width 2; only nodes
that hold an item of the class are hosts; a pass ends at the first source that makes no progress.
"""

from typing import ClassVar

from compass_abs.model import Cause, Decision, Instance, Job, Slot
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.compass_abs import CompassAbs


class CompassAbsLiteral(CompassAbs):
    """The pseudo-code of section 4.3, line by line."""

    name: ClassVar[str] = "compass-abs-literal"
    source: ClassVar[str] = "the paper, section 4.3, as printed"

    def _place_anchors(self, job: Job) -> list[int]:
        """Each anchor draws its fillers at once (line 9 of Place)."""
        nodes = super()._place_anchors(job)
        wanted = self.space.width_of(job.gpus) - job.gpus
        for index in nodes:
            for _ in range(wanted):
                source = self.space.sparsest_movable_pool(self.state.capacity)
                if source < 0:
                    return nodes
                self._move(self.space.singles_on(source)[0], 1, source, index, Cause.FILLER)
        return nodes

    def finish(self, job_id: str, situation: Situation) -> Decision:
        """Releases the gang, sends the fillers of its slots through the 1-GPU rule of Place, and compacts."""
        orphans = self._fillers_of(job_id)
        gang = self.remove(job_id)
        for filler in orphans:
            source = self.state.node_of(filler)
            target = self._legal_target_other_than(source)
            # The pseudo-code has no answer to a full cluster; the filler stays, as in the corrected scheduler.
            if target >= 0:
                self._move(filler, 1, source, target, Cause.FILLER)
        self.compact()
        return Decision(gang.job, tuple(gang.nodes), departed=True, after=self.take_moves())

    def _fillers_of(self, job_id: str) -> list[Instance]:
        gang = self.state.gangs.get(job_id)
        if gang is None or gang.job.gpus == 1:
            return []
        slots = [slot for index in dict.fromkeys(gang.nodes) for slot in self.space.slots_on(index)]
        return [filler for slot in slots if slot.anchor.job_id == job_id for filler in slot.fillers]

    def _legal_target_other_than(self, source: int) -> int:
        for candidates in (self.space.vacant, self.space.partial_pool(), self.state.by_free[self.state.capacity]):
            for index in candidates:
                if index != source:
                    return index
        return -1

    # ---- Compact

    def compact(self) -> None:
        """The three BestFitDrain passes, in the printed order."""
        self._drain_class(1)
        width = self.state.capacity // 2
        while width >= 2:
            self._drain_class(width)
            width //= 2

    def _drain_class(self, width: int) -> None:
        hosts = self._hosts(width)
        hosts.sort(key=lambda index: -self._room(index, width))
        while len(hosts) >= 2:
            source = hosts[0]
            progress = False
            for item in self._items(source, width):
                able = [index for index in hosts if index != source and self._room(index, width) >= 1]
                if not able:
                    break
                target = min(able, key=lambda index: self._room(index, width))
                if isinstance(item, Slot):
                    self._move_slots([item], source, target)
                else:
                    self._move(item, 1, source, target, Cause.POOL)
                progress = True
            if not self._items(source, width):
                hosts.pop(0)
            if not progress:
                break

    def _hosts(self, width: int) -> list[int]:
        """Nodes with at least one item of the class and room for at least one more."""
        found = list(self.space.partial_pool()) if width == 1 else self.space.movable_slotted()
        found.sort()
        return [index for index in found if self._items(index, width) and self._room(index, width)]

    def _room(self, index: int, width: int) -> int:
        if width == 1:
            return self.state.capacity - self.space.profiles[index].singles
        return self.space.room(index) // width

    def _items(self, index: int, width: int) -> list[Instance] | list[Slot]:
        if width == 1:
            return self.space.singles_on(index)
        return [slot for slot in self.space.slots_on(index) if slot.width == width]
