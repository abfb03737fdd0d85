"""The metrics of one simulation."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Summary:
    """What came out; times in seconds, shares from 0 to 1. `docs/simulator.md` defines each."""

    jobs: int
    finished: int
    #: Available nodes and GPUs at the end.
    nodes: int
    gpus: int
    events: int
    #: Average job completion time (AJCT) and percentiles: submission to end.
    ajct: float
    jct_p50: float
    jct_p95: float
    jct_p99: float
    #: Time in the queue, again after a lost node included.
    queueing_mean: float
    queueing_p50: float
    queueing_p95: float
    queueing_p99: float
    #: False once there were too many jobs to keep: percentiles are then right to one part in a thousand.
    percentiles_exact: bool
    service_mean: float
    #: Migration delay: pauses, and waiting for GPUs that are still being vacated.
    delay_mean: float
    #: Average fragmentation rate: SIF averaged over the time in which somebody waits; None where nobody ever does.
    afr: float | None
    #: Average GPU utilisation over the time in which somebody waits; None where nobody ever does.
    agu: float | None
    #: GPUs held over GPUs there were (on nodes that were not lost), over the whole horizon.
    utilisation: float
    #: How long somebody waited (|T_peak|).
    peak_seconds: float
    makespan: float
    #: Of `peak_seconds`: enough GPUs were free for the head; too few; or a rule of the scheduler held it.
    blocked_fragmentation: float
    #: Of `blocked_fragmentation`: some packing of the running jobs and the head existed on the available nodes.
    blocked_avoidable: float
    blocked_capacity: float
    blocked_policy: float
    #: Share of the horizon in which the workload composition condition held (ρ).
    wcc_coverage: float
    #: Most avoidable partial nodes at any time (N·SIF).
    max_n_sif: int
    #: Instances that changed nodes, and how often a gang paused for it.
    migrations: int
    migrations_per_job: float
    pauses: int
    #: How often a gang went back to the queue because its node was lost.
    requeues: int
    #: Delay × all GPUs of the gang.
    disrupted_gpu_seconds: float
    #: Work done twice, because a node was lost or a move restarted the gang.
    redone_gpu_seconds: float
    #: GPUs × time that gangs held them.
    delivered_gpu_seconds: float

    def as_dict(self) -> dict[str, float | None]:
        """Every metric by its name."""
        return asdict(self)

    def measured(self) -> dict[str, float]:
        """Every metric that has a value, by its name."""
        return {name: value for name, value in self.as_dict().items() if value is not None}
