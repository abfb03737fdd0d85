"""Audits a cluster again and again, whatever its scheduler, and keeps what would help as objects in it."""

import sys
import threading
import time
from pathlib import Path

from compass_abs.audit.audit import Audit, AuditOptions, PoolAudit, audit
from compass_abs.audit.kubernetes import KubernetesOptions
from compass_abs.engines.kubernetes.client import Client
from compass_abs.engines.kubernetes.looking import look
from compass_abs.engines.kubernetes.recommendations import MISSING, Board, Recommendation, RecommendedMove, object_name
from compass_abs.model import CompassError, Migration


class Adviser:
    """Looks, thinks, writes down; one after the other."""

    def __init__(self, client: Client, options: KubernetesOptions, taken: AuditOptions, board: Board) -> None:
        self._client = client
        self._options = options
        self._taken = taken
        self._board = board

    def round(self) -> list[Recommendation]:
        """What is recommended now, as it was published."""
        found = recommended(audit(look(self._client, self._options, time.time()), self._taken))
        if not self._board.publish(found):
            raise CompassError(MISSING)
        return found

    def run(self, over: threading.Event, every: float, alive: Path | None = None) -> None:
        """Until it is over; a round that fails is reported, and the next one may succeed."""
        while not over.is_set():
            try:
                found = self.round()
            except CompassError as error:
                print(f"compass: {error}; trying again in {every:g} s", file=sys.stderr, flush=True)
            else:
                moves = sum(len(each.moves) for each in found)
                print(f"compass: {len(found)} recommendations, {moves} moves", file=sys.stderr, flush=True)
                if alive is not None:
                    alive.touch()
            over.wait(every)


def recommended(found: Audit) -> list[Recommendation]:
    """What an audit recommends: for each pool one set of moves, to let jobs start or else to tidy up."""
    return [each for pool in found.pools if (each := _of_pool(pool)) is not None]


def _of_pool(pool: PoolAudit) -> Recommendation | None:
    steps = [step for step in pool.admissions.steps if step.moves]
    if steps:
        # Each step counts on those before it: they are one recommendation.
        jobs = tuple(dict.fromkeys(job for step in steps for job in step.jobs))
        # The moves are not to be credited with those that need none, unless they are all for those.
        jobs = tuple(job for job in jobs if job not in pool.admissions.without_moves) or jobs
        moves = tuple(move for step in steps for move in step.moves)
        seconds = sum(step.gpu_seconds for step in steps)
        why = "enough GPUs are free for them, but scattered"
        return Recommendation(object_name(pool.name, "start"), pool.name, why, jobs, _moves(pool, moves), seconds)
    tidying = pool.tidying
    if tidying is None or not tidying.moves:
        return None
    why = f"{tidying.nodes} fewer nodes would be partly filled"
    name, moved = object_name(pool.name, "tidy"), _moves(pool, tidying.moves)
    return Recommendation(name, pool.name, why, (), moved, tidying.gpu_seconds)


def _moves(pool: PoolAudit, moves: tuple[Migration, ...]) -> tuple[RecommendedMove, ...]:
    names = pool.before.names
    return tuple(
        RecommendedMove(move.instance.job_id, move.instance.number, move.gpus, names[move.source], names[move.target])
        for move in moves
    )
