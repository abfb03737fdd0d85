"""Leadership by a Lease, on a manual clock and a shelf of one lease; on a real server: test_kubernetes_operations."""

import threading
from typing import Any

import pytest

from compass_abs.engines.kubernetes.client import ApiError
from compass_abs.engines.kubernetes.lease import Leadership, LeadershipLostError, Terms
from compass_abs.engines.protocol import EngineUnavailableError
from compass_abs.model import CompassError


class Shelf:
    """The API server's part: one lease, with optimistic locking; it may be silent."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0
        self.silent = False

    def find(self, path: str) -> dict[str, Any] | None:
        self._answer()
        return self.lease

    get = find

    def create(self, path: str, body: dict[str, Any]) -> None:
        self._answer()
        if self.lease is not None:
            raise ApiError(409, "AlreadyExists", path)
        self._put(body)

    def replace(self, path: str, body: dict[str, Any]) -> None:
        self._answer()
        if body["metadata"]["resourceVersion"] != str(self.version):
            raise ApiError(409, "Conflict", path)
        self._put(body)

    def _put(self, body: dict[str, Any]) -> None:
        self.version += 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}

    def _answer(self) -> None:
        if self.silent:
            raise EngineUnavailableError("silence")


class Hall:
    """A shelf, a clock, and claims to the lease."""

    def __init__(self) -> None:
        self.shelf, self.now = Shelf(), 0.0

    def claim(self, who: str) -> Leadership:
        return Leadership(self.shelf, "ns", "compass", who, Terms(15, 10, 2), clock=lambda: self.now)  # type: ignore[arg-type]

    def spec(self) -> dict[str, Any]:
        assert self.shelf.lease is not None
        return dict(self.shelf.lease["spec"])


def test_second_controller_waits_while_the_first_renews() -> None:
    hall = Hall()
    first, second = hall.claim("a"), hall.claim("b")
    assert first.attempt()
    for _ in range(20):
        hall.now += 2
        assert first.attempt()
        assert not second.attempt()
        assert first.leads
        assert not second.leads
    assert second.holder == "a"
    assert (hall.spec()["holderIdentity"], hall.spec()["leaseTransitions"]) == ("a", 0)


def test_lease_that_runs_out_is_taken_over_after_its_duration_and_not_before() -> None:
    hall = Hall()
    first, second = hall.claim("a"), hall.claim("b")
    first.attempt()
    hall.now = 3.0
    assert not second.attempt()
    # Second saw it at 3: by its clock it may have been renewed just then.
    hall.now = 17.9
    assert not second.attempt()
    hall.now = 18.0
    assert second.attempt()
    assert (hall.spec()["holderIdentity"], hall.spec()["leaseTransitions"]) == ("b", 1)


def test_never_do_two_lead_whatever_is_silent() -> None:
    hall = Hall()
    first, second = hall.claim("a"), hall.claim("b")
    first.attempt()
    for tick in range(400):
        hall.now += 0.25
        hall.shelf.silent = 40 <= tick % 130 < 125
        if tick % 8 == 0:
            first.attempt()
        hall.shelf.silent = tick % 130 < 20
        if tick % 8 == 4:
            second.attempt()
        assert not (first.leads and second.leads)
    assert hall.spec()["leaseTransitions"] >= 1


def test_leader_that_can_not_renew_stops_acting_before_another_may_begin() -> None:
    hall = Hall()
    first, second = hall.claim("a"), hall.claim("b")
    first.attempt()
    second.attempt()
    hall.shelf.silent = True
    hall.now = 9.9
    assert first.attempt()
    hall.now = 10.0
    assert not first.attempt()
    with pytest.raises(LeadershipLostError, match="'compass' any more"):
        first.check()
    hall.shelf.silent = False
    assert not second.attempt()


def test_leader_that_was_asleep_finds_its_successor_and_does_nothing() -> None:
    hall = Hall()
    first, second = hall.claim("a"), hall.claim("b")
    first.attempt()
    second.attempt()
    hall.now = 20.0
    assert not first.leads
    assert second.attempt()
    assert not first.attempt()
    assert first.holder == "b"


def test_writer_of_a_lease_that_changed_meanwhile_is_refused() -> None:
    hall = Hall()
    first, second = hall.claim("a"), hall.claim("b")
    first.attempt()
    second.attempt()
    hall.now = 16.0
    read = dict(hall.shelf.lease or {})
    assert second.attempt()
    with pytest.raises(ApiError):
        hall.shelf.replace("lease", read)


def test_lease_that_was_released_is_taken_at_once() -> None:
    hall = Hall()
    first, second = hall.claim("a"), hall.claim("b")
    first.attempt()
    assert not second.attempt()
    first.release()
    assert not first.leads
    assert second.attempt()


def test_waiting_ends_when_it_is_told_to() -> None:
    hall = Hall()
    hall.claim("a").attempt()
    stopped, told = threading.Event(), []

    def waits(why: str) -> None:
        told.append(why)
        stopped.set()

    assert not hall.claim("b").acquire(stopped, waits)
    assert told == ["a leads"]


def test_server_that_does_not_answer_is_named_while_waiting() -> None:
    hall = Hall()
    claim, stopped, told = hall.claim("a"), threading.Event(), []

    def fails() -> bool:
        raise EngineUnavailableError("GET https://127.0.0.1:1: connection refused")

    claim._attempt = fails  # type: ignore[method-assign]

    def waits(why: str) -> None:
        told.append(why)
        stopped.set()

    assert not claim.acquire(stopped, waits)
    assert told == ["GET https://127.0.0.1:1: connection refused"]


@pytest.mark.parametrize("terms", [(10, 15, 2), (15, 10, 12), (15, 10, 0)])
def test_terms_that_can_not_work_are_refused(terms: tuple[float, float, float]) -> None:
    with pytest.raises(CompassError, match="longer than the next"):
        Terms(*terms)
