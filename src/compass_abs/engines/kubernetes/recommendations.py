"""Moves that are computed and not made, as objects: `kubectl get recommendations`."""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from hashlib import sha256

from compass_abs.engines.kubernetes.client import ApiError, Client, Object

#: As in deploy/kubernetes/base/recommendations.yaml.
GROUP, VERSION, PLURAL = "scheduling.compass-abs", "v1alpha1", "recommendations"
#: For a cluster that doesn't have the resource.
MISSING = "the cluster has no resource Recommendation: kubectl apply -k deploy/kubernetes/base adds it"
#: How often an object that is still true is said to be; one that wasn't for long belongs to a controller that is gone.
_CONFIRM = 60.0
#: Moves that an object lists; all of them are counted.
_MOST_MOVES = 500


@dataclass(frozen=True, slots=True)
class RecommendedMove:
    """One instance."""

    job: str
    instance: int
    gpus: int
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Moves that belong together, what they would be good for, and what they would cost."""

    name: str
    pool: str
    #: Why it is recommended, in a sentence.
    why: str
    #: Jobs that would start.
    admits: tuple[str, ...]
    moves: tuple[RecommendedMove, ...]
    #: GPU-seconds that the moved jobs stand still.
    gpu_seconds: float

    def spec(self) -> Object:
        """As the custom resource has it."""
        jobs = tuple(dict.fromkeys(move.job for move in self.moves))
        moves = [asdict(move) for move in self.moves[:_MOST_MOVES]]
        for move in moves:
            move["from"], move["to"] = move.pop("source"), move.pop("target")
        return {
            "pool": self.pool,
            "why": self.why,
            "admits": list(self.admits),
            "moves": moves,
            "cost": {"moves": len(self.moves), "jobs": len(jobs), "gpuSeconds": round(self.gpu_seconds)},
        }


def object_name(pool: str, purpose: str) -> str:
    """Fit for an object's name, and different for each pool and purpose."""
    slug = re.sub(r"[^a-z0-9]+", "-", purpose.lower()).strip("-")[:50].strip("-")
    return f"{slug}-{sha256(f'{pool} {purpose}'.encode()).hexdigest()[:8]}"


class Board:
    """Keeps a namespace's Recommendations equal to what is recommended now. Not thread-safe."""

    def __init__(
        self, client: Client, namespace: str, identity: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._identity = identity
        self._clock = clock
        #: What is on the server, and when it was last confirmed; None until somebody has looked.
        self._known: dict[str, tuple[Object, float]] | None = None

    def publish(self, recommendations: Sequence[Recommendation]) -> bool:
        """Makes, changes and removes objects; False where the cluster doesn't know the resource."""
        path = self._client.path(GROUP, PLURAL, self._namespace)
        if path is None:
            self._client.forget_discovery()
            return False
        try:
            self._publish(path, {each.name: each.spec() for each in recommendations})
        except ApiError:
            # Somebody else has touched them: look again next time.
            self._known = None
            raise
        return True

    def _publish(self, path: str, wanted: dict[str, Object]) -> None:
        if self._known is None:
            items = self._client.list(path).items
            self._known = {each["metadata"]["name"]: (each.get("spec") or {}, float("-inf")) for each in items}
        for name in [name for name in self._known if name not in wanted]:
            self._client.delete(f"{path}/{name}")
            del self._known[name]
        for name, spec in wanted.items():
            known = self._known.get(name)
            if known is None:
                metadata = {"name": name, "namespace": self._namespace}
                body = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Recommendation", "metadata": metadata}
                self._client.create(path, {**body, "spec": spec})
            elif known[0] != spec:
                # Merging would leave fields that are gone; lists are replaced as a whole either way.
                self._client.patch(f"{path}/{name}", {"spec": spec})
            elif self._clock() < known[1] + _CONFIRM:
                continue
            now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            status = {"state": "Current", "confirmed": now, "by": self._identity}
            self._client.patch(f"{path}/{name}/status", {"status": status})
            self._known[name] = (spec, self._clock())
