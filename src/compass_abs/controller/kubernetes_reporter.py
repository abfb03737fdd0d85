"""Tells a Kubernetes cluster what the controller thinks: events on the pods that wait, recommendations as objects."""

import threading
from collections.abc import Callable, Mapping, Sequence

import structlog

from compass_abs.controller.advice import Advice, PoolPicture, Waiting, advice, remedy, remedy_in_words
from compass_abs.controller.pool import Proposal
from compass_abs.controller.proposals import tidies
from compass_abs.controller.service import Service
from compass_abs.engines.kubernetes.events import EventWriter, Subject, Weight
from compass_abs.engines.kubernetes.recommendations import MISSING, Board, Recommendation, RecommendedMove, object_name
from compass_abs.model import CompassError, Verdict

#: Reasons of events, as `kubectl describe` shows them.
REASONS = {
    Verdict.CAPACITY: "WaitingForCapacity",
    Verdict.FRAGMENTATION: "WaitingForFragmentation",
    Verdict.POLICY: "WaitingForPolicy",
}
TURN, ADMITTED = "WaitingForTurn", "Admitted"
#: Plans that are sought in one round: each may take a second on a large cluster.
_PLANS = 3

PodsOf = Callable[[], Mapping[str, Sequence[Subject]]]


class Reporter:
    """A thread beside the controller. What it can't tell now it tells in a later round."""

    def __init__(
        self, service: Service, pods_of: PodsOf, events: EventWriter | None, board: Board | None, every: float = 2.0
    ) -> None:
        self._service = service
        self._pods_of = pods_of
        self._events = events
        self._board = board
        self._every = every
        self._log = structlog.get_logger("reporter")
        #: The picture that each remedy was found on, and its words.
        self._remedies: dict[str, tuple[PoolPicture, str]] = {}
        self._complaint = ""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        """Begins to tell."""
        self._thread.start()

    def close(self) -> None:
        """Stops."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(10.0)

    def _run(self) -> None:
        while not self._stopping.wait(self._every):
            try:
                self.round()
                self._complaint = ""
            except CompassError as error:
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    self._log.warning("can't report to the cluster", error=self._complaint)

    def round(self) -> None:
        """Tells what is true now."""
        found = self._service.ask(advice)
        if self._events is not None:
            self._tell(found, self._events)
        if self._board is not None and not self._board.publish(recommended(found)):
            raise CompassError(MISSING)

    def _tell(self, found: Advice, events: EventWriter) -> None:
        pods, plans = self._pods_of(), _PLANS
        subjects = {subject for each in pods.values() for subject in each}
        events.forget(subjects.__contains__)
        self._remedies = {job: each for job, each in self._remedies.items() if job in pods}
        for waiting in found.waiting:
            if waiting.job.id not in pods:
                continue
            reason, message = _reason(waiting), waiting.text
            if waiting.verdict in (Verdict.FRAGMENTATION, Verdict.POLICY) and not waiting.admitted:
                picture = found.pools[waiting.pool]
                if self._remedy(waiting, picture) is None and plans:
                    plans -= 1
                    words = remedy_in_words(remedy(picture.state(), waiting.job))
                    self._remedies[waiting.job.id] = (picture, words)
                message = f"{message}. What would help: {self._remedy(waiting, picture) or 'is being looked for'}"
            weight = Weight.NORMAL if reason in (TURN, ADMITTED) else Weight.WARNING
            for subject in pods[waiting.job.id]:
                events.say(subject, reason, message, weight)

    def _remedy(self, waiting: Waiting, picture: PoolPicture) -> str | None:
        """What was found for the same placements."""
        known = self._remedies.get(waiting.job.id)
        return known[1] if known is not None and known[0] == picture else None


def _reason(waiting: Waiting) -> str:
    if waiting.admitted:
        return ADMITTED
    return TURN if waiting.verdict is None else REASONS[waiting.verdict]


def recommended(found: Advice) -> list[Recommendation]:
    """The proposals, as the cluster is told."""
    return [_recommendation(found.pools[pool], proposal, cost) for pool, proposal, cost in found.proposals]


def _recommendation(pool: PoolPicture, proposal: Proposal, cost: float) -> Recommendation:
    moves = tuple(
        RecommendedMove(
            move.instance.job_id,
            move.instance.number,
            move.gpus,
            pool.nodes[move.source][0],
            pool.nodes[move.target][0],
        )
        for move in proposal.moves
    )
    purpose, _, subject = proposal.trigger.partition(" ")
    if tidies(proposal):
        return Recommendation(object_name(pool.name, "tidy"), pool.name, "fewer nodes partly filled", (), moves, cost)
    starts = purpose == "start"
    why = f"{subject} waits: enough GPUs are free, but scattered" if starts else f"{subject} is being drained"
    admits = (subject,) if starts else ()
    return Recommendation(object_name(pool.name, proposal.trigger), pool.name, why, admits, moves, cost)
