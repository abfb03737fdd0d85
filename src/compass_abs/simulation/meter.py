"""The metrics of section 5.5 of the paper, and what people ask besides, accumulated while time passes."""

from compass_abs.fragmentation import inherent, slot_width
from compass_abs.fragmentation.levels import fits_repacked
from compass_abs.model import ClusterState, Job, NodeStatus, Verdict
from compass_abs.simulation.clock import SECOND
from compass_abs.simulation.job_record import JobRecord
from compass_abs.simulation.quantiles import Quantiles
from compass_abs.simulation.summary import Summary


class Meter:
    """Integrals over time in whole microseconds, in memory that doesn't grow with the trace."""

    __slots__ = (
        "_afr",
        "_agu",
        "_available",
        "_blocked_avoidable",
        "_blocked_capacity",
        "_blocked_fragmentation",
        "_blocked_policy",
        "_busy_area",
        "_capacity",
        "_delay",
        "_delivered",
        "_disrupted",
        "_fillers",
        "_finished",
        "_first",
        "_gpus",
        "_jct",
        "_last",
        "_max_avoidable",
        "_migrations",
        "_pauses",
        "_peak",
        "_queueing",
        "_redone",
        "_requeues",
        "_service",
        "_sif_area",
        "_state",
        "_total",
        "_used_area",
        "_wcc",
        "avoidable",
        "blocked",
        "installed",
        "margin",
        "nodes",
        "partial",
    )

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._capacity = state.capacity
        # `wcc_margin`, unrolled: it is asked for at every event.
        self._fillers = [(g, slot_width(g) - g) for g in range(2, state.capacity + 1) if slot_width(g) > g]
        self.nodes = state.available_nodes
        self._gpus = self.nodes * state.capacity
        #: GPUs of all nodes but the lost ones: cordoned nodes get nothing new, but what they hold is in use.
        self.installed = _installed(state)
        #: What the latest interval showed: partial nodes, N·SIF, and the margin of the composition condition.
        self.partial = self.avoidable = self.margin = 0
        #: Why the head waited during it; None when nobody did.
        self.blocked: Verdict | None = None
        self._total = self._peak = self._wcc = self._busy_area = self._available = 0
        # Areas since the number of nodes last changed; divided by it, they go to `_afr` and `_agu`.
        self._sif_area = self._used_area = 0
        self._afr = self._agu = 0.0
        self._blocked_capacity = self._blocked_fragmentation = self._blocked_policy = self._blocked_avoidable = 0
        self._max_avoidable = 0
        self._first = self._last = -1
        self._jct, self._queueing = Quantiles(), Quantiles()
        self._finished = self._migrations = self._pauses = self._requeues = 0
        self._service = self._delay = self._redone = self._delivered = self._disrupted = 0

    # ---- time

    def interval(self, span: int, busy: int, head: Job | None, held: bool) -> None:
        """`span` microseconds have passed in which nothing changed: `busy` GPUs at work, `head` first in the queue."""
        state = self._state
        demand = state.demand
        free = state.free_gpus
        margin = demand[1]
        for gpus, fillers in self._fillers:
            margin -= fillers * demand[gpus]
        self.margin = margin
        partial = self.partial = state.partial_nodes
        if partial < 2:
            # A single partial node is there because the used GPUs don't fill whole nodes: no packing avoids that.
            avoidable = 0
        elif margin >= 0:
            avoidable = partial - (free % self._capacity > 0)
        else:
            avoidable = partial - inherent(demand, self._capacity)
        self.avoidable = avoidable
        if avoidable > self._max_avoidable:
            self._max_avoidable = avoidable
        self._total += span
        self._busy_area += span * busy
        self._available += span * self.installed
        if margin >= 0:
            self._wcc += span
        if head is None:
            self.blocked = None
        else:
            self._peak += span
            self._sif_area += span * avoidable
            # The bound keeps gangs whose GPUs were lost: fewer than none are free then.
            self._used_area += span * (self._gpus - free if free > 0 else self._gpus)
            if held:
                self.blocked = Verdict.POLICY
                self._blocked_policy += span
            elif free >= head.total_gpus:
                self.blocked = Verdict.FRAGMENTATION
                self._blocked_fragmentation += span
                if self._could_fit(head):
                    self._blocked_avoidable += span
            else:
                self.blocked = Verdict.CAPACITY
                self._blocked_capacity += span

    def _could_fit(self, job: Job) -> bool:
        """Whether some packing of what runs and this job fits the nodes."""
        return fits_repacked(self._state, job)

    def nodes_changed(self) -> None:
        """The number of available nodes is another one from now on."""
        self._settle()
        self.nodes = self._state.available_nodes
        self._gpus = self.nodes * self._capacity
        self.installed = _installed(self._state)

    def _settle(self) -> None:
        if self.nodes:
            self._afr += self._sif_area / self.nodes
            self._agu += self._used_area / self._gpus
        self._sif_area = self._used_area = 0

    # ---- jobs

    def submitted(self, now: int) -> None:
        """A job was submitted."""
        if self._first < 0:
            self._first = now

    def moved(self, instances: int) -> None:
        """Instances changed nodes."""
        self._migrations += instances

    def finished(self, record: JobRecord, now: int) -> None:
        """A job has ended."""
        gpus = record.job.total_gpus
        self._finished += 1
        self._last = now
        self._jct.add(now - record.submitted)
        self._queueing.add(record.queueing)
        self._service += record.service
        self._delay += record.delay
        self._redone += record.redone * gpus
        self._pauses += record.pauses
        self._requeues += record.requeues
        self._disrupted += record.delay * gpus
        self._delivered += (record.service + record.delay + record.redone) * gpus

    # ---- the end

    def summary(self, events: int, submitted: int) -> Summary:
        """Everything, in seconds and shares."""
        self._settle()
        finished, peak, total = self._finished, self._peak, self._total
        jct, queueing = self._jct, self._queueing
        return Summary(
            jobs=submitted,
            finished=finished,
            nodes=self.nodes,
            gpus=self._gpus,
            events=events,
            ajct=jct.mean() / SECOND,
            jct_p50=jct.percentile(0.5) / SECOND,
            jct_p95=jct.percentile(0.95) / SECOND,
            jct_p99=jct.percentile(0.99) / SECOND,
            queueing_mean=queueing.mean() / SECOND,
            queueing_p50=queueing.percentile(0.5) / SECOND,
            queueing_p95=queueing.percentile(0.95) / SECOND,
            queueing_p99=queueing.percentile(0.99) / SECOND,
            percentiles_exact=jct.exact,
            service_mean=self._service / finished / SECOND if finished else 0.0,
            delay_mean=self._delay / finished / SECOND if finished else 0.0,
            afr=self._afr / peak if peak else None,
            agu=self._agu / peak if peak else None,
            utilisation=min(1.0, self._busy_area / self._available) if self._available else 0.0,
            peak_seconds=peak / SECOND,
            makespan=(self._last - self._first) / SECOND if finished else 0.0,
            blocked_fragmentation=self._blocked_fragmentation / SECOND,
            blocked_avoidable=self._blocked_avoidable / SECOND,
            blocked_capacity=self._blocked_capacity / SECOND,
            blocked_policy=self._blocked_policy / SECOND,
            wcc_coverage=self._wcc / total if total else 1.0,
            max_n_sif=self._max_avoidable,
            migrations=self._migrations,
            migrations_per_job=self._migrations / finished if finished else 0.0,
            pauses=self._pauses,
            requeues=self._requeues,
            disrupted_gpu_seconds=self._disrupted / SECOND,
            redone_gpu_seconds=self._redone / SECOND,
            delivered_gpu_seconds=self._delivered / SECOND,
        )

    @property
    def busy_area(self) -> int:
        """GPU-microseconds during which some gang held a GPU."""
        return self._busy_area

    @property
    def delivered(self) -> int:
        """GPU-microseconds of the jobs that have finished."""
        return self._delivered


def _installed(state: ClusterState) -> int:
    return state.capacity * sum(node.status is not NodeStatus.LOST for node in state.nodes)
