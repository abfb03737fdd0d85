"""The cluster as a scheduler sees it: who is where, indexed by free GPUs."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from compass_abs.model.decision import Decision, Migration, Placement
from compass_abs.model.errors import (
    CompassError,
    DuplicateJobError,
    InvalidJobError,
    PlacementError,
    UnknownJobError,
    UnknownNodeError,
)
from compass_abs.model.index_set import IndexSet
from compass_abs.model.job import Instance, Job
from compass_abs.model.node import Node, NodeStatus

#: GPUs of nodes for which the closed forms and the bound of COMPASS-ABS are stated.
CAPACITIES = (1, 2, 4, 8, 16)
#: The most that a bin of any level may hold: the 72 panels of a flat NVL576 domain, and some to spare.
LARGEST_CAPACITY = 128

# An attribute of an enumeration takes a call to look up, too long for a path that every event takes several times.
_UP = NodeStatus.UP


class Gang:
    """A running job and the node of each of its instances."""

    __slots__ = ("job", "nodes")

    def __init__(self, job: Job, nodes: list[int]) -> None:
        self.job = job
        self.nodes = nodes


class ClusterState:
    """One pool of interchangeable nodes, and the gangs on them.

    Changes only by `place`, `move`, `release` and node events, each of which is all or nothing: a refused call
    raises and leaves the state as it was. `apply` and `undo` carry out a whole `Decision` forwards or backwards.

    Only nodes that are up count in `by_free`, `demand`, `partial_nodes` and `available_nodes`: a cordoned node's
    GPUs are nobody's to give.
    """

    __slots__ = ("by_free", "capacity", "demand", "free_gpus", "gangs", "index_of", "nodes", "pool")

    def __init__(self, nodes: int | Sequence[str], capacity: int = 8, pool: str = "") -> None:
        if type(capacity) is not int or not 1 <= capacity <= LARGEST_CAPACITY:
            raise InvalidJobError(f"capacity is {capacity!r}, expected a whole number from 1 to {LARGEST_CAPACITY}")
        names = [f"n{i}" for i in range(nodes)] if isinstance(nodes, int) else list(nodes)
        self.capacity = capacity
        self.pool = pool
        self.nodes: list[Node] = []
        self.index_of: dict[str, int] = {}
        #: For each number of free GPUs, the nodes that are up and have exactly that many.
        self.by_free = [IndexSet(len(names)) for _ in range(capacity + 1)]
        #: Running instances by size on nodes that are up; index 0 is unused.
        self.demand = [0] * (capacity + 1)
        self.free_gpus = 0
        self.gangs: dict[str, Gang] = {}
        for name in names:
            self.add_node(name)

    # ---- what it says

    @property
    def available_nodes(self) -> int:
        """Nodes that are up (N)."""
        return sum(map(len, self.by_free))

    @property
    def empty_nodes(self) -> int:
        """Nodes that are up and hold nothing."""
        return self.by_free[self.capacity].size

    @property
    def partial_nodes(self) -> int:
        """Nodes that are up and hold something, but are not full."""
        return sum(map(len, self.by_free[1:-1]))

    @property
    def used_nodes(self) -> int:
        """Nodes that are up and hold something."""
        return sum(map(len, self.by_free[:-1]))

    def histogram(self) -> list[int]:
        """How many nodes that are up have f free GPUs, for f from 0 to the capacity."""
        return [bucket.size for bucket in self.by_free]

    def room(self, gpus: int) -> int:
        """How many instances of this size fit now, without moving anything."""
        return sum([bucket.size * (f // gpus) for f, bucket in enumerate(self.by_free[gpus:], gpus)])

    def most_instances(self, gpus: int) -> int:
        """How many instances of this size the nodes that are up could hold if they were empty."""
        return self.available_nodes * (self.capacity // gpus)

    def placements(self) -> list[Placement]:
        """Who is where: all that is needed to rebuild this state."""
        return [
            Placement(Instance(job_id, k), node, gang.job.gpus)
            for job_id, gang in self.gangs.items()
            for k, node in enumerate(gang.nodes)
        ]

    def node_of(self, instance: Instance) -> int:
        """The node that an instance runs on."""
        gang = self.gangs.get(instance.job_id)
        if gang is None or not 0 <= instance.number < len(gang.nodes):
            raise UnknownJobError(f"instance {instance.number} of job {instance.job_id!r} is not running")
        return gang.nodes[instance.number]

    # ---- gangs

    def check_job(self, job: Job) -> None:
        """Raises unless the job makes sense on this pool and is not running yet."""
        if job.gpus > self.capacity:
            raise InvalidJobError(
                f"job {job.id!r}: gpus is {job.gpus}, but a node of pool {self.pool!r} has {self.capacity}; "
                "split it into more instances of fewer GPUs"
            )
        if job.id in self.gangs:
            raise DuplicateJobError(f"job {job.id!r} is running already")

    def place(self, job: Job, nodes: Sequence[int]) -> None:
        """Starts a gang: instance k on `nodes[k]`."""
        self.check_job(job)
        gpus, table, buckets = job.gpus, self.nodes, self.by_free
        if len(nodes) != job.instances:
            raise PlacementError(f"job {job.id!r} has {job.instances} instances, but {len(nodes)} nodes were given")
        placed = 0
        try:
            for index in nodes:
                if not 0 <= index < len(table):
                    raise self._unknown(job.id, index)
                node = table[index]
                free = node.free
                if free < gpus or node.status is not _UP:
                    raise PlacementError(
                        f"job {job.id!r}: instance {placed} needs {gpus} GPUs on node {node.name!r}, which is "
                        f"{node.status} with {free} free"
                    )
                node.contents[Instance(job.id, placed)] = gpus
                buckets[free].hand_over(index, buckets[free - gpus])
                node.free = free - gpus
                self.free_gpus -= gpus
                if not job.movable:
                    node.pinned += 1
                placed += 1
        except CompassError:
            self._rollback(job, nodes, placed)
            raise
        except TypeError:
            self._rollback(job, nodes, placed)
            raise self._unknown(job.id, nodes[placed]) from None
        self.demand[gpus] += len(nodes)
        self.gangs[job.id] = Gang(job, list(nodes))

    def _unknown(self, job_id: str, index: object) -> UnknownNodeError:
        return UnknownNodeError(
            f"job {job_id!r}: there is no node {index!r}, expected a whole number from 0 to {len(self.nodes) - 1}"
        )

    def _rollback(self, job: Job, nodes: Sequence[int], upto: int) -> None:
        for k in range(upto):
            node = self.nodes[nodes[k]]
            del node.contents[Instance(job.id, k)]
            self._set_free(node, node.free + job.gpus)
            if not job.movable:
                node.pinned -= 1

    def release(self, job_id: str) -> Gang:
        """Ends a gang and says where it had been."""
        gang = self.gangs.pop(job_id, None)
        if gang is None:
            raise UnknownJobError(f"job {job_id!r} is not running")
        gpus, table, buckets = gang.job.gpus, self.nodes, self.by_free
        for k, index in enumerate(gang.nodes):
            node = table[index]
            del node.contents[Instance(job_id, k)]
            free = node.free
            node.free = free + gpus
            if node.status is _UP:
                self.demand[gpus] -= 1
                self.free_gpus += gpus
                buckets[free].hand_over(index, buckets[free + gpus])
            if not gang.job.movable:
                node.pinned -= 1
        return gang

    def move(self, instance: Instance, target: int) -> None:
        """Moves one instance of a running gang to another node."""
        source_index = self.node_of(instance)
        if not 0 <= target < len(self.nodes):
            raise self._unknown(instance.job_id, target)
        gang = self.gangs[instance.job_id]
        gpus = gang.job.gpus
        source, destination = self.nodes[source_index], self.nodes[target]
        if source is destination or destination.free < gpus or destination.status is not _UP:
            raise PlacementError(
                f"job {instance.job_id!r}: instance {instance.number} ({gpus} GPUs) can't move from "
                f"{source.name!r} to {destination.name!r}, which is {destination.status} with "
                f"{destination.free} free"
            )
        del source.contents[instance]
        destination.contents[instance] = gpus
        gang.nodes[instance.number] = target
        if source.status is _UP:
            self._set_free(source, source.free + gpus)
        else:
            source.free += gpus
            self.demand[gpus] += 1
        self._set_free(destination, destination.free - gpus)
        if not gang.job.movable:
            source.pinned -= 1
            destination.pinned += 1

    def move_all(self, moves: Sequence[Migration]) -> None:
        """Moves instances in this order; when no space for the next is left, all leave before any arrives.

        All or nothing. The second way is for the rare swap that no node has scratch space for.
        """
        if self.fits_in_order(moves):
            for move in moves:
                self.move(move.instance, move.target)
        else:
            self._exchange(moves)

    def fits_in_order(self, moves: Sequence[Migration]) -> bool:
        """Whether these moves can happen one after the other."""
        free: dict[int, int] = {}
        at: dict[Instance, int] = {}
        for instance, _, target, *_ in moves:
            source, gpus = at.get(instance, self.node_of(instance)), self.gangs[instance.job_id].job.gpus
            if not 0 <= target < len(self.nodes):
                raise self._unknown(instance.job_id, target)
            node = self.nodes[target]
            left = free.get(target, node.free) - gpus
            if left < 0 or source == target or node.status is not NodeStatus.UP:
                return False
            free[target] = left
            free[source] = free.get(source, self.nodes[source].free) + gpus
            at[instance] = target
        return True

    def _exchange(self, moves: Sequence[Migration]) -> None:
        """Everything leaves, then everything arrives."""
        last = {move.instance: move.target for move in moves}
        change: dict[int, int] = {}
        for instance, target in last.items():
            if not 0 <= target < len(self.nodes):
                raise self._unknown(instance.job_id, target)
            source, gpus = self.node_of(instance), self.gangs[instance.job_id].job.gpus
            change[source] = change.get(source, 0) + gpus
            change[target] = change.get(target, 0) - gpus
        for index, freed in change.items():
            node = self.nodes[index]
            if node.free + freed < 0 or (freed < 0 and node.status is not NodeStatus.UP):
                raise PlacementError(
                    f"{len(last)} instances can't change places: node {node.name!r} is {node.status} with "
                    f"{node.free} free and would have {node.free + freed}"
                )
        for instance, target in last.items():
            gang = self.gangs[instance.job_id]
            gpus, source_node, target_node = gang.job.gpus, self.nodes[self.node_of(instance)], self.nodes[target]
            del source_node.contents[instance]
            target_node.contents[instance] = gpus
            gang.nodes[instance.number] = target
            if source_node.status is not NodeStatus.UP:
                self.demand[gpus] += 1
            if not gang.job.movable:
                source_node.pinned -= 1
                target_node.pinned += 1
        for index, freed in change.items():
            node = self.nodes[index]
            if node.status is NodeStatus.UP:
                self._set_free(node, node.free + freed)
            else:
                node.free += freed

    def _set_free(self, node: Node, free: int) -> None:
        """Moves a node that is up to the bucket of its new free count."""
        buckets = self.by_free
        buckets[node.free].hand_over(node.index, buckets[free])
        self.free_gpus += free - node.free
        node.free = free

    # ---- nodes

    def node(self, name: str) -> Node:
        """The node of this name."""
        index = self.index_of.get(name)
        if index is None:
            raise UnknownNodeError(f"there is no node {name!r} in pool {self.pool!r}")
        return self.nodes[index]

    def add_node(self, name: str) -> Node:
        """A new, empty node; or a lost one that is back."""
        index = self.index_of.get(name)
        if index is not None:
            node = self.nodes[index]
            if node.status is not NodeStatus.LOST:
                raise PlacementError(f"node {name!r} is in pool {self.pool!r} already and {node.status}")
            self.set_status(name, NodeStatus.UP)
            return node
        node = Node(len(self.nodes), name, self.capacity)
        self.nodes.append(node)
        self.index_of[name] = node.index
        for bucket in self.by_free:
            bucket.grow(len(self.nodes))
        self.by_free[node.free].add(node.index)
        self.free_gpus += node.free
        return node

    def set_status(self, name: str, status: NodeStatus) -> tuple[Job, ...]:
        """Cordons, drains, loses or brings back a node; says which gangs a loss took with it."""
        node = self.node(name)
        victims: tuple[Job, ...] = ()
        if status is NodeStatus.LOST:
            victims = tuple(self.gangs[job_id].job for job_id in dict.fromkeys(i.job_id for i in node.contents))
            for job in victims:
                self.release(job.id)
        was_up, is_up = node.status is NodeStatus.UP, status is NodeStatus.UP
        node.status = status
        if was_up != is_up:
            sign = 1 if is_up else -1
            for gpus in node.contents.values():
                self.demand[gpus] += sign
            self.free_gpus += sign * node.free
            bucket = self.by_free[node.free]
            if is_up:
                bucket.add(node.index)
            else:
                bucket.remove(node.index)
        return victims

    # ---- decisions

    def apply(self, decision: Decision) -> None:
        """Carries out a decision that was made on an equal state."""
        with ExitStack() as takes_back:
            self.move_all(decision.before)
            takes_back.callback(self._reverse, decision.before)
            if decision.job is not None and decision.reason is None:
                if decision.departed:
                    gang = self.release(decision.job.id)
                    takes_back.callback(self.restore, [(gang.job, gang.nodes)])
                else:
                    self.place(decision.job, decision.nodes)
                    takes_back.callback(self.release, decision.job.id)
            self.move_all(decision.after)
            takes_back.pop_all()

    def undo(self, decision: Decision) -> None:
        """Takes back the latest decision."""
        self._reverse(decision.after)
        if decision.job is not None and decision.reason is None:
            if decision.departed:
                self.place(decision.job, decision.nodes)
            else:
                self.release(decision.job.id)
        self._reverse(decision.before)

    def _reverse(self, moves: Sequence[Migration]) -> None:
        back = [move._replace(source=move.target, target=move.source) for move in reversed(moves)]
        with self._open([move.target for move in back]):
            self.move_all(back)

    def restore(self, gangs: Iterable[tuple[Job, Sequence[int]]]) -> None:
        """Puts running gangs back where they are, all or none; gangs on cordoned nodes included."""
        with ExitStack() as takes_back:
            for job, nodes in gangs:
                with self._open(nodes):
                    self.place(job, nodes)
                takes_back.callback(self.release, job.id)
            takes_back.pop_all()

    @contextmanager
    def _open(self, nodes: Iterable[int]) -> Iterator[None]:
        """Lets instances back onto nodes that are up no more."""
        known = [self.nodes[n] for n in dict.fromkeys(nodes) if type(n) is int and 0 <= n < len(self.nodes)]
        held = [node for node in known if node.status is not NodeStatus.UP]
        statuses = [node.status for node in held]
        for node in held:
            self.set_status(node.name, NodeStatus.UP)
        try:
            yield
        finally:
            for node, status in zip(held, statuses, strict=True):
                self.set_status(node.name, status)
