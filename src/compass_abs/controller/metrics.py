"""What Prometheus is told. Labels take few values: never a job's name."""

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from compass_abs.controller.book import Book, JobPhase
from compass_abs.controller.reconcile import Controller
from compass_abs.controller.records import MigrationEnded
from compass_abs.controller.service import Event
from compass_abs.engines.protocol import NodeHealth
from compass_abs.fragmentation import sif, unusable_free_ratio, wcc_margin
from compass_abs.fragmentation.measures import avoidable_partial_nodes
from compass_abs.model import InvariantError, Verdict

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_PLAN_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)


class Metrics:
    """One registry, filled when it is asked for and as things happen."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self._sif = Gauge("compass_sif_ratio", "Avoidable share of partial nodes.", ["pool"], registry=registry)
        self._partial = Gauge("compass_partial_nodes", "Partial nodes.", ["pool", "kind"], registry=registry)
        self._empty = Gauge("compass_empty_nodes", "Nodes without an instance.", ["pool"], registry=registry)
        self._slots = Gauge(
            "compass_usable_slots", "Instances of a size that fit now.", ["pool", "gpus"], registry=registry
        )
        self._unusable = Gauge(
            "compass_unusable_free_ratio",
            "Share of free GPUs of no use to a size.",
            ["pool", "gpus"],
            registry=registry,
        )
        self._margin = Gauge("compass_wcc_margin", "Spare 1-GPU instances.", ["pool"], registry=registry)
        self._gpus = Gauge("compass_gpus", "GPUs by state.", ["pool", "state"], registry=registry)
        self._nodes = Gauge("compass_nodes", "Nodes by health.", ["health"], registry=registry)
        self._pending = Gauge("compass_pending_jobs", "Waiting jobs by what keeps them.", ["reason"], registry=registry)
        self._jobs = Gauge("compass_jobs", "Jobs by phase.", ["phase"], registry=registry)
        self._migrations = Counter(
            "compass_migrations", "Migrations.", ["class", "trigger", "outcome"], registry=registry
        )
        self._phase = Histogram(
            "compass_migration_seconds", "Phases of migrations.", ["phase"], buckets=_SECONDS, registry=registry
        )
        self._disrupted = Counter(
            "compass_disrupted_gpu_seconds", "GPU-seconds paused by migrations.", registry=registry
        )
        self._plan = Histogram(
            "compass_plan_seconds", "Scheduling decisions.", buckets=_PLAN_SECONDS, registry=registry
        )
        self._violations = Counter("compass_invariant_violations", "Invariants found broken.", registry=registry)
        self._exhausted = Counter(
            "compass_budget_exhausted", "Jobs kept waiting by a budget of moves.", registry=registry
        )
        self._over_budget: set[str] = set()

    def on_event(self, event: Event, book: Book) -> None:
        """Counts what has become durable, about jobs and migrations that may have begun under another controller."""
        record = event.record
        if isinstance(record, MigrationEnded):
            entry = book.jobs[record.job_id]
            past = next(each for each in reversed(entry.past) if each.id == record.migration_id)
            self._migrations.labels(_class(entry.job.gpus, past.cause), past.cause, past.outcome.value).inc()
            for phase, seconds in past.seconds.items():
                self._phase.labels(phase).observe(seconds)
            self._disrupted.inc(sum(past.seconds.values()) * entry.job.total_gpus)

    def look(self, c: Controller) -> None:
        """Counts what no record tells: jobs that a budget has begun to keep waiting."""
        over = {
            job_id
            for pool in c.pools.values()
            for job_id, reason in pool.reasons.items()
            if reason.verdict is Verdict.POLICY and reason.detail.startswith("budget")
        }
        self._exhausted.inc(len(over - self._over_budget))
        self._over_budget = over

    def render(self, c: Controller) -> bytes:
        """Everything in Prometheus's text format."""
        self.look(c)
        for seconds in c.decision_seconds:
            self._plan.observe(seconds)
        c.decision_seconds.clear()
        self._pending.clear()
        for pool in c.pools.values():
            self._render_pool(pool)
            for reason in ("fragmentation", "capacity", "policy"):
                self._pending.labels(reason)
            for job in pool.waiting:
                # One that wasn't tried waits because of those before it: that is the queue's policy.
                waiting = pool.reasons.get(job.id)
                self._pending.labels(waiting.verdict.value if waiting else Verdict.POLICY.value).inc()
            try:
                pool.scheduler.check_invariants()
            except InvariantError:
                self._violations.inc()
        for phase in JobPhase:
            self._jobs.labels(phase.value).set(c.book.counts[phase])
        for health in NodeHealth:
            self._nodes.labels(health.value).set(sum(report.health is health for report in c.health.values()))
        return generate_latest(self.registry)

    def _render_pool(self, pool: Any) -> None:
        state, name = pool.state, pool.name or "default"
        if not state.available_nodes:
            return
        avoidable = avoidable_partial_nodes(state)
        self._sif.labels(name).set(sif(state))
        self._partial.labels(name, "actual").set(state.partial_nodes)
        self._partial.labels(name, "inherent").set(state.partial_nodes - avoidable)
        self._empty.labels(name).set(state.empty_nodes)
        self._margin.labels(name).set(wcc_margin(state.demand, state.capacity))
        self._gpus.labels(name, "free").set(state.free_gpus)
        self._gpus.labels(name, "used").set(state.available_nodes * state.capacity - state.free_gpus)
        size = 1
        while size <= state.capacity:
            self._slots.labels(name, str(size)).set(state.room(size))
            self._unusable.labels(name, str(size)).set(unusable_free_ratio(state, size))
            size *= 2


def _class(gpus: int, cause: str) -> str:
    """The paper's classes of moves."""
    if cause in ("filler", "pool"):
        return cause
    if gpus == 1:
        return "pool"
    return "w2" if gpus == 2 else "w4" if gpus <= 4 else "panel"
