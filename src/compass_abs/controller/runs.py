"""What is known of the runs of each job, and which GPUs they physically hold."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from compass_abs.engines.protocol import Acknowledgement, Progress, RunId, RunPhase, RunReport

_ORDER = {RunPhase.PENDING: 0, RunPhase.RUNNING: 1, RunPhase.ENDED: 2}


@dataclass(slots=True)
class View:
    """A run: what the engine last said of it, or that it was told to start it."""

    run: RunId
    node: str
    report: RunReport | None = None
    #: Number of the latest call about its start that has returned; -1 while one is under way.
    ticket: int = -1
    #: True once the call that starts it has returned: then its absence means that it is gone.
    accepted: bool = False

    @property
    def phase(self) -> RunPhase:
        """Its phase, pending while the engine has said nothing."""
        return self.report.phase if self.report is not None else RunPhase.PENDING

    @property
    def ended(self) -> bool:
        """True when its processes are known to be gone."""
        return self.report is not None and self.report.phase is RunPhase.ENDED

    @property
    def acknowledgement(self) -> Acknowledgement | None:
        """Its latest answer to a checkpoint request."""
        return self.report.acknowledgement if self.report is not None else None

    @property
    def progress(self) -> Progress | None:
        """How far its training is."""
        return self.report.progress if self.report is not None else None

    @property
    def trains(self) -> bool:
        """True when it has done a step since it started."""
        progress = self.progress
        return progress is not None and progress.step > max(progress.resumed_at, 0)


def newer(old: RunReport | None, new: RunReport) -> bool:
    """True unless the new report is of an earlier phase: watches may repeat what is past."""
    return old is None or _ORDER[new.phase] >= _ORDER[old.phase]


@dataclass(slots=True)
class Gang:
    """Every run of one job that isn't forgotten, old generations included."""

    views: dict[RunId, View] = field(default_factory=dict)

    def generation(self, generation: int) -> list[View]:
        """The runs of one generation, by number."""
        return sorted(
            (view for view in self.views.values() if view.run.generation == generation), key=lambda view: view.run
        )

    def furthest(self) -> int:
        """Steps that the latest generation has done, as far as it said."""
        latest = max((run.generation for run in self.views), default=0)
        return max((view.progress.step for view in self.generation(latest) if view.progress is not None), default=0)

    def __iter__(self) -> Iterator[View]:
        return iter(list(self.views.values()))


class Occupancy:
    """GPUs of each node that are held by runs, alive or about to be."""

    def __init__(self) -> None:
        self._capacity: dict[str, int] = {}
        self._held: dict[str, dict[RunId, int]] = {}
        self._used: dict[str, int] = {}
        self._where: dict[RunId, str] = {}

    def set_capacity(self, node: str, gpus: int) -> None:
        """A node has this many GPUs."""
        self._capacity[node] = gpus
        self._held.setdefault(node, {})
        self._used.setdefault(node, 0)

    def hold(self, run: RunId, node: str, gpus: int) -> None:
        """A run holds, or is about to hold, GPUs of a node. A second call moves it."""
        self.release(run)
        self._held.setdefault(node, {})[run] = gpus
        self._used[node] = self._used.get(node, 0) + gpus
        self._where[run] = node

    def release(self, run: RunId) -> None:
        """A run holds nothing any more."""
        node = self._where.pop(run, None)
        if node is not None:
            self._used[node] -= self._held[node].pop(run)

    def holds(self, run: RunId) -> bool:
        """True while GPUs are kept for this run."""
        return run in self._where

    def free(self, node: str) -> int:
        """GPUs of a node that nobody holds."""
        return self._capacity.get(node, 0) - self._used.get(node, 0)

    def has_room(self, nodes: Iterable[str], gpus: int) -> bool:
        """True when one more instance fits on each of these nodes, counted as often as it is named."""
        wanted: dict[str, int] = {}
        for node in nodes:
            wanted[node] = wanted.get(node, 0) + gpus
        return all(self.free(node) >= amount for node, amount in wanted.items())

    def on(self, node: str) -> dict[RunId, int]:
        """Who holds how many GPUs of a node."""
        return dict(self._held.get(node, {}))
