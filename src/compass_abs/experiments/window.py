"""A few hours of a day under the magnifying glass: what the case study of section 6.6 shows."""

from collections.abc import Sequence

from compass_abs.experiments.study import WindowSpec
from compass_abs.model import ClusterState, Job, Reason, Verdict
from compass_abs.simulation import Observer
from compass_abs.simulation.clock import SECOND
from compass_abs.simulation.job_record import JobRecord
from compass_abs.simulation.meter import Meter

_DAY = 86_400


class WindowMeter(Observer):
    """Time series and blocking within some hours of a day; hours count from the day's midnight."""

    def __init__(self, window: WindowSpec, day: int, state: ClusterState) -> None:
        midnight = (day - 1) * _DAY
        self._start = round((midnight + window.start * 3600) * SECOND)
        self._end = round((midnight + window.end * 3600) * SECOND)
        self._state = state
        self._head: Job | None = None
        self._heads: dict[str, Job] = {}
        self._blocked = dict.fromkeys(Verdict, 0)
        self._area = {"n_sif": 0, "utilisation": 0.0, "empty_nodes": 0}
        self._times: list[float] = []
        self._series: dict[str, list[float]] = {key: [] for key in (*self._area, "queue")}

    def started(self, now: int, record: JobRecord, nodes: Sequence[int]) -> None:
        self._head = None

    def finished(self, now: int, record: JobRecord) -> None:
        self._head = None

    def refused(self, now: int, job: Job, reason: Reason) -> None:
        """The first who is refused since anything changed is the head."""
        if self._head is None:
            self._head = job

    def passed(self, now: int, until: int, meter: Meter, busy: int, waiting: int) -> None:
        start, end = max(now, self._start), min(until, self._end)
        if start >= end:
            return
        span, gpus = end - start, meter.nodes * self._state.capacity
        values = {
            "n_sif": meter.avoidable,
            "utilisation": (gpus - self._state.free_gpus) / gpus if gpus else 0.0,
            "empty_nodes": self._state.empty_nodes,
        }
        for key, value in values.items():
            self._area[key] += value * span
            self._series[key].append(value)
        self._series["queue"].append(waiting)
        self._times.append(start / SECOND)
        if meter.blocked is not None:
            self._blocked[meter.blocked] += span
            if self._head is not None:
                self._heads[self._head.id] = self._head

    def summary(self) -> dict[str, float | None]:
        """Blocking in seconds, means over the window, and what the blocked heads asked for."""
        span = self._end - self._start
        blocked = sum(self._blocked.values())
        whole = [job for job in self._heads.values() if job.gpus == 8]
        found: dict[str, float | None] = {f"window_{key}": area / span for key, area in self._area.items()}
        found |= {f"window_blocked_{verdict}": time / SECOND for verdict, time in self._blocked.items()}
        found["window_blocked"] = blocked / SECOND
        found["window_fragmentation_share"] = self._blocked[Verdict.FRAGMENTATION] / blocked if blocked else None
        found["window_heads_of_8"] = len(whole) / len(self._heads) if self._heads else None
        found["window_max_n_sif"] = max(self._series["n_sif"], default=0)
        return found

    def series(self) -> dict[str, list[float]]:
        """Steps within the window; `times` in seconds of the trace."""
        return {"times": self._times, **self._series}
