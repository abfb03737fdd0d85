"""The protocol that every scheduler keeps, so that one driver runs them all, simulated or live."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar, Protocol, runtime_checkable

from compass_abs.model import ClusterState, Decision, Job, Migration, NodeStatus, Reason, Verdict, check_state

# An attribute of an enumeration takes a call to look up.
_CAPACITY, _FRAGMENTATION = Verdict.CAPACITY, Verdict.FRAGMENTATION


class Situation:
    """What the driver knows and a scheduler doesn't: the time, who waits, and when running jobs should end.

    One object, kept up to date by the driver; a scheduler only reads it.
    """

    __slots__ = ("ends", "now", "progress", "waiting")

    def __init__(self) -> None:
        self.now = 0.0
        #: Jobs that wait, in the order of the queue.
        self.waiting: Sequence[Job] = ()
        #: Expected end of each running job, where known.
        self.ends: dict[str, float] = {}
        #: Time at which each running job last started or resumed.
        self.progress: dict[str, float] = {}


@runtime_checkable
class Nominating(Protocol):
    """A scheduler that also says who is tried next, where its queue lets it (`queues/nominated.py`)."""

    def nominate(self, situation: Situation) -> Job | None:
        """The waiting job to try now, of `situation.waiting`; a refusal ends the pass, an admission asks again."""


class Scheduler(ABC):
    """Decides for one pool. Events in, decisions out; every decision is already applied to `state`.

    No clock, no log, no I/O. Whatever a scheduler keeps beside `state` is derivable from it: `rebuild` does so.
    A driver calls `submitted` once a job, `admit` as often as its queue tries, `finish` when a job ends, and
    `round` at the times that `next_round` asks for. A refusal that names a time (`Reason.until`) is tried again then.
    A decision that could not be carried out is given to `undo`.
    """

    #: Name in the registry.
    name: ClassVar[str]
    #: Whether it knows where to put instances larger than a node on the panels of a domain.
    knows_domains: ClassVar[bool] = False

    def __init__(self, state: ClusterState) -> None:
        self.state = state

    def repacks(self) -> bool:
        """Whether it refuses a job only where no packing of it and what runs exists: reservations count on that."""
        return False

    # ---- events

    def submitted(self, job: Job, situation: Situation) -> None:  # noqa: B027 - most need no history
        """A job has joined the queue."""

    @abstractmethod
    def admit(self, job: Job, situation: Situation) -> Decision:
        """Starts a waiting job, with whatever moves that takes; or says why not and changes nothing."""

    def finish(self, job_id: str, situation: Situation) -> Decision:
        """A job has ended or was cancelled: its GPUs are free, and what follows from that."""
        gang = self.state.release(job_id)
        return Decision(gang.job, tuple(gang.nodes), departed=True)

    def next_round(self, now: float) -> float | None:
        """When this scheduler wants `round` to be called next; None for never."""
        return None

    def round(self, situation: Situation) -> Decision:
        """A periodic reorganisation."""
        return Decision()

    def add_node(self, name: str, situation: Situation) -> Decision:
        """A node came, or came back."""
        self.state.add_node(name)
        self.rebuild()
        return Decision()

    def set_status(self, name: str, status: NodeStatus, situation: Situation) -> Decision:
        """A node was cordoned, drained, lost or brought back."""
        lost = self.state.set_status(name, status)
        self.rebuild()
        return Decision(lost=lost)

    # ---- recovery

    def undo(self, decision: Decision) -> None:
        """Takes back the latest decision, which could not be carried out."""
        self.state.undo(decision)
        self.rebuild()

    def restore(self, gangs: Iterable[tuple[Job, Sequence[int]]]) -> None:
        """Rebuilds everything from who is where."""
        self.state.restore(gangs)
        self.rebuild()

    def rebuild(self) -> None:  # noqa: B027 - most keep nothing beside the state
        """Derives from `state` whatever else this scheduler keeps."""

    def check_invariants(self) -> None:
        """Raises `InvariantError` when the state contradicts itself."""
        check_state(self.state)

    # ---- shared pieces

    def refuse(self, job: Job, verdict: Verdict, detail: str = "", until: float | None = None) -> Decision:
        """A refusal; `until` asks the driver to try again at that time even if nothing happens."""
        return Decision(job, reason=Reason(verdict, job.total_gpus, self.state.free_gpus, detail, until))

    def blocked(self, job: Job, detail: str = "") -> Decision:
        """A refusal for lack of GPUs, or of GPUs in the right places."""
        # Whoever waits is refused once an event.
        demand, free = job.instances * job.gpus, self.state.free_gpus
        return Decision(job, reason=Reason(_FRAGMENTATION if free >= demand else _CAPACITY, demand, free, detail))

    def start(self, job: Job, nodes: Sequence[int], before: tuple[Migration, ...] = ()) -> Decision:
        """An admission onto these nodes, applied."""
        self.state.place(job, nodes)
        return Decision(job, tuple(nodes), before=before)
