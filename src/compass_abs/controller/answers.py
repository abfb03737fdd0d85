"""What the API answers, as JSON Schema: the shapes of `controller/views.py`, for clients of the OpenAPI description."""

from typing import Any

_TYPES: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "whole": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "texts": {"type": "array", "items": {"type": "string"}},
    "wholes": {"type": "array", "items": {"type": "integer"}},
    "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
    "seconds": {"type": "object", "additionalProperties": {"type": "number"}},
    "any": {"type": "object"},
}


def _field(kind: str) -> dict[str, Any]:
    """`text`, `Job`, `[Job]` for a list, `text?` for one that may be null."""
    if kind.endswith("?"):
        return {"anyOf": [_field(kind[:-1]), {"type": "null"}]}
    if kind.startswith("["):
        return {"type": "array", "items": _field(kind[1:-1])}
    return _TYPES.get(kind) or {"$ref": f"#/components/schemas/{kind}"}


def _shape(**fields: str) -> dict[str, Any]:
    """An object with all of these fields; another version may have more."""
    kinds = {name.rstrip("_"): _field(kind) for name, kind in fields.items()}
    return {"type": "object", "properties": kinds, "required": list(kinds)}


_JOB = {
    "id": "text",
    "name": "text",
    "phase": "text",
    "instances": "whole",
    "gpus": "whole",
    "pool": "text",
    "priority": "whole",
    "movable": "flag",
    "nodes": "texts",
    "submitted": "number",
    "started": "number?",
    "ended": "number?",
    "step": "whole",
    "total": "whole",
    "loss": "number?",
    "restarts": "whole",
    "migrations": "whole",
    "reason": "text",
    "migration": "MigrationUnderWay?",
}

ANSWERS: dict[str, dict[str, Any]] = {
    "MigrationUnderWay": _shape(id="text", phase="text", targets="texts", sources="texts", cause="text"),
    "JobSummary": _shape(**_JOB),
    "JobDetail": _shape(
        **_JOB,
        spec="any",
        generation="whole",
        retries="whole",
        lost_steps="whole",
        lost_seconds="number",
        checkpoints="[Checkpoint]",
        runs="[Run]",
        history="[Migration]",
    ),
    "Checkpoint": _shape(step="whole", path="text"),
    "End": _shape(cause="text", code="whole", detail="text"),
    "Run": _shape(
        instance="whole",
        generation="whole",
        node="text",
        phase="text",
        gpus="wholes",
        handle="text",
        end="End?",
        step="whole?",
    ),
    "Migration": _shape(
        id="text",
        job="text",
        cause="text",
        began="number",
        ended="number",
        sources="texts",
        targets="texts",
        outcome="text",
        why="text",
        seconds="seconds",
        lost_seconds="number",
    ),
    "Slot": _shape(job="text", instance="whole", generation="whole", gpus="whole", indices="wholes", state="text"),
    "Node": _shape(name="text", pool="text", gpus="whole", free="whole", status="text", detail="text", slots="[Slot]"),
    "Pool": _shape(
        name="text",
        capacity="whole",
        nodes="whole",
        gpus="whole",
        free="whole",
        utilisation="number",
        sif="number",
        partial_nodes="whole",
        avoidable_partial_nodes="whole",
        empty_nodes="whole",
        wcc_margin="whole",
        waiting="whole",
        scheduler="text",
    ),
    "Move": _shape(job="text", from_="texts", to="texts", cause="text", state="text"),
    "ProposedMove": _shape(job="text", instance="whole", from_="text", to="text", gpus="whole", cause="text"),
    "Proposal": _shape(time="number", why="text", pool="text", moves="[ProposedMove]"),
    "JobEvent": _shape(time="number", event="text", text="text"),
    "Sample": _shape(
        time="number", utilisation="number", sif="number", partial_nodes="whole", waiting="whole", running="whole"
    ),
    "Health": _shape(alive="flag"),
    "Explanation": _shape(job="text", phase="text", text="text"),
    "Jobs": _shape(total="whole", jobs="[JobSummary]"),
    "JobHistory": _shape(events="[JobEvent]"),
    "Nodes": _shape(nodes="[DrainedNode]"),
    "DrainedNode": {"allOf": [_field("Node"), _shape(still_on="texts")]},
    "Plan": _shape(migrates="flag", moves="[Move]", proposals="[Proposal]"),
    "Migrations": _shape(total="whole", migrations="[Migration]"),
    "Switched": _shape(migrations="text"),
    "Overview": _shape(
        version="whole",
        time="number",
        ready="flag",
        engine="text",
        mode="text",
        migrations="text",
        queue="text",
        counts="counts",
        pools="[Pool]",
        nodes="[Node]",
        jobs="[JobSummary]",
        waiting="[JobSummary]",
        waiting_total="whole",
        proposals="[Proposal]",
        recent="[JobSummary]",
    ),
    "History": _shape(samples="[Sample]"),
}
