"""Events on pods, as `kubectl describe pod` shows them: one for each reason, counted up, no more than anybody reads."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from compass_abs.engines.kubernetes.client import ApiError, Client, Object
from compass_abs.model import CompassError

#: The same words about the same pod are said again after this long: servers drop an event after an hour.
_AGAIN = 900.0
#: Other words for the same reason wait this long: free GPUs change from second to second.
_OTHER_WORDS = 30.0
#: Events of one second, and how many may come at once: Kubernetes' own scheduler is held to about as many.
_RATE, _BURST = 10.0, 50.0
#: The server's limit, in characters.
_LONGEST = 1000


class Subject(NamedTuple):
    """The pod that an event is about."""

    namespace: str
    name: str
    uid: str


class Weight(StrEnum):
    """What kubectl calls an event's type."""

    NORMAL = "Normal"
    WARNING = "Warning"


@dataclass(slots=True)
class _Said:
    reason: str
    message: str
    time: float


class EventWriter:
    """Says things about pods. Not thread-safe. What isn't said for want of room has to be said again by the caller."""

    def __init__(
        self,
        client: Client,
        instance: str,
        clock: Callable[[], float] = time.monotonic,
        component: str = "compass-abs",
    ) -> None:
        self._client = client
        self._source = {"component": component}
        self._reporter = {"reportingComponent": component, "reportingInstance": instance[:128]}
        self._clock = clock
        self._said: dict[Subject, _Said] = {}
        self._tokens, self._filled = _BURST, clock()
        #: Events that were written, and those that were left unsaid because there were too many.
        self.written = self.dropped = 0

    def say(self, subject: Subject, reason: str, message: str, weight: Weight = Weight.NORMAL) -> bool:
        """Makes an event, or counts up the one there is; False when it isn't time yet, or the server won't have it."""
        message = message if len(message) <= _LONGEST else message[: _LONGEST - 1] + "…"
        now, last = self._clock(), self._said.get(subject)
        if last is not None and last.reason == reason:
            wait = _AGAIN if last.message == message else _OTHER_WORDS
            if now < last.time + wait:
                return False
        if not self._may():
            self.dropped += 1
            return False
        try:
            self._write(subject, reason, message, weight)
        except CompassError:
            # Events are a courtesy: the pod may be gone, or the server busy.
            return False
        self._said[subject] = _Said(reason, message, now)
        self.written += 1
        return True

    def forget(self, keep: Callable[[Subject], bool]) -> None:
        """Drops what is remembered of pods that nobody speaks of any more."""
        self._said = {subject: said for subject, said in self._said.items() if keep(subject)}

    def _may(self) -> bool:
        now = self._clock()
        self._tokens = min(_BURST, self._tokens + (now - self._filled) * _RATE)
        self._filled = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _write(self, subject: Subject, reason: str, message: str, weight: Weight) -> None:
        # Its name follows from what it is about, so that a controller that restarts goes on counting.
        mark = sha256(f"{subject.uid} {reason}".encode()).hexdigest()[:16]
        collection, name = f"/api/v1/namespaces/{subject.namespace}/events", f"{subject.name[:200]}.{mark}"
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event: Object = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": subject.namespace},
            "involvedObject": {"apiVersion": "v1", "kind": "Pod", **subject._asdict()},
            "reason": reason,
            "message": message,
            "type": weight.value,
            "source": self._source,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            **self._reporter,
        }
        try:
            self._client.create(collection, event)
        except ApiError as error:
            if not error.conflict:
                raise
            known = self._client.get(f"{collection}/{name}")
            count = int(known.get("count") or 1) + 1
            self._client.patch(f"{collection}/{name}", {"message": message, "lastTimestamp": now, "count": count})
