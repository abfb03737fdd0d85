"""The boundary between the controller, which decides, and whatever really starts and stops processes.

An engine is a pair of hands. It owns no policy and no durable state of ours: it carries out what it is told about
single *runs* and says what it sees. Kubernetes pods, Slurm jobs, Ray actors and local process groups fit behind it
alike, because it assumes no more than the poorest of them offers.

**Runs and generations.** Each start of a gang has a generation, a number that only grows. A `RunId` names one
instance in one generation, and is the engine's only key: pods, Slurm jobs, process groups, rendezvous and control
directories are all named after it. The generation is a *fence*: an engine refuses to start a generation older than
one it has seen of the same job, and a process of an older generation can never be taken for a newer one. Two copies
of a rank may exist for a while when a node is cut off; they never share a rendezvous or a control directory.

**Blocking and idempotent.** Methods block (the controller calls them in worker threads, one call a job at a time;
different jobs at the same time, so implementations are thread-safe) and return when the request is *accepted*, not
when it is complete: that the process runs, has acknowledged or is gone comes back as a report. Each may be repeated
with the same arguments, since a controller that died between a call and its note of it calls again:
`start` of a run that exists does nothing, `stop` and `kill` of one that is gone do nothing.

**Two kinds of no.** `EngineRefusalError`: it is certain that nothing was started, and it won't work on this node now;
the controller undoes the placement and decides again. `EngineUnavailableError`: nobody knows; the controller asks
again later with the same arguments. Anything else is a defect.

**List and watch.** `observe` returns everything at once, `watch` calls back with single reports as they happen.
A watch may miss or repeat; the controller heals from the next `observe`. Reports are levels, not edges: each says all
that is known of its run or node.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol, runtime_checkable

from compass_abs.model import CompassError

#: What a job id looks like: fit for a file name, a DNS label, a Slurm job name. The controller makes them so;
#: an engine may rely on it, and checks it before it builds a path.
JOB_ID_PATTERN = r"[a-z0-9](?:[-a-z0-9]{0,38}[a-z0-9])?"


class EngineRefusalError(CompassError):
    """The engine certainly did not do it and won't here and now: node gone, GPUs taken, name unknown."""


class StaleGenerationError(EngineRefusalError):
    """A start with a generation below one that the engine has seen: the fence."""


class EngineUnavailableError(CompassError):
    """Nobody knows whether it was done: a time-out, a lost connection. Safe to ask again."""


class RunId(NamedTuple):
    """One instance of one generation of a gang."""

    job_id: str
    number: int
    generation: int

    def __str__(self) -> str:
        return f"{self.job_id}/{self.number}@{self.generation}"


# ---- what an engine is asked for


class CheckpointMode(StrEnum):
    """How a job lets itself be checkpointed."""

    SESSION = "session"
    """It uses `compass_abs.training.session`: requests and acknowledgements as files in its control directory."""
    SIGNAL = "signal"
    """It saves and exits with 0 when it gets a signal; the exit is its acknowledgement."""
    PERIODIC = "periodic"
    """It can't be asked: it is stopped and restarts from its own latest periodic checkpoint."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one instance may use beside its GPUs; None is unlimited."""

    memory_bytes: int | None = None
    open_files: int | None = None
    processes: int | None = None
    file_bytes: int | None = None
    cpus: float | None = None


@dataclass(frozen=True, slots=True)
class Workload:
    """What every instance of a gang runs. An argument list, never a line for a shell."""

    command: tuple[str, ...]
    environment: tuple[tuple[str, str], ...] = ()
    #: Absolute folder; empty for one that the engine makes for the job.
    workdir: str = ""
    #: Container image, for engines that have images; others ignore it.
    image: str = ""
    #: Absolute folder shared by all nodes; empty for `checkpoints` in the job's folder of the engine.
    checkpoint_dir: str = ""
    mode: CheckpointMode = CheckpointMode.SESSION
    #: Signal of mode SIGNAL, without SIG.
    signal: str = "USR1"
    limits: Limits = field(default=Limits())


class Rendezvous(NamedTuple):
    """Where the ranks of one generation meet. Never used for two generations."""

    address: str
    port: int


@dataclass(frozen=True, slots=True)
class StartOrder:
    """Everything to start one instance: the same for the gang but for `run.number`."""

    run: RunId
    workload: Workload
    #: Node of each instance, in order; `nodes[run.number]` is this one's. Its length is the world size.
    nodes: tuple[str, ...]
    gpus: int
    rendezvous: Rendezvous
    #: Checkpoint to go on from, as a run acknowledged it; empty: whatever the job finds, or nothing.
    resume_from: str = ""
    #: Seconds since the epoch after which the engine may end the run by itself; None for never.
    deadline: float | None = None
    #: For people: labels, pod annotations, comments. Never part of a path or a command.
    display_name: str = ""

    @property
    def node(self) -> str:
        """The node this instance is to start on."""
        return self.nodes[self.run.number]


@dataclass(frozen=True, slots=True)
class CheckpointRequest:
    """Asks a run to save at the next step boundary that all its ranks agree on."""

    #: Chosen by the controller; the acknowledgement repeats it. The same for every run of the gang.
    id: str
    #: What the run does once it has saved.
    then: "AfterCheckpoint"


class AfterCheckpoint(StrEnum):
    """What a run does once it has saved."""

    CONTINUE = "continue"
    """Train on: a copy was wanted, nothing else."""
    HOLD = "hold"
    """Keep the process, train no further, wait for `rejoin`, `resume` or the end."""


# ---- what an engine says


class NodeHealth(StrEnum):
    """What an engine knows of a node."""

    READY = "ready"
    CORDONED = "cordoned"
    """Somebody else's tools closed it: what runs there runs on."""
    LOST = "lost"
    """Unreachable for longer than the engine's patience, or gone: its runs count as ended."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node, its GPUs, and whether it can be used. A node the engine no longer has is simply not observed."""

    name: str
    gpus: int
    pool: str = ""
    health: NodeHealth = NodeHealth.READY
    detail: str = ""


class RunPhase(StrEnum):
    """Where a run is in its life. Only ever moves down this list."""

    PENDING = "pending"
    """Accepted; its process is not up yet. Holds its GPUs."""
    RUNNING = "running"
    """Its process is up. Holds its GPUs."""
    ENDED = "ended"
    """Its processes are gone, all of them, and its GPUs are free."""


class EndCause(StrEnum):
    """Why a run ended."""

    EXITED = "exited"
    """By itself; see `code`."""
    SIGNALLED = "signalled"
    """By a signal; `code` is its number."""
    NODE_LOST = "node-lost"
    EVICTED = "evicted"
    """Somebody else's tools removed it."""
    LIMIT = "limit"
    """It used more than its limits allow."""
    REJOINED = "rejoined"
    """Its process lives on as a run of a newer generation."""
    UNKNOWN = "unknown"
    """It is gone and nobody saw how. Judge by the checkpoint."""


class End(NamedTuple):
    """How a run ended."""

    cause: EndCause
    code: int = 0
    detail: str = ""

    @property
    def clean(self) -> bool:
        """True for an exit with code 0."""
        return self.cause is EndCause.EXITED and self.code == 0


class Acknowledgement(NamedTuple):
    """A run's answer to a `CheckpointRequest`."""

    request: str
    #: Steps completed when it saved.
    step: int
    #: What `StartOrder.resume_from` wants to hear; empty when nothing was saved.
    path: str
    #: Why it could not save; empty when it could.
    error: str = ""
    #: False when it can't become a run of the next generation in place: it has to be started anew.
    rejoins: bool = True
    #: Seconds of training since what is in `path`: of a job that can't be asked to save. A restart repeats them.
    lost_seconds: float = 0.0


class Progress(NamedTuple):
    """How far a run's training is."""

    step: int
    #: Seconds since the epoch at which that step was done.
    time: float
    #: Step this run began from; -1 when unknown.
    resumed_at: int = -1
    #: Latest checkpoint that the job made by itself, as `StartOrder.resume_from` wants it.
    checkpoint: str = ""
    #: Steps in that checkpoint.
    checkpoint_step: int = -1
    #: Steps of the whole job, where known.
    total: int = 0
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class RunReport:
    """All that is known of a run."""

    run: RunId
    node: str
    phase: RunPhase
    #: Indices of its GPUs on the node, where the engine knows them.
    gpus: tuple[int, ...] = ()
    end: End | None = None
    #: The latest one.
    acknowledgement: Acknowledgement | None = None
    progress: Progress | None = None
    #: For people: a process id, a pod's name, a Slurm job id.
    handle: str = ""


Report = RunReport | NodeReport


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything there is: all nodes, and all runs of ours that are alive or not yet forgotten."""

    nodes: tuple[NodeReport, ...]
    runs: tuple[RunReport, ...]


class Capability(StrEnum):
    """What an engine can do beyond the required minimum."""

    REJOIN = "rejoin"
    """A held process can become a run of the next generation without leaving its node."""
    WARM_START = "warm-start"
    """Successors are forked from a standby process with the framework imported."""
    CONSENT = "consent"
    """Somebody else (a disruption budget) may forbid a move: `consent` is asked before anything is stopped."""


@runtime_checkable
class Engine(Protocol):
    """The hands. See the module's docstring for what holds of every method."""

    @property
    def name(self) -> str:
        """`local`, `kubernetes`, ..."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What it can do beyond the minimum."""

    def observe(self) -> Observation:
        """Everything, as it is now. Raises `EngineUnavailableError` rather than return a part.

        A run is in it from the moment its `start` returned until `forget`, whatever happened to it since; after a
        crash of the engine or its node as far as traces are left. Runs of other controllers are not.
        """

    def watch(self, sink: Callable[[Report], None]) -> None:
        """Calls `sink` from any thread with each report that differs from the last, soon: death, first progress and
        acknowledgements at once where the platform tells, within its polling interval where it doesn't; further
        progress every few seconds. One sink; a second call replaces it.
        """

    def rendezvous(self, job_id: str, generation: int, nodes: Sequence[str]) -> Rendezvous:
        """Where the ranks of this generation are to meet; free to use, and different for each generation."""

    def start(self, order: StartOrder) -> None:
        """Starts one instance on its node, with exactly its GPUs visible.

        `EngineRefusalError` when the node is unknown, lost, cordoned or has too few free GPUs;
        `StaleGenerationError` below the fence. Where a platform accepts first and fails later (a pod stays
        pending) the run is reported as ended.
        """

    def rejoin(self, order: StartOrder, previous: RunId) -> None:
        """The held process of `previous` becomes `order.run`, in place, meeting its gang at the new rendezvous.

        `previous` is then reported as ended with `REJOINED`. Only with `Capability.REJOIN`; `EngineRefusalError`
        when it is not held or its process is gone.
        """

    def request_checkpoint(self, run: RunId, request: CheckpointRequest) -> None:
        """Passes the request on; the answer comes as `RunReport.acknowledgement`. Of mode SESSION only.

        `EngineRefusalError` when the run has ended.
        """

    def resume(self, run: RunId) -> None:
        """A held run trains on where it was: its migration was called off. Does nothing to one that isn't held."""

    def stop(self, run: RunId, grace: float) -> None:
        """Asks it to end: the workload's signal (TERM but for mode SIGNAL), then KILL after `grace` seconds, to
        every process of the run.
        """

    def kill(self, run: RunId) -> None:
        """Ends every process of the run at once."""

    def forget(self, run: RunId) -> None:
        """Its end is in the journal: drop what is left of it, but for its log and its checkpoints."""

    def read_log(self, run: RunId, offset: int, limit: int) -> bytes:
        """Up to `limit` bytes of what the run printed, from `offset`; negative offsets count from the end.

        Works after the end of the run as long as the platform keeps it; `EngineRefusalError` when there is none.
        """

    def close(self) -> None:
        """Lets go of threads and connections. What runs, runs on."""


class ConsentingEngine(Engine, Protocol):
    """One on whose platform others have a say in moves: an engine with `Capability.CONSENT`."""

    def consent(self, run: RunId) -> None:
        """Refuses when somebody forbids now that this run's gang is disturbed. Does nothing else."""
