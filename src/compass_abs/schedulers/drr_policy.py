"""DRR's policy network: what it sees of the cluster, and the free-count class on which it puts the next instance."""

from collections.abc import Sequence
from functools import cache
from math import log2, log10
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from compass_abs.fragmentation import inherent
from compass_abs.model import ClusterState, CompassError, Job

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

#: The network was built for nodes of this size.
CAPACITY = 8
#: Width of what it sees, of its two hidden layers, and the classes it chooses among (0 to 8 free GPUs).
FEATURES, HIDDEN, CLASSES = 39, 64, CAPACITY + 1
#: Seeds whose weights ship with the package.
SEEDS = (1, 2, 3)


class Policy(Protocol):
    """Chooses where the next instance goes."""

    def choose(self, view: "View") -> int:
        """The number of free GPUs of the node to take, among those that exist and suffice."""
        ...


class View:
    """What a policy sees of a job and the cluster; the cluster's part follows the placements of the gang."""

    __slots__ = ("_demand", "_fixed", "_nodes", "gpus", "histogram", "now")

    def __init__(
        self,
        state: ClusterState,
        histogram: list[int],
        job: Job,
        now: float,
        queue: int,
        pending: Sequence[int],
        recent: Sequence[int],
    ) -> None:
        self.histogram = histogram
        self.gpus = job.gpus
        self.now = now
        self._nodes = sum(histogram) or 1
        self._demand = list(state.demand)
        waiting, arrived = sum(pending) or 1, sum(recent) or 1
        self._fixed = [
            *(float(size == job.gpus) for size in range(1, CLASSES)),
            log2(job.instances),
            log10(job.duration) if job.duration and job.duration > 1 else 0.0,
            log10(1 + queue),
            *(count / waiting for count in pending[1:]),
            *(count / arrived for count in recent[1:]),
        ]

    def placed(self) -> None:
        """One more instance of the job was put somewhere; `histogram` says so already."""
        self._demand[self.gpus] += 1

    @property
    def stranded(self) -> float:
        """FR, DRR's fragmentation rate: the share of idle GPUs that lie on partial nodes."""
        return free_on_partial(self.histogram)

    def features(self) -> list[float]:
        """Everything, in the order in which the network was trained."""
        histogram, nodes = self.histogram, self._nodes
        free = sum(f * count for f, count in enumerate(histogram))
        partial = sum(histogram[1:-1])
        avoidable = partial - inherent(self._demand, CAPACITY) if partial > 1 else 0
        return [
            *(count / nodes for count in histogram),
            *self._fixed,
            1 - free / (nodes * CAPACITY),
            avoidable / nodes,
            free_on_partial(histogram),
        ]

    def allowed(self) -> list[bool]:
        """Which classes exist and hold the instance."""
        gpus = self.gpus
        return [free >= gpus and count > 0 for free, count in enumerate(self.histogram)]


def free_on_partial(histogram: Sequence[int]) -> float:
    """The share of idle GPUs that lie on nodes which are neither full nor empty."""
    free = sum(f * count for f, count in enumerate(histogram))
    on_empty = (len(histogram) - 1) * histogram[-1]
    return (free - on_empty) / free if free else 0.0


class BestFitPolicy:
    """The heuristic that the network imitates first: the smallest class that suffices."""

    def choose(self, view: View) -> int:
        """The tightest fit."""
        return view.allowed().index(True)


class Network:
    """Two hidden layers of tanh; numpy is all it needs."""

    __slots__ = ("layers",)

    def __init__(self, layers: "list[tuple[Array, Array]]") -> None:
        self.layers = layers

    def forward(self, x: "Array") -> "Array":
        """The output for one input or a batch of them."""
        import numpy as np

        *hidden, (weights, bias) = self.layers
        for w, b in hidden:
            x = np.tanh(x @ w + b)
        out: Array = x @ weights + bias
        return out


class NetworkPolicy:
    """The actor, at its most likely choice."""

    def __init__(self, actor: Network) -> None:
        self.actor = actor

    def choose(self, view: View) -> int:
        """The allowed class of the highest score; the smallest on ties."""
        import numpy as np

        scores = self.actor.forward(np.array(view.features()))
        scores[~np.array(view.allowed())] = -np.inf
        return int(scores.argmax())


def save(actor: Network, path: Path) -> None:
    """Writes the actor's weights, as 32-bit floats."""
    import numpy as np

    arrays = {
        f"{kind}{k}": a.astype(np.float32)
        for k, pair in enumerate(actor.layers)
        for kind, a in zip("wb", pair, strict=True)
    }
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def load(path: Path) -> Network:
    """Reads weights that `save` wrote."""
    import numpy as np

    try:
        with np.load(path, allow_pickle=False) as stored:
            layers = [(stored[f"w{k}"].astype(np.float64), stored[f"b{k}"].astype(np.float64)) for k in range(3)]
    except (OSError, KeyError, ValueError) as error:
        raise CompassError(
            f"{path} holds no weights of DRR's policy ({error}); `compass train-drr` writes them"
        ) from error
    if layers[0][0].shape != (FEATURES, HIDDEN) or layers[2][0].shape != (HIDDEN, CLASSES):
        shape = layers[0][0].shape[0], layers[2][0].shape[1]
        raise CompassError(f"{path} holds a network of {shape} inputs and outputs, expected {(FEATURES, CLASSES)}")
    return Network(layers)


def shipped(seed: int) -> Path:
    """The weights of one seed that ship with the package."""
    return Path(__file__).with_name("drr_weights") / f"seed{seed}.npz"


@cache
def shipped_policy(seed: int) -> NetworkPolicy:
    """The policy that `compass train-drr` made of this seed."""
    return NetworkPolicy(load(shipped(seed)))
