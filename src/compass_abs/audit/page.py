"""One self-contained HTML page of an audit: numbers, who waits for what, each pool before and after the plan."""

import json
import os
from base64 import b64encode
from datetime import UTC, datetime
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from compass_abs import __version__
from compass_abs.audit.audit import Audit, Movability, PoolAudit
from compass_abs.audit.observation import AuditError
from compass_abs.audit.waiting import Verdict
from compass_abs.audit.words import (
    because_in_words,
    blame_in_words,
    gangs_of_interest,
    moves_in_words,
    plan_in_words,
    verdict_in_words,
    waiting_in_words,
)
from compass_abs.model import Job
from compass_abs.reporting import ClusterEvent, JobView, Moved, NodeChanged, Started
from compass_abs.reporting.encoding import TICK, encode_events, encode_jobs

_SCRIPTS = ("codec.js", "replay.js", "cluster.js")
#: Rows of a table; the JSON has all of them.
MOST_ROWS = 500
#: What is drawn: the state before, the moves, and the starts, at these seconds.
_BEFORE, _MOVES, _STARTS = 0.0, 10.0, 20.0


def write_page(audit: Audit, path: str | os.PathLike[str]) -> Path:
    """Writes the page, all of it or nothing, and says where."""
    target = Path(path)
    if target.is_dir():
        raise AuditError(f"{target}: is a folder, expected a file to write, such as {target / 'audit.html'}")
    if not target.parent.is_dir():
        raise AuditError(f"{target}: there is no folder {target.parent}; make it first")
    text = render_page(audit)
    partial = target.with_name(target.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(target)
    return target


def render_page(audit: Audit) -> str:
    """The page as text."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    shared, own = files("compass_abs.reporting") / "templates", files("compass_abs.audit") / "templates"
    style = (shared / "report.css").read_text(encoding="utf-8") + (own / "audit.css").read_text(encoding="utf-8")
    parts = [(shared / name).read_text(encoding="utf-8") for name in _SCRIPTS]
    parts.append((own / "audit.js").read_text(encoding="utf-8"))
    script = "'use strict';\n(() => {\n" + "\n".join(parts) + "})();\n"
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        (own / "audit.html").read_text(encoding="utf-8")
    )
    return template.render(
        version=__version__,
        source=audit.source,
        time="" if audit.time is None else datetime.fromtimestamp(audit.time, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        verdict=verdict_in_words(audit),
        waiting=waiting_in_words(audit),
        assumed=audit.movability is Movability.ASSUMED,
        pools=[_pool_view(number, pool) for number, pool in enumerate(audit.pools)],
        jobs=[_job_view(audit, verdict) for verdict in audit.verdicts[:MOST_ROWS]],
        more_jobs=max(0, len(audit.verdicts) - MOST_ROWS),
        fixed=audit.fixed,
        left_out=audit.left_out,
        pause=audit.pause,
        style=Markup(style),  # ours, not a user's
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
        payload=Markup(_script_safe({"tick": TICK, "pools": [_payload(pool) for pool in audit.pools]})),
    )


def _pool_view(number: int, pool: PoolAudit) -> dict[str, Any]:
    found = pool.survey
    return {
        "number": number,
        "survey": found,
        "blame": blame_in_words(pool),
        "plan": plan_in_words(pool),
        "moves": moves_in_words(pool)[:MOST_ROWS],
        "moves_title": "The moves of the plan" if pool.admissions.steps else "The moves that tidy up",
        "more_moves": max(0, len(pool.proposed) - MOST_ROWS),
        "gangs": gangs_of_interest(pool),
        "has_after": bool(pool.admissions.steps) or pool.tidying is not None,
        "after": "After the plan" if pool.admissions.steps else "After tidying up",
    }


def _job_view(audit: Audit, verdict: Verdict) -> dict[str, Any]:
    job = verdict.job
    shapes = " + ".join(str(shape) for shape in job.shapes)
    return {
        "id": job.id + (f" ({job.copies} like it)" if job.copies > 1 else ""),
        "shape": shapes,
        "pool": verdict.pool,
        "answer": str(verdict.answer),
        "text": because_in_words(audit, verdict),
        "cost": "" if verdict.fit is None or not verdict.fit.moves else f"{verdict.fit.gpu_seconds:,.0f}",
        "said": job.said,
    }


def _payload(pool: PoolAudit) -> dict[str, Any]:
    """The pool as events: everybody where they are, then the moves, then those who start."""
    jobs: list[JobView] = []
    number: dict[str, int] = {}
    fixed = []
    events: list[ClusterEvent] = []

    def view(job: Job, submitted: float) -> int:
        number[job.id] = len(jobs)
        jobs.append(JobView(job.id, job.instances, job.gpus, submitted))
        return number[job.id]

    for job, nodes in pool.before.gangs:
        index = view(job, _BEFORE)
        if not job.movable:
            fixed.append(index)
        events.append(Started(_BEFORE, index, nodes))
    events += [NodeChanged(_BEFORE, node, 0) for node in pool.before.not_up]
    steps = pool.admissions.steps
    events += [Moved(_MOVES, number[m.instance.job_id], m.instance.number, m.target) for m in pool.proposed]
    starts = []
    for step in steps:
        for job, nodes in step.gangs:
            index = view(job, _BEFORE)
            starts.append(index)
            events.append(Started(_STARTS, index, nodes))
    return {
        "names": list(pool.before.names),
        "nodes": len(pool.before.names),
        "capacity": pool.before.capacity,
        "ids": [job.id for job in jobs],
        "jobs": encode_jobs(jobs, _BEFORE),
        "events": encode_events(events, _BEFORE),
        "fixed": fixed,
        "starts": starts,
        "started": pool.admissions.starts,
        "before": round(_BEFORE / TICK),
        "after": round(_STARTS / TICK),
    }


def _script_safe(payload: dict[str, Any]) -> str:
    """JSON that can't end the script element it stands in, whatever the names in it."""
    text = json.dumps(payload, separators=(",", ":"), sort_keys=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode("utf-8")).digest()).decode("ascii")
