"""COMPASS-ABS (section 4 of the paper): Place, Remove and Compact, with the corrections that make its bound true.

Under the workload composition condition N·SIF ≤ 2 after every event. Where the paper's text and its pseudo-code differ
the text wins; where neither keeps the bound this does, and says `Deviation:`. `compass_literal.py` keeps the code.

Choices the paper leaves open: of several equal nodes the lowest index, of several fillers the lowest (job, number) on
the sparsest pool node; a 1-GPU instance goes to the fullest partial pool node.
"""

from itertools import islice
from typing import ClassVar

from compass_abs.model import Cause, ClusterState, Decision, Gang, Instance, Job, Migration, Slot
from compass_abs.schedulers.anchor_based_space import POOL, SLOTTED, AnchorBasedSpace
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.housing import Housing
from compass_abs.schedulers.move_chains import collapse
from compass_abs.schedulers.slot_compaction import cheapest_block, remainder

_ANY_SINGLE = Job("any", 1, 1)


class CompassAbs(Scheduler):
    """Anchors in slots, 1-GPU instances in a pool, compaction after every event."""

    name: ClassVar[str] = "compass-abs"
    source: ClassVar[str] = "the paper, section 4, corrected (docs/compass-abs.md)"

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state)
        self.space = AnchorBasedSpace(state)
        self.housing = Housing(state)
        self._moves: list[Migration] = []

    # ---- events

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Places the whole gang in the space and compacts; or refuses and changes nothing."""
        self.state.check_job(job)
        if not self.fits(job):
            return self.blocked(job)
        nodes = self.place(job)
        self.compact()
        return Decision(job, tuple(nodes), after=self.take_moves())

    def finish(self, job_id: str, situation: Situation) -> Decision:
        """Removes the gang and compacts."""
        gang = self.remove(job_id)
        self.compact()
        return Decision(gang.job, tuple(gang.nodes), departed=True, after=self.take_moves())

    def rebuild(self) -> None:
        """Derives slots, pool and vacancies from who is where."""
        self.space.rebuild()

    def check_invariants(self) -> None:
        """Raises unless GPUs are conserved, gangs whole, and the space agrees with the placements."""
        super().check_invariants()
        self.space.check()

    # ---- Place

    def fits(self, job: Job) -> bool:
        """Whether the space has a legal place for every instance of a gang."""
        return self._fits_anchors(job) if job.gpus > 1 else self._fits_singles(job)

    def room_for_units(self) -> int:
        """How many movable 1-GPU instances have a legal place."""
        return self.housing.openable() * self.state.capacity + self._room_for_singles(_ANY_SINGLE)

    def place(self, job: Job) -> list[int]:
        """Places a gang that fits; says where."""
        return self._place_anchors(job) if job.gpus > 1 else self._place_singles(job)

    def _fits_anchors(self, job: Job) -> bool:
        width = self.space.width_of(job.gpus)
        empty = self.housing.openable() * (self.state.capacity // width)
        return empty >= job.instances or empty + self.space.slot_room(width) >= job.instances

    def _fits_singles(self, job: Job) -> bool:
        empty = self.housing.openable() * self.state.capacity
        return empty >= job.instances or empty + self._room_for_singles(job) >= job.instances

    def _room_for_singles(self, job: Job) -> int:
        """GPUs of used nodes that the instances of a 1-GPU job may have.

        A pinned instance can't leave a slot when its anchor does, so it is never made a filler.
        """
        return self.space.pool_room() + (self.space.vacancies if job.movable else 0)

    def _place_anchors(self, job: Job) -> list[int]:
        """Each anchor on the slotted node that it leaves fullest, else on an empty one."""
        width, capacity = self.space.width_of(job.gpus), self.state.capacity
        nodes: list[int] = []
        if width < capacity:
            for index in self.space.slotted(width):
                nodes += [index] * (self.space.room(index) // width)
                if len(nodes) >= job.instances:
                    break
        return self._open_empty(job, nodes, capacity // width)

    def _place_singles(self, job: Job) -> list[int]:
        return self._open_empty(job, self._hosts_of_singles(job), self.state.capacity)

    def _hosts_of_singles(self, job: Job) -> list[int]:
        """A node for each instance that fits a vacancy or, those being full, a partial pool node."""
        space = self.space
        nodes: list[int] = []
        if job.movable and space.vacancies:
            for index in space.vacant:
                nodes += [index] * space.profiles[index].vacancy
                if len(nodes) >= job.instances:
                    break
        if len(nodes) < job.instances and space.partial[POOL]:
            for index in space.partial_pool():
                nodes += [index] * (self.state.capacity - space.profiles[index].singles)
                if len(nodes) >= job.instances:
                    break
        return nodes

    def _open_empty(self, job: Job, nodes: list[int], each: int) -> list[int]:
        """Places the gang on the nodes found so far and, for the rest, on empty nodes that hold `each`."""
        if len(nodes) < job.instances:
            for index in self.housing.open(-(-(job.instances - len(nodes)) // each)):
                nodes += [index] * each
                if len(nodes) >= job.instances:
                    break
        if len(nodes) > job.instances:
            del nodes[job.instances :]
        self.state.place(job, nodes)
        self.space.placed(job.gpus, nodes)
        self.housing.changed(nodes)
        return nodes

    # ---- Remove

    def remove(self, job_id: str) -> Gang:
        """Takes a gang out of the space; what follows from that is left to `compact`.

        Deviation: Remove's pseudo-code forgets to refill the vacancy a filler leaves, without which N·SIF is
        unbounded. `compact` refills, once every instance of the job is gone, since a filler drawn earlier could be
        one that is itself about to leave.

        Deviation: fillers of a slot whose node keeps no other slot stay where they are. The node is a pool node then,
        and moving them into the pool would be moves for nothing.
        """
        gang = self.state.release(job_id)
        self.space.released(gang)
        self.housing.changed(gang.nodes)
        return gang

    # ---- Compact

    def compact(self) -> None:
        """Residual fillers out, vacancies filled, pool drained, slots joined: O(what the event disturbed)."""
        space = self.space
        if space.overfull.size:
            self._rehome()
        if space.vacancies:
            self._refill()
        if space.partial[POOL] > 1:
            self._drain_pool()
        if space.partial[SLOTTED] > 1:
            self._join_slots()
        while space.overfull.size:
            # Joining slots may have emptied a node; with a filler gone there, more slots may join.
            before = (self.state.partial_nodes, space.overfull.size)
            self._rehome()
            self._drain_pool()
            if space.partial[SLOTTED] > 1:
                self._join_slots()
            if (self.state.partial_nodes, space.overfull.size) >= before:
                break

    def _rehome(self) -> None:
        """Moves residual fillers by the 1-GPU rule: a vacancy, a partial pool node, an empty node.

        Deviation: in a full cluster a filler of a departed anchor can have none of these. The paper has no answer; here
        it runs on, on GPUs that no slot has profiled, and is tried again after every event. `_gather_residual` keeps
        such fillers out of the way of slots, so that the bound holds meanwhile: there is no partial pool node then, and
        at most two slotted nodes are partial.
        """
        space = self.space
        for index in list(space.overfull):
            # A pinned instance on a slotted node was there before us; it stays.
            for single in space.residual_first(index):
                if not space.residual(index):
                    break
                target = self._legal_target()
                if target < 0:
                    return
                self._move(single, 1, index, target, Cause.FILLER)

    def _legal_target(self) -> int:
        if self.space.vacancies:
            return self.space.vacant.first()
        pool = self.space.fullest_pool()
        return pool if pool >= 0 else next(iter(self.housing.open(1)), -1)

    def _refill(self) -> None:
        """Fills vacancies from the pool, from its sparsest nodes first so that they empty."""
        space = self.space
        while space.vacancies:
            source = space.sparsest_movable_pool(self.state.capacity)
            if source < 0:
                return
            for single in space.singles_on(source)[: space.vacancies]:
                self._move(single, 1, source, space.vacant.first(), Cause.FILLER)

    def _drain_pool(self) -> None:
        """Empties the sparsest partial pool node into the fullest ones until at most one is left."""
        space = self.space
        while space.partial[POOL] > 1:
            source = space.sparsest_movable_pool(self.state.capacity - 1)
            if source < 0:
                return
            target = space.fullest_pool()
            if target == source:
                target = next((index for index in space.partial_pool() if index != source), -1)
            if target < 0:
                return
            room = self.state.capacity - space.profiles[target].singles
            for single in space.singles_on(source)[:room]:
                self._move(single, 1, source, target, Cause.POOL)

    def _join_slots(self) -> None:
        """Leaves at most one slotted node with room, by the rule of `slot_compaction.py`; pinned nodes apart."""
        if self.space.overfull.size:
            self._gather_residual()
        nodes = self.space.movable_slotted()
        level = 2
        while 2 * level <= self.state.capacity:
            self._join_level(nodes, level)
            level *= 2

    def _gather_residual(self) -> None:
        """Leaves residual fillers on at most one slotted node with room, since they are in the way of slots."""
        space = self.space
        holders = [index for index in space.movable_slotted() if space.residual(index)]
        while len(holders) > 1:
            holders.sort(key=lambda index: (space.residual(index), index))
            source, target = holders[0], holders[-1]
            wanted = min(space.residual(source), space.room(target))
            for single in space.residual_first(source)[:wanted]:
                self._move(single, 1, source, target, Cause.SLOT)
            holders = [index for index in holders if space.residual(index) and space.room(index)]

    def _join_level(self, nodes: list[int], level: int) -> None:
        """Makes at most one node odd at this level, and joins it with what lower levels left over."""
        profiles = self.space.profiles
        odd = [index for index in nodes if profiles[index].width // level & 1]
        while len(odd) > 1:
            pair = self._cheapest_pair(odd, level)
            if pair is None:
                break
            source, target = pair
            self._move_slots(cheapest_block(self.space.slots_on(source), level) or [], source, target)
            odd.remove(source)
            odd.remove(target)
        carry = [index for index in nodes if profiles[index].width % level]
        if len(odd) == 1 and len(carry) == 1 and odd != carry:
            self._join_carry(carry[0], odd[0], level)

    def _cheapest_pair(self, odd: list[int], level: int) -> tuple[int, int] | None:
        """(source, target): from the emptiest node that can give to the fullest that can take."""
        space = self.space
        by_width = sorted(odd, key=lambda index: (space.profiles[index].width, index))
        for source in by_width:
            for target in reversed(by_width):
                if source == target or not self._make_way(target, source, level):
                    continue
                equal = space.profiles[source].width == space.profiles[target].width
                if equal and self._cost(target, level) < self._cost(source, level) and space.room(source) >= level:
                    return target, source
                return source, target
        return None

    def _cost(self, index: int, level: int) -> int:
        return sum(slot.instances for slot in cheapest_block(self.space.slots_on(index), level) or ())

    def _make_way(self, target: int, source: int, width: int) -> bool:
        """Whether `target` takes slots of this width, after its residual fillers have gone elsewhere if need be."""
        space = self.space
        lacking = width - space.room(target)
        if lacking <= 0:
            return True
        if lacking > space.residual(target):
            return False
        hosts = [source, *(index for index in space.movable_slotted() if index not in (source, target))]
        if lacking > sum(space.room(index) for index in hosts):
            return False
        fillers = iter(space.residual_first(target)[:lacking])
        for host in hosts:
            for single in islice(fillers, space.room(host)):
                self._move(single, 1, target, host, Cause.SLOT)
        return True

    def _join_carry(self, carry: int, odd: int, level: int) -> None:
        """Brings the odd node's block and the carry's remainder together, whichever way moves fewer instances."""
        space = self.space
        left_over = remainder(space.slots_on(carry), level)
        block = cheapest_block(space.slots_on(odd), level) or []
        wide = sum(slot.width for slot in left_over)
        fewer = sum(slot.instances for slot in block) < sum(slot.instances for slot in left_over)
        if fewer and space.room(carry) >= level:
            self._move_slots(block, odd, carry)
        elif self._make_way(odd, carry, wide):
            self._move_slots(left_over, carry, odd)

    def _move_slots(self, slots: list[Slot], source: int, target: int) -> None:
        for slot in slots:
            gpus = self.state.gangs[slot.anchor.job_id].job.gpus
            self._move(slot.anchor, gpus, source, target, Cause.SLOT)
            for filler in slot.fillers:
                self._move(filler, 1, source, target, Cause.SLOT)

    # ---- moves

    def _move(self, instance: Instance, gpus: int, source: int, target: int, cause: Cause) -> None:
        self.shift(instance, gpus, source, target, cause)
        self.housing.moved(instance, source, target, cause)

    def shift(self, instance: Instance, gpus: int, source: int, target: int, cause: Cause) -> None:
        """Moves an instance without telling the housing, whose wish it may have been."""
        self.state.move(instance, target)
        self.space.moved(gpus, source, target)
        self._moves.append(Migration(instance, source, target, gpus, cause))

    def take_moves(self) -> tuple[Migration, ...]:
        """The moves made since they were last taken, each instance once where that can be."""
        if not self._moves:
            return ()
        moves = tuple(self._moves) if len(self._moves) == 1 else collapse(self._moves, self.state)
        self._moves = []
        return moves
