"""The outcome of a comparison in a sentence or two."""

from collections.abc import Sequence

from compass_abs.reporting.comparison import RunView
from compass_abs.reporting.metrics import BOUNDS, duration, percent, with_ratios


def verdict(runs: Sequence[RunView]) -> str:
    """Who completes jobs soonest, how far from the bound, by how much, and at what price."""
    return " ".join(sentences(runs))


def sentences(runs: Sequence[RunView]) -> list[str]:
    """The verdict; its first sentence stands for itself."""
    rows = with_ratios(runs)
    field = [i for i, run in enumerate(runs) if run.scheduler not in BOUNDS and "ajct" in run.summary]
    if not field:
        return ["No scheduler was measured."]
    order = sorted(field, key=lambda i: (rows[i]["ajct"], i))
    first = order[0]
    leaders = [i for i in order if abs(rows[i]["ajct"] - rows[first]["ajct"]) < 0.05]
    text = _lead([runs[i].title for i in leaders], rows[first]["ajct"])
    if "ajct_ratio" in rows[first]:
        text += f", {_above_bound(rows[first]['ajct_ratio'])}"
    found = [text + "."]
    rest = [i for i in order if i not in leaders]
    if rest:
        second, gap = rest[0], rows[rest[0]]["ajct"] - rows[first]["ajct"]
        share = gap / rows[second]["ajct"] if rows[second]["ajct"] else 0.0
        text = f"{runs[second].title} follows {duration(gap)} ({percent(share, signed='')}) behind"
        if len(rest) > 1:
            last = rest[-1]
            gap = rows[last]["ajct"] - rows[first]["ajct"]
            text += f", {runs[last].title} comes last, {duration(gap)} behind"
        found.append(text + ".")
    return found + _price(runs, first, field)


def _lead(names: Sequence[str], ajct: float) -> str:
    joined = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
    verb = "completes" if len(names) == 1 else "complete"
    return f"{joined} {verb} jobs soonest: in {duration(ajct)} on average"


def _above_bound(ratio: float) -> str:
    if ratio < 1.000005:
        return "exactly what a cluster without any fragmentation would need"
    return f"{percent(ratio - 1, signed='')} above what a cluster without any fragmentation would need"


def _price(runs: Sequence[RunView], first: int, field: Sequence[int]) -> list[str]:
    """What the winner paid in moves, and how long fragmentation kept the head of the queue waiting."""
    winner = runs[first].summary
    parts = []
    moves = winner.get("migrations_per_job")
    if moves is not None:
        parts.append(f"moves {moves:.3f} instances per job" if moves else "moves nothing")
    blocked = winner.get("blocked_fragmentation")
    worst = max(field, key=lambda i: runs[i].summary.get("blocked_fragmentation", -1.0))
    if blocked is not None:
        text = f"leaves the head of the queue blocked by fragmentation for {duration(blocked)} in all"
        if not blocked:
            text = "never leaves the head of the queue blocked by fragmentation"
        if worst != first:
            text += f" ({runs[worst].title}: {duration(runs[worst].summary['blocked_fragmentation'])})"
        parts.append(text)
    return [f"{runs[first].title} {' and '.join(parts)}."] if parts else []
