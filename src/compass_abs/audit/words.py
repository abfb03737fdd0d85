"""The audit's findings in sentences, the same on a terminal and on a page."""

from compass_abs.audit.audit import Audit, PoolAudit
from compass_abs.audit.waiting import Verdict
from compass_abs.fragmentation.survey import LargestGang
from compass_abs.planner.explain import Answer


def plural(number: int, thing: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def verdict_in_words(audit: Audit) -> str:
    """The finding in a sentence or two."""
    avoidable = sum(pool.survey.avoidable_partial_nodes for pool in audit.pools)
    nodes = sum(pool.survey.nodes for pool in audit.pools)
    free = sum(pool.survey.free_gpus for pool in audit.pools)
    first = f"{plural(nodes, 'GPU node')} in {plural(len(audit.pools), 'pool')}, {plural(free, 'GPU')} free."
    if not avoidable:
        second = "No node is partly filled that a better placement would not leave so."
    else:
        second = (
            f"{plural(avoidable, 'node')} {_are(avoidable)} partly filled although a packing exists in which "
            f"{'it is not' if avoidable == 1 else 'they are not'}."
        )
    return f"{first} {second}"


def waiting_in_words(audit: Audit) -> str:
    """Who waits for what, and what could be done."""
    total = sum(verdict.job.copies for verdict in audit.verdicts)
    if not total:
        return "Nobody waits for GPUs."
    parts = [
        f"{audit.waiting_for(answer):,} {words}"
        for answer, words in (
            (Answer.FRAGMENTATION, "for fragmentation"),
            (Answer.CAPACITY, "for capacity"),
            (Answer.POLICY, "for a rule"),
            (Answer.FITS, "although there is room"),
        )
        if audit.waiting_for(answer)
    ]
    return f"{plural(total, 'job')} {_wait(total)}: {', '.join(parts)}."


def because_in_words(audit: Audit, verdict: Verdict) -> str:
    """Why a job waits: in which pool, where there are several, and what is left out of account."""
    text = f"{verdict.pool}: {verdict.text}" if verdict.pool and len(audit.pools) > 1 else verdict.text
    return "; ".join(part for part in (text, verdict.job.caveat) if part)


def blame_in_words(pool: PoolAudit) -> list[tuple[str, int, str]]:
    """The partial nodes by cause: a name, how many, and what that means."""
    blame = pool.blame
    found = [
        ("sizes", blame.sizes, "partly filled in every packing of these sizes: the workload's doing"),
        ("placement", blame.placement, "the scheduler's doing: moves that are allowed would do away with them"),
    ]
    if blame.undeclared:
        found.append(("undeclared", blame.undeclared, "moves would, of jobs that don't declare that they may be moved"))
    if blame.fixed:
        found.append(("fixed", blame.fixed, "held by what can't be moved or classified"))
    return found


def gangs_of_interest(pool: PoolAudit) -> list[LargestGang]:
    """The largest gangs of the usual sizes, and of those that run here."""
    sizes = {job.gpus: None for job, _ in pool.before.gangs}
    return [gang for gang in pool.survey.largest_gangs if gang.gpus in sizes or gang.gpus.bit_count() == 1]


def moves_in_words(pool: PoolAudit) -> list[tuple[str, str, str, str]]:
    """The proposed moves, in the order in which they are made: which instance, its GPUs, from where, to where."""
    names, instances = pool.before.names, {job.id: job.instances for job, _ in pool.before.gangs}
    return [
        (
            move.instance.job_id + (f" #{move.instance.number}" if instances.get(move.instance.job_id, 1) > 1 else ""),
            str(move.gpus),
            names[move.source],
            names[move.target],
        )
        for move in pool.proposed
    ]


def plan_in_words(pool: PoolAudit) -> list[str]:
    """What the plan does and what it disturbs."""
    done, lines = pool.admissions, []
    if done.steps and not done.moves:
        lines.append(f"{plural(done.starts, 'waiting job')} could start without a move.")
    elif done.steps:
        helped, more = done.starts - len(done.without_moves), ""
        if done.without_moves:
            more = f", beside {len(done.without_moves):,} that {_needs(len(done.without_moves))} none"
        lines.append(
            f"{plural(len(done.moves), 'move')} of {plural(len(done.disturbed), 'running job')} would let "
            f"{plural(helped, 'waiting job')} start{more}, for {done.gpu_seconds:,.0f} GPU-seconds of standing still; "
            f"{_certainty(done.proven)}."
        )
    tidying = pool.tidying
    if tidying is not None:
        lines.append(
            f"To tidy up: {plural(len(tidying.moves), 'move')} of {plural(len(tidying.jobs), 'job')}, "
            f"{tidying.gpu_seconds:,.0f} GPU-seconds, for {plural(tidying.nodes, 'partly filled node')} fewer."
        )
    return lines


def _certainty(proven: bool) -> str:
    return "no moves for these jobs cost less" if proven else "cheaper moves are not ruled out"


def _are(number: int) -> str:
    return "is" if number == 1 else "are"


def _needs(number: int) -> str:
    return "needs" if number == 1 else "need"


def _wait(number: int) -> str:
    return "waits" if number == 1 else "wait"
