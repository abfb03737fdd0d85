"""The description of the HTTP API, for clients, documentation and fuzzers."""

from typing import Any

from compass_abs import __version__
from compass_abs.controller.answers import ANSWERS
from compass_abs.controller.book import JobPhase
from compass_abs.controller.job_spec import JobSpec

#: What a listing of jobs can be narrowed down to.
PHASES = ("open", *(phase.value for phase in JobPhase))


def description() -> dict[str, Any]:
    """OpenAPI 3.1."""
    spec = JobSpec.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas = {**spec.pop("$defs", {}), "Job": spec, **ANSWERS}
    schemas["Error"] = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
    schemas["Accepted"] = {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}
    return {
        "openapi": "3.1.0",
        "info": {"title": "COMPASS-ABS controller", "version": __version__},
        "servers": [{"url": "/"}],
        "security": [{"token": []}],
        "components": {"schemas": schemas, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": _paths(),
    }


def _paths() -> dict[str, Any]:
    job = _path_parameter("job")
    node = _path_parameter("node")
    listing = [_query("limit", 0, 1000), _query("offset", 0)]
    reading = [_query("instance", 0), _query("generation", 0), _query("limit", 0), _query("offset", -(1 << 20))]
    phase = {"name": "phase", "in": "query", "schema": {"enum": list(PHASES)}, "required": False}
    name = {"name": "name", "in": "query", "schema": {"type": "string"}, "required": False}
    node_action = {
        "name": "action",
        "in": "path",
        "required": True,
        "schema": {"enum": ["drain", "undrain", "cordon", "kill", "restore"]},
    }
    switch = {"name": "action", "in": "path", "required": True, "schema": {"enum": ["pause", "resume"]}}
    submit = {
        "summary": "Submits a job.",
        "requestBody": {
            "required": True,
            "content": {
                "application/json": {"schema": {"$ref": "#/components/schemas/Job"}},
                "application/yaml": {"schema": {"type": "string"}},
            },
        },
        "responses": _responses("#/components/schemas/Accepted", 201),
    }
    return {
        "/healthz": {"get": {**_read("Health", "Whether the controller lives."), "security": []}},
        "/metrics": {"get": _text("Prometheus metrics.")},
        "/api/v1/jobs": {"get": _read("Jobs", "Jobs, the latest first.", [phase, name, *listing]), "post": submit},
        "/api/v1/jobs/{job}": {"get": _read("JobDetail", "Everything about a job.", [job])},
        "/api/v1/jobs/{job}/cancel": {"post": _read("JobSummary", "Ends a job.", [job])},
        "/api/v1/jobs/{job}/logs": {"get": _text("What an instance printed.", [job, *reading])},
        "/api/v1/jobs/{job}/explain": {
            "get": _read("Explanation", "Why a job waits, and what would let it start.", [job])
        },
        "/api/v1/jobs/{job}/history": {"get": _read("JobHistory", "What happened to a job, the latest last.", [job])},
        "/api/v1/nodes": {"get": _read("Nodes", "Nodes and what is on them.")},
        "/api/v1/nodes/{node}/{action}": {
            "post": _read("DrainedNode", "Drains, cordons or brings back a node.", [node, node_action])
        },
        "/api/v1/plan": {"get": _read("Plan", "What is being moved, what would be, and why.")},
        "/api/v1/migrations": {
            "get": _read("Migrations", "Migrations that are over, the latest first.", [_query("limit", 0)])
        },
        "/api/v1/migrations/{action}": {"post": _read("Switched", "Pauses or resumes migrations.", [switch])},
        "/api/v1/overview": {"get": _read("Overview", "The whole cluster.")},
        "/api/v1/history": {"get": _read("History", "Utilisation and fragmentation over time.", [_query("since", 0)])},
        "/api/v1/events": {"get": _events()},
        "/api/v1/schema/job": {"get": _read("", "The JSON Schema of a job.")},
    }


def _path_parameter(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}


def _query(name: str, least: int, most: int | None = None) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "integer", "minimum": least, "maximum": most or 10**15 - 1}
    return {"name": name, "in": "query", "required": False, "schema": schema}


def _read(answer: str, summary: str, parameters: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    reference = f"#/components/schemas/{answer}" if answer else None
    return {"summary": summary, "parameters": parameters or [], "responses": _responses(reference, 200)}


def _text(summary: str, parameters: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    answers = _responses(None, 200)
    answers["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    return {"summary": summary, "parameters": parameters or [], "responses": answers}


def _events() -> dict[str, Any]:
    after = _query("after", 0)
    again = {"name": "last-event-id", "in": "header", "required": False, "schema": {"type": "string"}}
    found = _read(
        "", "Everything that happens, as server-sent events; those after the given one first.", [after, again]
    )
    found["responses"]["200"]["content"] = {"text/event-stream": {"schema": {"type": "string"}}}
    return found


def _responses(reference: str | None, status: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"$ref": reference} if reference else {"type": "object"}
    error = {
        "description": "Refused.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
    found: dict[str, Any] = {str(status): {"description": "Done.", "content": {"application/json": {"schema": schema}}}}
    return found | dict.fromkeys(("400", "401", "403", "404", "409", "413", "421", "503"), error)
