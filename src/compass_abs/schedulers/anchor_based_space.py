"""The Anchor-Based Space (section 4.2): slots, vacancies, fillers and pool nodes, derived from the placements.

Notation: `g` GPUs of an instance, `w*(g)` the width of its slot, `G` the capacity, `D(n) = G - sum of widths` the GPUs
of a node that no slot has profiled. Nothing here is stored that the placements don't imply: an instance of two GPUs or
more is the anchor of its own slot; the 1-GPU instances of a slotted node are the fillers of its slots, and whatever is
more than their vacancies holds is *residual*, which the space forbids but for the dead end described in
`compass_abs.py`. So a scheduler restored from placements is the scheduler that made them.
"""

from collections.abc import Callable, Iterator, Sequence

from compass_abs.fragmentation import slot_width
from compass_abs.model import ClusterState, Gang, IndexSet, Instance, InvariantError, Node, NodeStatus, Slot

# What compaction has to do with a node: nothing, drain the pool, join slots.
NEITHER, POOL, SLOTTED = 0, 1, 2

# An attribute of an enumeration takes a call to look up, too long for a path that every event takes several times.
_UP = NodeStatus.UP


class NodeProfile:
    """What the space knows of one node. One object: found at once, and a plain structure when compiled."""

    __slots__ = ("filed_under", "gap", "node", "singles", "vacancy", "width")

    def __init__(self, node: Node) -> None:
        self.node = node
        #: Sum of the widths of its slots.
        self.width = 0
        #: Sum over its slots of what their anchors leave to fillers.
        self.gap = 0
        #: Its 1-GPU instances.
        self.singles = 0
        #: Fillers that its slots still lack.
        self.vacancy = 0
        #: The bucket that it is in.
        self.filed_under = 0


class AnchorBasedSpace:
    """Where slots, pool nodes and vacancies are, in O(1) per change, whatever the cluster's size."""

    __slots__ = (
        "_buckets",
        "_capacity",
        "_filed",
        "_kind",
        "_state",
        "_widest",
        "_width_of",
        "order",
        "overfull",
        "partial",
        "profiles",
        "uneven",
        "vacancies",
        "vacant",
    )

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._capacity = state.capacity
        #: Which 1-GPU instances to move first, where that isn't the lowest id.
        self.order: Callable[[Instance], tuple[int, int]] | None = None
        # A capacity that isn't a power of two has one slot more: the whole node.
        self._width_of = [0, 0] + [min(slot_width(g), state.capacity) for g in range(2, state.capacity + 1)]
        self._widest = 1 << (state.capacity.bit_length() - 1)
        #: Whether joined slots leave a remainder: the capacity isn't a power of two.
        self.uneven = state.capacity != self._widest
        self.rebuild()

    def rebuild(self) -> None:
        """Derives everything from the placements."""
        count, capacity = len(self._state.nodes), self._capacity
        self.profiles = [NodeProfile(node) for node in self._state.nodes]
        self.vacancies = 0
        self.vacant = IndexSet(count)
        #: Slotted nodes with residual 1-GPU instances.
        self.overfull = IndexSet(count)
        # One bucket a kind: k for a pool node of k, G + r for a slotted node with r unprofiled free GPUs, and 2G more
        # for either when it is no source of moves: something on it is pinned, or its slots can't be joined with any
        # others (a whole number of the widest). 0 is everything else: empty, full, or not up.
        self._buckets = [IndexSet(count) for _ in range(4 * capacity + 1)]
        self._kind = [NEITHER] * (4 * capacity + 1)
        for k in range(1, capacity):
            self._kind[k] = self._kind[2 * capacity + k] = POOL
            self._kind[capacity + k] = SLOTTED
        #: How many partial nodes are `POOL` nodes, and how many `SLOTTED` ones whose slots may be joined with others.
        self.partial = [0, 0, 0]
        #: Bit k is set while bucket k has a member.
        self._filed = 0
        for profile in self.profiles:
            for gpus in profile.node.contents.values():
                self._change(profile, gpus, 1)
            self._change(profile, 1, 0)

    def touch(self, index: int) -> None:
        """Files a node of which something else than its contents changed."""
        self._change(self.profiles[index], 1, 0)

    def _change(self, profile: NodeProfile, gpus: int, count: int) -> None:
        """Counts instances of `gpus` that came to a node (or left it, if negative), and files it anew."""
        if gpus == 1:
            profile.singles += count
        else:
            width = self._width_of[gpus]
            profile.width += count * width
            profile.gap += count * (width - gpus)
        node, width, key = profile.node, profile.width, profile.singles
        vacancy = 0
        overfull = False
        if node.status is not _UP:
            key = 0
        elif width:
            capacity = self._capacity
            residual, key = key - profile.gap, 2 * capacity - width
            if residual > 0:
                key -= residual
            if self.uneven:
                residual -= self._remainder(width)
            if residual > 0:
                overfull = True
            elif residual:
                # On a node that something else filled, slots may add up to more than the capacity.
                vacancy = min(-residual, node.free)
            if key <= capacity:
                key = 0
            elif node.pinned or not width % self._widest:
                key += 2 * capacity
        elif key and node.pinned:
            key += 2 * self._capacity
        index, old = node.index, profile.filed_under
        if key != old:
            profile.filed_under = key
            kind, partial = self._kind, self.partial
            if old:
                bucket = self._buckets[old]
                bucket.remove(index)
                if not bucket.size:
                    self._filed ^= 1 << old
                partial[kind[old]] -= 1
            if key:
                bucket = self._buckets[key]
                if not bucket.size:
                    self._filed ^= 1 << key
                bucket.add(index)
                partial[kind[key]] += 1
        if vacancy != profile.vacancy:
            if not vacancy:
                self.vacant.remove(index)
            elif not profile.vacancy:
                self.vacant.add(index)
            self.vacancies += vacancy - profile.vacancy
            profile.vacancy = vacancy
        if overfull:
            self.overfull.include(index)
        elif self.overfull.size:
            self.overfull.discard(index)

    def _remainder(self, width: int) -> int:
        """GPUs of a node beside slots that are joined as far as they can be, where that doesn't fill the node.

        A capacity that isn't a power of two leaves some. Fillers are wanted there like in the vacancy of a slot, since
        compaction won't bring a slot; an anchor that fits may still be placed.
        """
        return 0 if width % self._widest else max(0, self._capacity - width)

    def width_of(self, gpus: int) -> int:
        """The width of the slot of an anchor of this size."""
        return self._width_of[gpus]

    # ---- changes

    def placed(self, gpus: int, nodes: Sequence[int]) -> None:
        """Instances of `gpus` were placed on these nodes."""
        profiles = self.profiles
        for index in nodes:
            self._change(profiles[index], gpus, 1)

    def released(self, gang: Gang) -> None:
        """A gang left its nodes."""
        gpus, profiles = gang.job.gpus, self.profiles
        for index in gang.nodes:
            self._change(profiles[index], gpus, -1)

    def moved(self, gpus: int, source: int, target: int) -> None:
        """An instance of `gpus` moved."""
        self._change(self.profiles[source], gpus, -1)
        self._change(self.profiles[target], gpus, 1)

    # ---- pool nodes

    def pool_room(self) -> int:
        """1-GPU instances that fit the partial pool nodes."""
        G, buckets = self._capacity, self._buckets
        return sum((buckets[k].size + buckets[2 * G + k].size) * (G - k) for k in range(1, G))

    def partial_pool(self) -> Iterator[int]:
        """Partial pool nodes, the fullest first, then by index."""
        # Compaction leaves one, as a rule.
        return iter((self.fullest_pool(),)) if self.partial[POOL] == 1 else self._partial_pools()

    def _partial_pools(self) -> Iterator[int]:
        filed = (self._filed | self._filed >> 2 * self._capacity) & ((1 << self._capacity) - 2)
        while filed:
            k = filed.bit_length() - 1
            yield from self._either(k)
            filed ^= 1 << k

    def fullest_pool(self) -> int:
        """The first of `partial_pool`; -1 if there is none."""
        twins = 2 * self._capacity
        filed = (self._filed | self._filed >> twins) & ((1 << self._capacity) - 2)
        if not filed:
            return -1
        k = filed.bit_length() - 1
        movable = self._buckets[k].first()
        if not self._buckets[twins + k].size:
            return movable
        pinned = self._buckets[twins + k].first()
        return pinned if movable < 0 else min(movable, pinned)

    def sparsest_movable_pool(self, most: int) -> int:
        """The pool node without pinned instances that has fewest, and no more than `most`; -1 if there is none."""
        filed = self._filed & ((2 << most) - 2)
        return self._buckets[(filed & -filed).bit_length() - 1].first() if filed else -1

    # ---- slotted nodes

    def slot_room(self, width: int) -> int:
        """Slots of this width that can be profiled on slotted nodes."""
        G, buckets = self._capacity, self._buckets
        return sum((buckets[G + r].size + buckets[3 * G + r].size) * (r // width) for r in range(width, G))

    def slotted(self, width: int) -> Iterator[int]:
        """Slotted nodes that take a slot of this width, those with least room first, then by index."""
        filed = (self._filed | self._filed >> 2 * self._capacity) >> self._capacity
        for r in range(width, self._capacity):
            if filed >> r & 1:
                yield from self._either(self._capacity + r)

    def movable_slotted(self) -> list[int]:
        """Slotted nodes with room and slots that may be joined with others, in the order of their indices."""
        G = self._capacity
        found = [index for bucket in self._buckets[G + 1 : 2 * G] for index in bucket]
        found.sort()
        return found

    def _either(self, key: int) -> Iterator[int]:
        twin = 2 * self._capacity + key
        both = (self._filed >> key & 1) + (self._filed >> twin & 1) * 2
        if both == 0:
            return iter(())
        if both == 3:
            return iter(sorted([*self._buckets[key], *self._buckets[twin]]))
        return iter(self._buckets[key if both == 1 else twin])

    def room(self, index: int) -> int:
        """Unprofiled free GPUs of a slotted node."""
        profile = self.profiles[index]
        return max(0, self._capacity - profile.width - max(0, profile.singles - profile.gap))

    def is_wide(self, index: int) -> bool:
        """Whether a node's slots reach beyond the largest power of two in a capacity that isn't one."""
        return self._widest < self.profiles[index].width < self._capacity

    def residual(self, index: int) -> int:
        """1-GPU instances of a slotted node that no slot has a place for."""
        profile = self.profiles[index]
        return max(0, profile.singles - profile.gap - self._remainder(profile.width)) if profile.width else 0

    # ---- who is on a node

    def singles_on(self, index: int) -> list[Instance]:
        """The movable 1-GPU instances of a node, in the order in which to move them: lowest id first."""
        node = self._state.nodes[index]
        found = [instance for instance, gpus in node.contents.items() if gpus == 1]
        if node.pinned:
            gangs = self._state.gangs
            found = [instance for instance in found if gangs[instance.job_id].job.movable]
        if self.order is None:
            found.sort()
        else:
            found.sort(key=self.order)
        return found

    def residual_first(self, index: int) -> list[Instance]:
        """The movable 1-GPU instances of a slotted node, those first that count as nobody's fillers."""
        found = self.singles_on(index)
        if self.order is None:
            found.reverse()
        return found

    def slots_on(self, index: int) -> list[Slot]:
        """The slots of a node by anchor, each with its fillers: the lowest 1-GPU instance goes to the lowest anchor."""
        contents = self._state.nodes[index].contents
        fillers = self.singles_on(index)
        slots = []
        for anchor in sorted(instance for instance, gpus in contents.items() if gpus > 1):
            width = self._width_of[contents[anchor]]
            wanted = width - contents[anchor]
            slots.append(Slot(width, anchor, tuple(fillers[:wanted])))
            fillers = fillers[wanted:]
        return slots

    def check(self) -> None:
        """Raises unless every index agrees with the placements."""
        fresh = AnchorBasedSpace(self._state)
        if self.vacancies != fresh.vacancies:
            raise InvariantError(f"anchor-based space: {self.vacancies} vacancies, not {fresh.vacancies}")
        for mine, true in zip(self.profiles, fresh.profiles, strict=True):
            for name in ("width", "gap", "singles", "vacancy", "filed_under"):
                if getattr(mine, name) != getattr(true, name):
                    raise InvariantError(
                        f"anchor-based space: {name} of node {mine.node.name!r} is {getattr(mine, name)}, "
                        f"not {getattr(true, name)}"
                    )
            index = mine.node.index
            if (index in self.overfull) != (index in fresh.overfull):
                raise InvariantError(f"anchor-based space: overfull disagrees on node {mine.node.name!r}")
