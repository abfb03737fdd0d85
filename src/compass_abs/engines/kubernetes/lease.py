"""One controller at a time: leadership by a Lease of coordination.k8s.io, as Kubernetes' own controllers do it.

Nobody's clock is compared with anybody else's: who waits takes over when the lease has not *changed* for as long as it
says it lasts, by its own clock. Who leads is sure of it only until a deadline that is earlier than that, counted from
before its latest successful renewal was sent. It asks `leads` before it acts, so that a process that slept through its
lease does nothing when it wakes up, even before its thread has noticed.
"""

import contextlib
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from compass_abs.engines.kubernetes.client import ApiError, Client, Object
from compass_abs.engines.protocol import EngineUnavailableError
from compass_abs.model import CompassError

#: Where a leader leaves word for the next one.
NOTE = "compass-abs/state"
_NOTE_TRIES = 20


def who_am_i() -> str:
    """A name that no other process has, now or later: two controllers of one name would both lead."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


class LeadershipLostError(EngineUnavailableError):
    """Another controller may be leading by now: nothing was done."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How long a lease lasts. The defaults are those of Kubernetes' own controllers."""

    #: Who waits takes over when nothing was heard of the leader for so long.
    duration: float = 15.0
    #: The leader stops acting when it has not renewed for so long: the difference is for what it has under way.
    deadline: float = 10.0
    #: Between two attempts.
    retry: float = 2.0

    @classmethod
    def lasting(cls, seconds: float) -> "Terms":
        """These proportions, for another duration."""
        return cls(seconds, seconds * 2 / 3, seconds * 2 / 15)

    def __post_init__(self) -> None:
        if not 0 < self.retry < self.deadline < self.duration:
            raise CompassError(
                f"lease: duration {self.duration:g} s, deadline {self.deadline:g} s, retry {self.retry:g} s; "
                "each must be longer than the next"
            )


class Leadership:
    """A claim to one lease. `acquire`, then act only while `leads`; `release` lets the next one in at once."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        name: str,
        identity: str,
        terms: Terms | None = None,
        lost: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.identity = identity
        self.terms = terms or Terms()
        self._client = client
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._name = name
        self._lost = lost
        self._clock = clock
        #: The lease as it was last seen, and when it last changed, by our clock.
        self._seen: tuple[object, ...] = ()
        self._changed = 0.0
        #: Until when we lead for certain.
        self._until = float("-inf")
        #: Who holds it, as far as is known.
        self.holder = ""
        #: Why nobody could be asked, the last time; empty when the server answered.
        self._silence = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)

    @property
    def leads(self) -> bool:
        """True while nobody else can lead."""
        return self._clock() < self._until

    def check(self) -> None:
        """Raises unless we lead."""
        if not self.leads:
            raise LeadershipLostError(f"{self.identity} does not hold lease {self._name!r} any more; it must not act")

    def acquire(self, stopped: threading.Event, waits: Callable[[str], None] = lambda why: None) -> bool:
        """Waits until we lead, then keeps the lease renewed; False when `stopped` was set first. `waits` hears why."""
        told = None
        while not stopped.is_set():
            if self.attempt():
                self._thread.start()
                return True
            why = self._silence or f"{self.holder or 'somebody'} leads"
            if why != told:
                told = why
                waits(why)
            stopped.wait(self.terms.retry)
        return False

    def attempt(self) -> bool:
        """Takes or renews the lease once; True when we hold it now."""
        began = self._clock()
        try:
            held = self._attempt()
            self._silence = ""
        except EngineUnavailableError as error:
            self._silence = str(error)
            return self.leads
        except ApiError as error:
            if error.conflict or error.not_found:  # somebody was faster
                return False
            raise
        if held:
            self._until = began + self.terms.deadline
            self.holder = self.identity
        return held

    def _attempt(self) -> bool:
        lease = self._client.find(f"{self._collection}/{self._name}")
        if lease is None:
            metadata = {"name": self._name, "labels": {"app.kubernetes.io/name": "compass-abs"}}
            body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
            self._client.create(self._collection, {**body, "spec": self._spec({})})
            return True
        spec: Object = lease.get("spec") or {}
        holder = str(spec.get("holderIdentity") or "")
        if holder != self.identity:
            self._until = float("-inf")
            self.holder = holder
            if holder and not self._expired(spec):
                return False
        # The server refuses it when anybody has written the lease since we read it.
        self._client.replace(f"{self._collection}/{self._name}", {**lease, "spec": self._spec(spec)})
        return True

    def _expired(self, spec: Object) -> bool:
        now = self._clock()
        record = tuple(spec.get(key) for key in ("holderIdentity", "renewTime", "acquireTime", "leaseTransitions"))
        if record != self._seen:
            self._seen, self._changed = record, now
        return now >= self._changed + float(spec.get("leaseDurationSeconds") or self.terms.duration)

    def _spec(self, before: Object) -> Object:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = before.get("holderIdentity") == self.identity
        transitions = int(before.get("leaseTransitions") or 0)
        found: dict[str, Any] = {
            **before,
            "holderIdentity": self.identity,
            # Whole seconds, and never less than we mean.
            "leaseDurationSeconds": max(1, -int(-self.terms.duration // 1)),
            "renewTime": now,
        }
        if not ours:
            found["acquireTime"] = now
            found["leaseTransitions"] = transitions + bool(before)
        return found

    def note(self) -> str:
        """What a leader before us has left at the lease; empty when nobody has."""
        lease = self._client.get(f"{self._collection}/{self._name}")
        return str((lease["metadata"].get("annotations") or {}).get(NOTE) or "")

    def write_note(self, text: str) -> None:
        """Leaves it for whoever leads next."""
        path = f"{self._collection}/{self._name}"
        for _ in range(_NOTE_TRIES):
            lease = self._client.get(path)
            annotations = lease["metadata"].setdefault("annotations", {})
            if annotations.get(NOTE) == text:
                return
            annotations[NOTE] = text
            self.check()
            try:
                self._client.replace(path, lease)
            except ApiError as error:
                if not error.conflict:
                    raise
                # Our own renewal came in between.
        raise EngineUnavailableError(f"lease {self._name!r} changes faster than it can be written")

    def _renew(self) -> None:
        while not self._stopping.wait(self.terms.retry):
            # A no (forbidden, say) won't get better by itself, but until the deadline we do lead.
            with contextlib.suppress(CompassError):
                self.attempt()
            if not self.leads:
                break
        if not self._stopping.is_set():
            self._until = float("-inf")
            self._lost()

    def release(self) -> None:
        """Stops acting, and lets whoever waits in at once."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(30.0)
        if not self.leads:
            return
        self._until = float("-inf")
        path = f"{self._collection}/{self._name}"
        try:
            lease = self._client.get(path)
            if (lease.get("spec") or {}).get("holderIdentity") == self.identity:
                spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
                self._client.replace(path, {**lease, "spec": spec})
        except CompassError:
            return  # it runs out by itself
