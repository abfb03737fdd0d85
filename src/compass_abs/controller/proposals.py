"""Moves that were computed and not made: which of them still make sense, and how they are shown."""

from typing import Any

from compass_abs.controller.book import JobPhase
from compass_abs.controller.pool import Pool, Proposal
from compass_abs.controller.reconcile import Controller
from compass_abs.model import NodeStatus


def current(c: Controller, pool: Pool) -> list[Proposal]:
    """Proposals that could still be carried out, and whose purpose is still there."""
    true = [proposal for proposal in pool.proposals if _is_wanted(c, proposal) and _is_possible(c, pool, proposal)]
    # Each look at what could be tidied up replaces the one before.
    last = next((proposal for proposal in reversed(true) if tidies(proposal)), None)
    return [proposal for proposal in true if proposal is last or not tidies(proposal)]


def tidies(proposal: Proposal) -> bool:
    """True for moves that nobody waits for."""
    return proposal.trigger.partition(" ")[0] not in ("start", "drain")


def proposals_view(c: Controller) -> list[dict[str, Any]]:
    """Every move that would be made if moves were made now, and what it is for."""
    return [
        {
            "time": proposal.time,
            "why": proposal.trigger,
            "pool": pool.name,
            "moves": [
                {
                    "job": move.instance.job_id,
                    "instance": move.instance.number,
                    "from": pool.state.nodes[move.source].name,
                    "to": pool.state.nodes[move.target].name,
                    "gpus": move.gpus,
                    "cause": str(move.cause),
                }
                for move in proposal.moves
            ],
        }
        for pool in c.pools.values()
        for proposal in current(c, pool)
    ]


def _is_wanted(c: Controller, proposal: Proposal) -> bool:
    purpose, _, name = proposal.trigger.partition(" ")
    if purpose == "drain":
        return name in c.book.nodes and c.book.nodes[name].wanted is NodeStatus.DRAINING
    if purpose != "start":
        return True
    entry = c.book.jobs.get(name)
    return entry is not None and entry.phase is JobPhase.QUEUED and not entry.cancelled


def _is_possible(c: Controller, pool: Pool, proposal: Proposal) -> bool:
    """Everybody is still where the moves begin, and there is room where they end."""
    state = pool.state
    change: dict[int, int] = {}
    for move in proposal.moves:
        if not _is_on(c, move.instance.job_id, move.instance.number, state.nodes[move.source].name):
            return False
        change[move.source] = change.get(move.source, 0) - move.gpus
        change[move.target] = change.get(move.target, 0) + move.gpus
    return all(more <= max(0, state.nodes[node].free) for node, more in change.items())


def _is_on(c: Controller, job_id: str, number: int, node: str) -> bool:
    entry = c.book.jobs.get(job_id)
    if entry is None or entry.phase is not JobPhase.RUNNING:
        return False
    return number < len(entry.nodes) and entry.nodes[number] == node
