"""What a workload asks for, by size; and FGD's measure of fragmentation under it."""

from collections import deque
from collections.abc import Sequence

from compass_abs.model import CompassError, Job
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.histogram import preference

WEEK = 7 * 86_400.0

# A distribution that is written by hand is kept in whole parts per million, so that equal keys are exactly equal.
_PARTS = 1_000_000


class MixError(CompassError):
    """A demand mix that can't be read."""


def parse_mix(text: str, capacity: int) -> list[int]:
    """Weights by size from `1:0.35,2:0.1,8:0.55`."""
    weights = [0] * (capacity + 1)
    for item in text.replace(" ", ",").split(","):
        if not item:
            continue
        size, _, share = item.partition(":")
        try:
            gpus, weight = int(size), float(share)
        except ValueError:
            raise MixError(f"demand mix {text!r}: {item!r} isn't size:weight, as in 1:0.35,2:0.1,8:0.55") from None
        if not 1 <= gpus <= capacity or not 0 <= weight < float("inf"):
            raise MixError(f"demand mix {text!r}: {item!r} needs a size from 1 to {capacity} and a weight ≥ 0")
        weights[gpus] += round(weight * _PARTS)
    if not any(weights):
        raise MixError(f"demand mix {text!r} has no positive weight")
    return weights


def stranded(weights: Sequence[int]) -> list[int]:
    """FGD's measure F(f) of a node with f free GPUs, times the sum of the weights.

    A node's idle GPUs are fragment for every task that doesn't fit on it: F(f) = f · Pr[demand > f]. With whole GPUs
    of one type this is `GetNodePodFrag` of FGD's simulator. Weights are whole numbers, so equal keys are exactly so.
    """
    table, larger = [0] * len(weights), 0
    for free in range(len(weights) - 1, -1, -1):
        table[free] = free * larger
        larger += weights[free]
    return table


def stranded_by_both(weights: Sequence[int], parts: int, others: Sequence[int], other_parts: int) -> list[int]:
    """`stranded` under a mix of two demands, each of so many parts."""
    table, larger = [0] * len(weights), 0
    for free in range(len(weights) - 1, -1, -1):
        table[free] = free * larger
        larger += parts * weights[free] + other_parts * others[free]
    return table


def descent(table: Sequence[int], gpus: int) -> tuple[int, ...]:
    """The free counts by ascending growth of F, the smaller on ties."""
    return preference(len(table) - 1, gpus, lambda free: table[free - gpus] - table[free])


class DemandHistory:
    """Submitted instances by size within a sliding window of time."""

    def __init__(self, capacity: int, window: float) -> None:
        self.weights = [0] * (capacity + 1)
        self.seen = 0
        self._window = window
        self._jobs: deque[tuple[float, int, int]] = deque()

    def note(self, job: Job) -> None:
        """Counts a submission and forgets those that are older than the window."""
        jobs, weights = self._jobs, self.weights
        weights[job.gpus] += job.instances
        self.seen += 1
        jobs.append((job.submitted, job.gpus, job.instances))
        horizon = job.submitted - self._window
        while jobs[0][0] < horizon:
            _, gpus, instances = jobs.popleft()
            weights[gpus] -= instances


class RecentDemand:
    """Submitted instances by size among the latest submissions, for several lengths of memory at once."""

    def __init__(self, capacity: int, lengths: Sequence[int]) -> None:
        #: Per length, longest first.
        self.weights = [[0] * (capacity + 1) for _ in lengths]
        self.seen = 0
        lengths = sorted(lengths, reverse=True)
        self._windows = tuple(zip(lengths, self.weights, strict=True))
        self._jobs = [(0, 0)] * lengths[0]
        self._known: dict[tuple[int, int], tuple[int, int]] = {}

    def note(self, job: Job) -> None:
        """Counts a submission, and forgets for each length the one that falls out of it."""
        jobs, seen, new = self._jobs, self.seen, (job.gpus, job.instances)
        # Equal ones share an object: what fell out of a long memory is then still in a cache of the processor.
        new = self._known.setdefault(new, new)
        size = len(jobs)
        for length, weights in self._windows:
            old = jobs[(seen - length) % size]
            if old is not new:
                weights[old[0]] -= old[1]
                weights[new[0]] += new[1]
        jobs[seen % size] = new
        self.seen = seen + 1


class PendingDemand:
    """Waiting instances by size, kept up from what a scheduler is told and checked against the queue's length."""

    def __init__(self, capacity: int) -> None:
        self.weights = [0] * (capacity + 1)
        self._count = 0

    def joined(self, job: Job) -> None:
        """A job was submitted."""
        self.weights[job.gpus] += job.instances
        self._count += 1

    def left(self, job: Job) -> None:
        """A job was started."""
        self.weights[job.gpus] -= job.instances
        self._count -= 1

    def agree(self, situation: Situation) -> bool:
        """Counts anew when somebody was cancelled, came back, or was submitted before this began; True if so."""
        if self._count == len(situation.waiting):
            return False
        self.weights = [0] * len(self.weights)
        self._count = len(situation.waiting)
        for job in situation.waiting:
            if job.gpus < len(self.weights):
                self.weights[job.gpus] += job.instances
        return True


def most_popular(weights: Sequence[int], share: float) -> list[int]:
    """The weights of the most popular sizes that together make up the share; the others count as nothing."""
    wanted, taken = share * sum(weights), 0
    kept = [0] * len(weights)
    for gpus in sorted(range(len(weights)), key=lambda size: (-weights[size], size)):
        if taken >= wanted:
            break
        kept[gpus] = weights[gpus]
        taken += weights[gpus]
    return kept
