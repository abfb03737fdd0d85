"""Slurm's node selection, as far as GPUs go."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, ClassVar

from compass_abs.model import ClusterState, Decision, Job
from compass_abs.schedulers.base import Scheduler, Situation


class Selection(StrEnum):
    """Which of Slurm's two rules picks the nodes."""

    CONSECUTIVE = "consecutive"
    """The default of select/cons_tres: the tightest run of consecutive nodes that is large enough."""
    BUSY = "busy"
    """CR_Pack_Nodes and bf_busy_nodes: nodes in use first, then idle ones, each in their order."""


class SlurmPacking(Scheduler):
    """Slurm: the tightest run of consecutive nodes with room, or nodes in use first; nothing ever moves.

    After `_eval_nodes_consec` and `_eval_nodes_busy` of Slurm's topology/common/eval_nodes.c with equal node weights:
    runs of neighbouring nodes with room are taken one after the other, the tightest that suffices, else the largest;
    a rest that one node of the run can hold goes to the tightest such node, otherwise nodes are filled in order.
    Interpretation: room is counted in instances of the job, where Slurm counts CPUs. Slurm's backfill is a queue:
    combine this with `backfill`.
    """

    name: ClassVar[str] = "slurm"
    source: ClassVar[str] = "Slurm: select/cons_tres, src/plugins/topology/common/eval_nodes.c"

    def __init__(
        self,
        state: ClusterState,
        *,
        selection: Annotated[Selection, "how nodes are picked"] = Selection.CONSECUTIVE,
    ) -> None:
        super().__init__(state)
        self._selection = selection

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Starts the job on the nodes that the rule picks."""
        state = self.state
        state.check_job(job)
        if state.room(job.gpus) < job.instances:
            return self.blocked(job)
        room = {n: f // job.gpus for f in range(job.gpus, state.capacity + 1) for n in state.by_free[f]}
        with_room = sorted(room)
        if self._selection is Selection.BUSY:
            idle = state.by_free[state.capacity]
            order = [n for n in with_room if n not in idle] + [n for n in with_room if n in idle]
            return self.start(job, _fill(order, room, job.instances))
        nodes: list[int] = []
        runs = list(_runs(with_room))
        while len(nodes) < job.instances:
            wanted = job.instances - len(nodes)
            run = _best_run(runs, room, wanted)
            runs.remove(run)
            nodes += _from_run(run, room, wanted)
        return self.start(job, nodes)


def _runs(nodes: list[int]) -> Iterator[list[int]]:
    """Maximal runs of consecutive numbers."""
    run: list[int] = []
    for node in nodes:
        if run and node != run[-1] + 1:
            yield run
            run = []
        run.append(node)
    if run:
        yield run


def _best_run(runs: list[list[int]], room: dict[int, int], wanted: int) -> list[int]:
    """The tightest run that holds what is wanted, the earlier on ties; the largest where none does."""
    sizes = [(sum(room[node] for node in run), k) for k, run in enumerate(runs)]
    enough = [(size, k) for size, k in sizes if size >= wanted]
    if enough:
        return runs[min(enough)[1]]
    return runs[max(sizes, key=lambda entry: (entry[0], -entry[1]))[1]]


def _from_run(run: list[int], room: dict[int, int], wanted: int) -> list[int]:
    """What a run contributes: one node that holds it all, the tightest; or its nodes in order."""
    holds_all = [(room[node], node) for node in run if room[node] >= wanted]
    return _fill([min(holds_all)[1]] if holds_all else run, room, wanted)


def _fill(order: list[int], room: dict[int, int], wanted: int) -> list[int]:
    nodes: list[int] = []
    for node in order:
        nodes += [node] * min(room[node], wanted - len(nodes))
        if len(nodes) == wanted:
            break
    return nodes
