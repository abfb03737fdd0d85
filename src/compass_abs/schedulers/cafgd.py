"""CAFGD: FGD with a demand mix that depends on how long the job runs, and a short wait off the peak."""

from math import log10
from typing import Annotated, ClassVar

from compass_abs.model import ClusterState, Decision, Job, Verdict
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.demand import RecentDemand, most_popular, stranded, stranded_by_both
from compass_abs.schedulers.histogram import added, choose_by_growth, choose_empty
from compass_abs.schedulers.parameters import Within

# Constants of the public code (pkg/utils/predict.go, analysis/predict/my_predict.py).
_SHORT_JOB, _LONG_JOB = 500.0, 50_000.0
_LONG_WINDOW, _SHORT_WINDOW, _SHORTEST_WINDOW = 10_000, 400, 50
_POPULAR = 0.95

# The mixing weight is kept in whole units, so that F is a whole number and equal keys are exactly equal.
_UNIT = 1 << 20


def long_term_share(duration: float | None) -> float:
    """How much a job of this duration will see of the long-term demand, from 0 (short) to 1 (long or unknown)."""
    if duration is None or duration >= _LONG_JOB:
        return 1.0
    if duration < _SHORT_JOB:
        return 0.0
    return log10(duration / _SHORT_JOB) / log10(_LONG_JOB / _SHORT_JOB)


class ContextAwareFgd(Scheduler):
    """CAFGD: FGD's descent under the demand expected during the job's run; off the peak a job may wait a little.

    Short jobs are placed against the latest 400 submissions (50 for jobs under 500 s), long ones against the latest
    10,000, those between against a mix that is linear in the logarithm of the duration. Before 400 submissions it is
    best fit, as the original is: feed the days before through `submitted` for a warm start.

    Interpretation: the duration is the planned one (the original uses the true one and reports that errors within an
    order of magnitude matter little); jobs of unknown duration count as long. The mixing weight is cut at 1 (the
    original's Go code lets it reach 1.5, its Python code doesn't). Recency weights are uniform (an integer division
    in the original makes them so). A submission counts with all its instances.

    Interpretation: of wait-for-peak only the name is published. A job whose placement would add fragmentation waits,
    while less than `peak` of the GPUs are in use, until its placement adds none, the peak comes, or `wait` seconds
    (at most `patience` of its duration) have passed. `wait=0` turns it off.
    """

    name: ClassVar[str] = "cafgd"
    source: ClassVar[str] = "Lao et al., ICDCS'25, doi 10.1109/ICDCS63083.2025.00022; github.com/montaguelhz/CAFGD"

    def __init__(
        self,
        state: ClusterState,
        *,
        wait: Annotated[float, Within("longest wait for a better moment, in seconds", least=0)] = 60.0,
        patience: Annotated[float, Within("longest wait as a share of the job's duration", least=0)] = 0.02,
        peak: Annotated[float, Within("share of GPUs in use from which nobody waits", least=0, most=1)] = 0.8,
    ) -> None:
        super().__init__(state)
        self._wait, self._patience, self._peak = wait, patience, peak
        size = state.capacity
        self._recent = RecentDemand(size, (_LONG_WINDOW, _SHORT_WINDOW, _SHORTEST_WINDOW))
        _, self._short, self._shortest = self._recent.weights
        #: The long-term demand, its sum, and F under it.
        self._long = [0] * (size + 1)
        self._long_total = 0
        self._long_table = [0] * (size + 1)
        #: The latest other table, and the duration that it is for; None when a submission came since.
        self._table: list[int] = []
        self._table_for: float | None = None
        # A node costs more the emptier it gets beyond proportion: then the tightest fit is the steepest descent.
        self._tight = [-(free * free) for free in range(size + 1)]
        #: When each job that was held was first refused.
        self._held: dict[str, float] = {}
        self._free_off_peak = 0.0
        self.rebuild()

    def submitted(self, job: Job, situation: Situation) -> None:
        """Learns the demand."""
        if job.gpus > self.state.capacity:
            return
        recent = self._recent
        recent.note(job)
        self._table_for = None
        if recent.seen % (_SHORT_WINDOW if recent.seen <= _LONG_WINDOW else _LONG_WINDOW) == 0:
            self._long = most_popular(recent.weights[0], _POPULAR)
            self._long_total, self._long_table = sum(self._long), stranded(self._long)

    def table(self, duration: float | None) -> list[int]:
        """F(f), in some unit, under the demand that a job of this duration meets; best fit at first."""
        if self._recent.seen < _SHORT_WINDOW:
            return self._tight
        if duration is None or duration >= _LONG_JOB:
            return self._long_table
        # A job that waits is tried again and again under the same demand.
        if duration != self._table_for:
            self._table_for = duration
            self._table = self._mixed(duration)
        return self._table

    def _mixed(self, duration: float) -> list[int]:
        if duration < _SHORT_JOB:
            return stranded(self._shortest)
        share = round(long_term_share(duration) * _UNIT)
        short = self._short
        return stranded_by_both(self._long, share * sum(short), short, (_UNIT - share) * self._long_total)

    def admit(self, job: Job, situation: Situation) -> Decision:
        """Starts the job, unless waiting a little may spare the cluster some fragmentation."""
        state, gpus = self.state, job.gpus
        if gpus > state.capacity:
            state.check_job(job)
        if job.instances * job.gpus > state.free_gpus:
            return self.blocked(job)
        if gpus == state.capacity:
            # Whole nodes add no fragmentation, whatever the demand is: F is 0 on full and on empty ones.
            nodes = choose_empty(state, job.instances)
        else:
            table = self.table(job.duration)
            nodes = choose_by_growth(state, gpus, job.instances, table)
            off_peak = state.free_gpus > self._free_off_peak
            if nodes and off_peak and self._wait and table is not self._tight and added(state, gpus, nodes, table) > 0:
                until = self._hold_until(job, situation.now)
                if until > situation.now:
                    return self.refuse(job, Verdict.POLICY, "held: starting now would fragment the cluster", until)
        if nodes is None:
            return self.blocked(job)
        self._held.pop(job.id, None)
        state.place(job, nodes)
        return Decision(job, tuple(nodes))

    def rebuild(self) -> None:
        """Counts the GPUs anew: from how many free ones on it is off-peak."""
        total = self.state.available_nodes * self.state.capacity
        self._free_off_peak = total - self._peak * total

    def _hold_until(self, job: Job, now: float) -> float:
        """When the hold of a job that would add fragmentation ends."""
        limit = self._wait if job.duration is None else min(self._wait, self._patience * job.duration)
        return self._held.setdefault(job.id, now) + limit
