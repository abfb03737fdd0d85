"""One tier of the hierarchy: COMPASS-ABS's operators on its nodes, the tier below inside them, the tier above around.

Tier 1 has panels as nodes and GPUs in them. Tier 2 has domains as nodes and panels in them, tier 3 domains of domains,
and so on. Every tier runs the same `Place`, `Remove` and `Compact` on a `ClusterState` of its own. Its items are
  - *anchors*: instances of p ≥ 2 members of a node (p = ceil(g / GPUs of a member)), and
  - *units*: a 1-member item for EVERY member that the tier below has in use, shared by small instances or not.
So a member that is opened below is placed here by the 1-GPU rule, one that is emptied leaves a vacancy here, and moving
a unit moves everything inside it. That never changes what is together in a member: compaction above can't undo
compaction below, and one pass from the lowest tier up is enough.
"""

from collections.abc import Iterable, Sequence
from enum import StrEnum

from compass_abs.model import Cause, Gang, Instance, InvariantError, Job, NodeStatus
from compass_abs.schedulers.compass_abs import CompassAbs
from compass_abs.schedulers.housing import Housing

_UP = NodeStatus.UP


class Fillers(StrEnum):
    """Which members of a node may be moved to fill it."""

    MEMBERS = "members"
    """Any member in use, with everything inside it."""
    WHOLE_INSTANCES = "whole-instances"
    """Only a member that one instance fills: the paper's appendix D, for study. No bound holds."""


class Tier(Housing):
    """A tier with its operators, and which members of its nodes each item holds."""

    def __init__(self, operators: CompassAbs, below: "Tier | None", fillers: Fillers = Fillers.MEMBERS) -> None:
        super().__init__(operators.state)
        self.operators = operators
        self.below = below
        self.above: Tier | None = None
        self.fillers = fillers
        operators.housing = self
        capacity = operators.state.capacity
        count = len(operators.state.nodes)
        #: For each node, its free members as bits.
        self._free = [(1 << capacity) - 1] * count if below is not None else []
        #: The item on each member, and the members of each item.
        self._item_on: list[Instance | None] = [None] * (count * capacity) if below is not None else []
        self._members: dict[Instance, list[int]] = {}
        self._units = 0
        if below is not None:
            below.above = self
            operators.space.order = self._cheapest_first

    # ---- what the operators ask (Housing)

    def openable(self) -> int:
        """How many empty nodes the tier above lets this one open."""
        return self.state.empty_nodes if self.above is None else self.above.operators.room_for_units()

    def open(self, wanted: int) -> Iterable[int]:
        """Empty nodes, chosen by the tier above by its rule for 1-member items."""
        return super().open(wanted) if self.above is None else self.above.house(wanted)

    def changed(self, nodes: Sequence[int]) -> None:
        """Tells the tier above which of these nodes are in use now."""
        if self.above is not None:
            for index in nodes:
                self.above.settle(index)

    def moved(self, instance: Instance, source: int, target: int, cause: Cause) -> None:
        """Takes along what is inside an item that moved."""
        if self.below is not None:
            old = self._members[instance]
            new = self._take(target, instance, len(old))
            for member, place in zip(old, new, strict=True):
                self.below.relocate(member, place, cause)
            self._give_back(old)
        self.changed((source, target))

    # ---- what the tier below asks

    def house(self, wanted: int) -> list[int]:
        """Empty members for new units, as many as there is room for."""
        opened: list[int] = []
        for _ in range(wanted):
            unit = self._new_unit(movable=True)
            if not self.operators.fits(unit):
                break
            node = self.operators.place(unit)[0]
            opened += self._take(node, Instance(unit.id, 0), 1)
        return opened

    def settle(self, member: int) -> None:
        """Makes the unit of a member agree with what is inside it now."""
        assert self.below is not None
        item, inside = self._item_on[member], self.below.state.nodes[member]
        if item is not None and self.state.gangs[item.job_id].job.gpus > 1:
            return
        up = inside.status is _UP
        if up and not inside.contents:
            if item is not None:
                self.operators.remove(item.job_id)
                self._give_back(self._members.pop(item))
            return
        # What is not up is nobody's to give, and stays where it is.
        movable = up and not inside.pinned and (self.fillers is Fillers.MEMBERS or self._is_whole(inside.contents))
        if item is None:
            self._adopt_unit(member, movable=movable)
        elif self.state.gangs[item.job_id].job.movable != movable:
            node = self.state.release(item.job_id).nodes[0]
            self.state.place(Job(item.job_id, 1, 1, movable=movable), [node])
            self.operators.space.touch(node)
            self.changed((node,))

    def _is_whole(self, contents: dict[Instance, int]) -> bool:
        assert self.below is not None
        return len(contents) == 1 and self.below.state.capacity in contents.values()

    def _adopt_unit(self, member: int, *, movable: bool) -> None:
        node = member // self.state.capacity
        unit = self._new_unit(movable=movable)
        self.state.place(unit, [node])
        self.operators.space.placed(1, [node])
        self._assign(member, Instance(unit.id, 0))
        self.changed((node,))

    def _new_unit(self, *, movable: bool) -> Job:
        self._units += 1
        # A user's job of the same name would live in the same state.
        return Job(f"\0unit {self._units}", 1, 1, movable=movable)

    # ---- gangs whose instances are larger than a member

    def start(self, job: Job) -> list[int]:
        """Places a gang that fits, of `job.gpus` members an instance; says on which members."""
        nodes = self.operators.place(job)
        members: list[int] = []
        for number, node in enumerate(nodes):
            members += self._take(node, Instance(job.id, number), job.gpus)
        return members

    def adopt(self, job: Job, members: Sequence[int]) -> None:
        """Notes a gang that is there already, on these members, instance by instance."""
        nodes = [members[first] // self.state.capacity for first in range(0, len(members), job.gpus)]
        self.state.place(job, nodes)
        self.operators.space.placed(job.gpus, nodes)
        for position, member in enumerate(members):
            self._assign(member, Instance(job.id, position // job.gpus))
        self.changed(nodes)

    def adopt_rest(self) -> None:
        """Notes every member that is in use and held by nobody yet, and those that don't exist or are not up."""
        assert self.below is not None
        known = len(self.below.state.nodes)
        for member, item in enumerate(self._item_on):
            if item is None and member < known:
                self.settle(member)
            elif item is None:
                self._adopt_unit(member, movable=False)

    def hold(self, job: Job, nodes: Sequence[int]) -> list[int]:
        """Fills these nodes with pieces of a gang that lives above; says which members that takes."""
        piece = Job(job.id, len(nodes), self.state.capacity, movable=job.movable)
        self.state.place(piece, nodes)
        self.operators.space.placed(piece.gpus, nodes)
        members: list[int] = []
        for number, node in enumerate(nodes):
            members += self._take(node, Instance(job.id, number), piece.gpus)
        return members

    def end(self, job_id: str) -> None:
        """Takes a gang that lives here out by the operator."""
        self._forget(self.operators.remove(job_id))

    def let_go(self, job_id: str) -> None:
        """Takes away the pieces of a gang that lives above."""
        gang = self.state.release(job_id)
        self.operators.space.released(gang)
        self._forget(gang)

    def _forget(self, gang: Gang) -> None:
        for number in range(len(gang.nodes)):
            members = self._members.pop(Instance(gang.job.id, number))
            self._give_back(members)
            for member in members:
                # One that is not up any more stays nobody's to give.
                self.settle(member)

    # ---- what the tier above does

    def relocate(self, source: int, target: int, cause: Cause) -> None:
        """Moves everything on a node to an empty one."""
        contents = self.state.nodes[source].contents
        if self.below is None:
            for instance in sorted(contents):
                self.operators.shift(instance, contents[instance], source, target, cause)
            return
        offset = (target - source) * self.state.capacity
        for instance in sorted(contents, key=self._first_member):
            self.operators.shift(instance, contents[instance], source, target, cause)
            old = self._members[instance]
            for member in old:
                self.below.relocate(member, member + offset, cause)
            self._give_back(old)
            del self._members[instance]
            for member in old:
                self._assign(member + offset, instance)

    # ---- members

    def _take(self, node: int, instance: Instance, wanted: int) -> list[int]:
        """The lowest free members of a node, now this item's."""
        free, first = self._free[node], node * self.state.capacity
        taken: list[int] = []
        for _ in range(wanted):
            bit = free & -free
            free ^= bit
            member = first + bit.bit_length() - 1
            taken.append(member)
            self._item_on[member] = instance
        self._free[node] = free
        self._members[instance] = taken
        return taken

    def _assign(self, member: int, instance: Instance) -> None:
        """Gives an item this very member, which is free."""
        node, position = divmod(member, self.state.capacity)
        self._free[node] ^= 1 << position
        self._item_on[member] = instance
        self._members.setdefault(instance, []).append(member)

    def _give_back(self, members: Sequence[int]) -> None:
        for member in members:
            node, position = divmod(member, self.state.capacity)
            self._free[node] |= 1 << position
            self._item_on[member] = None

    def _first_member(self, instance: Instance) -> int:
        return self._members[instance][0]

    def members_of(self, instance: Instance) -> Sequence[int]:
        """The members that an item of this tier holds."""
        return self._members[instance]

    def load(self, index: int) -> int:
        """How many running instances would move with everything on this node."""
        contents = self.state.nodes[index].contents
        if self.below is None:
            return len(contents)
        return sum(self.below.load(member) for instance in contents for member in self._members[instance])

    def _cheapest_first(self, instance: Instance) -> tuple[int, int]:
        """What moving this unit costs in instances, then where it is: a whole-panel instance is the best filler."""
        assert self.below is not None
        member = self._members[instance][0]
        return self.below.load(member), member

    # ---- checks

    def check(self) -> None:
        """Raises unless this tier's items are exactly what is in use below, each where its item says."""
        below = self.below
        if below is None:
            return
        for member, item in enumerate(self._item_on):
            node, position = divmod(member, self.state.capacity)
            if (item is None) != bool(self._free[node] >> position & 1):
                raise InvariantError(f"member {member}: {item} is there, but its bit says otherwise")
            if item is not None and (self.state.node_of(item) != node or member not in self._members[item]):
                raise InvariantError(f"member {member}: {item} is there, but isn't placed so")
            if member < len(below.state.nodes):
                inside = below.state.nodes[member]
                in_use = bool(inside.contents) or inside.status is not _UP
                if in_use != (item is not None):
                    raise InvariantError(f"member {member} holds {inside.contents}, but its item is {item}")
        held = sum(len(members) for members in self._members.values())
        if held != sum(item is not None for item in self._item_on):
            raise InvariantError(f"{held} members are held, which isn't what is marked")
