"""From counts to moves: which instance goes where, and in which order, so that every step fits."""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import chain

from compass_abs.model import Cause, ClusterState, Instance, Migration, NodeStatus
from compass_abs.planner.problem import Problem
from compass_abs.planner.request import EmptyNodes, Request, Room, Wave
from compass_abs.planner.solution import Solution


@dataclass(frozen=True, slots=True)
class Moves:
    """Waves of moves, the nodes left over for the arrivals, and how many moves are detours."""

    waves: tuple[Wave, ...]
    nodes: tuple[int, ...]
    scratch: int


@dataclass(slots=True)
class _Work:
    """What still has to move (`leaving`), and where there will be space for it (`slots`), by size."""

    capacity: int
    excluded: frozenset[int]
    leaving: list[list[Instance]]
    slots: list[list[int]]
    at: dict[Instance, int] = field(default_factory=dict)
    #: Nodes that something is evicted from.
    evicting: dict[int, None] = field(default_factory=dict)

    def copy(self) -> "_Work":
        """An independent copy."""
        return replace(
            self, leaving=[list(i) for i in self.leaving], slots=[list(s) for s in self.slots], at=dict(self.at)
        )


def carry_out(
    state: ClusterState, problem: Problem, solution: Solution, request: Request, excluded: frozenset[int], cause: Cause
) -> Moves:
    """Moves that do what the solution says, lowest nodes and instances first."""
    work = _Work(
        state.capacity, excluded, [[] for _ in range(state.capacity + 1)], [[] for _ in range(state.capacity + 1)]
    )
    _leave(state, problem, solution, work)
    newcomer = request.gpus if isinstance(request, Room) else state.capacity
    _arrive(state, solution, work, newcomer)
    _stay(work)
    straight = work.copy()
    waves, scratch = _Waves(state, work, cause).run()
    if scratch and waves[-1].together:
        # The detours led nowhere.
        work = straight
        waves, scratch = _Waves(state, work, cause, detours=0).run()
    nodes: tuple[int, ...] = ()
    if isinstance(request, Room):
        nodes = tuple(sorted(work.slots[request.gpus]))
    elif isinstance(request, EmptyNodes):
        nodes = tuple(sorted(work.slots[state.capacity]))
    return Moves(waves, nodes, scratch)


def _leave(state: ClusterState, problem: Problem, solution: Solution, work: _Work) -> None:
    for instance in problem.forced:
        work.leaving[state.gangs[instance.job_id].job.gpus].append(instance)
        work.at[instance] = state.node_of(instance)
    cursor: dict[int, int] = {}
    for c, o, number in solution.evictions:
        node_class = problem.classes[c]
        start = cursor.get(c, 0)
        cursor[c] = start + number
        for index in node_class.nodes[start : start + number]:
            work.evicting[index] = None
            for size, gang, many in node_class.options[o].groups:
                for instance in problem.movable(state, index, size, gang)[:many]:
                    work.leaving[size].append(instance)
                    work.at[instance] = index


def _arrive(state: ClusterState, solution: Solution, work: _Work, newcomer: int) -> None:
    """Chooses the nodes that receive: where nothing has to leave first, as far as there are such nodes."""
    after: list[list[int]] = [[] for _ in range(work.capacity + 1)]
    freed: dict[int, int] = {}
    for size, instances in enumerate(work.leaving):
        for instance in instances:
            freed[work.at[instance]] = freed.get(work.at[instance], 0) + size
    for index in work.evicting:
        after[state.nodes[index].free + freed[index]].append(index)
    ready = [iter(bucket) for bucket in state.by_free]
    # Those that move get the nodes that are ready; the newcomer comes last and can wait for the others.
    for free, received, number in sorted(solution.receipts, key=lambda r: (r[0], r[1][newcomer], r[1])):
        for _ in range(number):
            index = next((i for i in ready[free] if i not in work.evicting and i not in work.excluded), -1)
            if index < 0:
                index = after[free].pop(0)
            for size, many in enumerate(received):
                work.slots[size].extend([index] * many)


def _stay(work: _Work) -> None:
    """An instance whose node would receive one of its size just stays."""
    for size, slots in enumerate(work.slots):
        for instance in list(work.leaving[size]):
            if work.at[instance] in slots:
                slots.remove(work.at[instance])
                work.leaving[size].remove(instance)


class _Waves:
    """Fills whatever slot is open with whoever's departure is awaited, wave after wave."""

    def __init__(self, state: ClusterState, work: _Work, cause: Cause, detours: int = 1_000_000) -> None:
        self.state = state
        self.detours = detours
        self.work = work
        self.cause = cause
        self.free: dict[int, int] = {}
        self.detoured: dict[Instance, None] = {}

    def run(self) -> tuple[tuple[Wave, ...], int]:
        """The waves, and how many moves of them are detours."""
        waves = []
        while any(self.work.leaving):
            moves = self._open_slots()
            if not moves:
                detour = self._detour()
                if detour is None:
                    waves.append(Wave(tuple(self._all_at_once()), together=True))
                    break
                moves = [detour]
            waves.append(Wave(tuple(moves)))
            self._settle(moves)
        return tuple(waves), len(self.detoured)

    def _free(self, index: int) -> int:
        if index not in self.free:
            self.free[index] = self.state.nodes[index].free
        return self.free[index]

    def _settle(self, moves: list[Migration]) -> None:
        for move in moves:
            self.free[move.source] = self._free(move.source) + move.gpus

    def _move(self, instance: Instance, target: int, size: int) -> Migration:
        source = self.work.at[instance]
        self.free[target] = self._free(target) - size
        self.work.at[instance] = target
        return Migration(instance, source, target, size, self.cause)

    def _open_slots(self) -> list[Migration]:
        """Moves into slots that are free before anything of this wave has left."""
        work, moves = self.work, []
        paused: dict[str, None] = {}
        #: How many slots of each node are still open: looked up for every candidate of every slot.
        awaited = Counter(chain.from_iterable(work.slots))
        for size in range(work.capacity, 0, -1):
            leaving, slots = work.leaving[size], work.slots[size]
            if not leaving:
                continue
            for slot in sorted(dict.fromkeys(slots), key=lambda index: (index in work.evicting, index)):
                while leaving and slot in slots and self._free(slot) >= size:
                    instance = min(leaving, key=lambda i: self._urgency(i, awaited, paused))
                    moves.append(self._move(instance, slot, size))
                    paused[instance.job_id] = None
                    leaving.remove(instance)
                    slots.remove(slot)
                    awaited[slot] -= 1
        return moves

    def _urgency(
        self, instance: Instance, awaited: Counter[int], paused: dict[str, None]
    ) -> tuple[bool, bool, Instance]:
        """Those whose node is waited for first, then those whose gang pauses anyhow."""
        return (not awaited[self.work.at[instance]], instance.job_id not in paused, instance)

    def _detour(self) -> Migration | None:
        """The smallest move to a scratch node that lets another one happen."""
        work = self.work
        if len(self.detoured) >= self.detours:
            return None
        for helpful in (True, False):
            for size in range(1, work.capacity + 1):
                for instance in sorted(work.leaving[size]):
                    node = work.at[instance]
                    wanted = [s for s in range(1, work.capacity + 1) if node in work.slots[s] and work.leaving[s]]
                    if instance in self.detoured or not wanted:
                        continue
                    if helpful and min(wanted) > self._free(node) + size:
                        continue
                    scratch = self._scratch_node(size, node)
                    if scratch is not None:
                        self.detoured[instance] = None
                        return self._move(instance, scratch, size)
        return None

    def _scratch_node(self, size: int, source: int) -> int | None:
        """The node with the least space that suffices, awaited ones last."""
        best: tuple[bool, int, int] | None = None
        for index in self._candidates(size):
            if index == source or index in self.work.excluded or self.state.nodes[index].status is not NodeStatus.UP:
                continue
            free = self._free(index)
            if free >= size:
                key = (any(index in slots for slots in self.work.slots), free, index)
                best = key if best is None or key < best else best
        return None if best is None else best[2]

    def _candidates(self, size: int) -> list[int]:
        """Every node that this plan touches, and for each free count one that it doesn't."""
        found = list(self.free)
        for free in range(size, self.work.capacity + 1):
            for index in self.state.by_free[free]:
                if index not in self.free and index not in self.work.excluded:
                    found.append(index)
                    break
        return found

    def _all_at_once(self) -> list[Migration]:
        """Everything left leaves, then everything arrives."""
        moves = []
        for size in range(self.work.capacity, 0, -1):
            for instance in sorted(self.work.leaving[size]):
                slot = next(s for s in self.work.slots[size] if s != self.work.at[instance])
                self.work.slots[size].remove(slot)
                moves.append(self._move(instance, slot, size))
            self.work.leaving[size].clear()
        return moves
