"""The HTTP API: what it answers, and whom and what it refuses."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import schemathesis
import yaml
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from starlette.routing import Route
from starlette.testclient import TestClient

from compass_abs.controller.answers import ANSWERS
from compass_abs.controller.api import Api, make_app
from compass_abs.controller.auth import LARGEST_BODY, is_loopback, load_token
from compass_abs.controller.history import History
from compass_abs.controller.metrics import Metrics
from compass_abs.controller.openapi import description
from compass_abs.controller.records import Setting
from compass_abs.controller.service import Event, Service
from compass_abs.model import CompassError
from tests.controller.running import service

TOKEN = "a-token-of-some-length"
JOB = {"name": "job", "command": ["train", "$(rm -rf /)"], "instances": 2, "gpus_per_instance": 4}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Service]:
    with service(tmp_path) as found:
        yield found


@pytest.fixture
def client(running: Service) -> Iterator[TestClient]:
    with TestClient(make_app(running), base_url="http://localhost") as found:
        yield found


def until(read: Callable[[], Any], what: Callable[[Any], bool], seconds: float = 10.0) -> Any:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = read()
        if what(value):
            return value
        time.sleep(0.02)
    raise AssertionError(value)


def wait_for(client: TestClient, job: str, phase: str) -> dict[str, Any]:
    found: dict[str, Any] = until(lambda: client.get(f"/api/v1/jobs/{job}").json(), lambda job: job["phase"] == phase)
    return found


def test_job_is_submitted_runs_and_is_cancelled(client: TestClient) -> None:
    answer = client.post("/api/v1/jobs", json=JOB)
    assert answer.status_code == 201
    job = answer.json()["id"]
    assert answer.headers["location"] == f"/api/v1/jobs/{job}"
    found = wait_for(client, job, "running")
    assert found["spec"]["command"] == ["train", "$(rm -rf /)"]
    assert [run["instance"] for run in found["runs"]] == [0, 1]
    assert client.get("/api/v1/jobs", params={"phase": "running"}).json()["total"] == 1
    client.post(f"/api/v1/jobs/{job}/cancel")
    assert wait_for(client, job, "cancelled")["ended"] is not None


def test_job_in_yaml_is_accepted_and_a_mistake_named_with_its_line(client: TestClient) -> None:
    yaml_type = {"content-type": "application/yaml"}
    assert client.post("/api/v1/jobs", content=yaml.safe_dump(JOB), headers=yaml_type).status_code == 201
    answer = client.post("/api/v1/jobs", content="name: a\ncommand: [x]\ninstances: many\n", headers=yaml_type)
    assert answer.status_code == 400
    assert "line 3: instances is 'many'" in answer.json()["error"]


def test_drained_node_is_emptied_and_the_migration_told(client: TestClient) -> None:
    job = client.post("/api/v1/jobs", json=JOB).json()["id"]
    node = wait_for(client, job, "running")["nodes"][0]
    assert job in client.post(f"/api/v1/nodes/{node}/drain").json()["still_on"]
    past = until(lambda: client.get("/api/v1/migrations").json(), lambda found: found["total"] > 0)["migrations"][0]
    assert (past["job"], past["outcome"]) == (job, "done")
    assert set(past["seconds"]) == {"checkpoint", "stop", "wait", "start", "first_step"}
    metrics = client.get("/metrics").text
    assert 'compass_migrations_total{class="w4",outcome="done",trigger="drain"} 1.0' in metrics
    assert 'compass_migration_seconds_count{phase="first_step"} 1.0' in metrics
    assert client.post(f"/api/v1/nodes/{node}/undrain").json()["status"] == "up"


def test_history_of_a_job_tells_what_happened_in_order(client: TestClient) -> None:
    job = client.post("/api/v1/jobs", json=JOB).json()["id"]
    node = wait_for(client, job, "running")["nodes"][0]
    client.post(f"/api/v1/nodes/{node}/drain")
    until(lambda: client.get("/api/v1/migrations").json(), lambda found: found["total"] > 0)
    client.post(f"/api/v1/jobs/{job}/cancel")
    wait_for(client, job, "cancelled")
    events = client.get(f"/api/v1/jobs/{job}/history").json()["events"]
    told = [event["text"] for event in events]
    assert told[0] == "submitted"
    assert told[1].startswith(f"starts on {node}")
    assert any(text.startswith("migration m1 to ") for text in told)
    assert any(text.startswith("migration m1 done after ") for text in told)
    assert told[-1].startswith("cancelled")
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    assert client.get("/api/v1/jobs/nope/history").status_code == 404


def test_waiting_job_is_explained(client: TestClient) -> None:
    client.post("/api/v1/jobs", json={**JOB, "instances": 4, "gpus_per_instance": 8})
    job = client.post("/api/v1/jobs", json=JOB).json()["id"]
    found = until(lambda: client.get(f"/api/v1/jobs/{job}/explain").json(), lambda found: "capacity" in found["text"])
    assert found["phase"] == "queued"
    overview = client.get("/api/v1/overview").json()
    assert overview["waiting_total"] == 1
    assert "capacity" in overview["waiting"][0]["reason"]


def test_unknown_things_are_not_found(client: TestClient) -> None:
    for path in ("/api/v1/jobs/nope", "/api/v1/jobs/nope/logs", "/api/v1/nowhere"):
        assert client.get(path).status_code == 404
    for path in ("/api/v1/nodes/nope/drain", "/api/v1/nodes/n0/explode", "/api/v1/migrations/explode"):
        assert client.post(path).status_code == 404
    assert client.get("/api/v1/jobs?limit=-1").status_code == 400
    assert client.get("/api/v1/jobs?offset=" + "9" * 400).status_code == 400


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/jobs/..%2f..%2f..%2fetc%2fpasswd/logs",
        "/api/v1/jobs/%2e%2e/logs",
        "/static/..%2f..%2fjournal.py",
        "/static/%2e%2e/%2e%2e/journal.py",
        "/static//etc/passwd",
    ],
)
def test_path_that_leads_elsewhere_is_refused(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code in (400, 404)
    assert "root:" not in answer.text


def test_log_is_served_as_plain_text(client: TestClient) -> None:
    job = client.post("/api/v1/jobs", json=JOB).json()["id"]
    wait_for(client, job, "running")
    answer = client.get(f"/api/v1/jobs/{job}/logs", params={"instance": 1})
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "<script>" in answer.text
    assert client.get(f"/api/v1/jobs/{job}/logs", params={"instance": 7}).status_code == 404


def test_requests_without_the_token_are_refused(running: Service) -> None:
    with TestClient(make_app(running, token=TOKEN), base_url="http://cluster.example") as client:
        assert client.get("/").status_code == 200
        assert client.get("/static/app.js").status_code == 200
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {TOKEN}"}):
            assert client.get("/api/v1/overview", headers=headers).status_code == 401
            assert client.get("/metrics", headers=headers).status_code == 401
            assert client.post("/api/v1/jobs", json=JOB, headers=headers).status_code == 401
        good = {"authorization": f"Bearer {TOKEN}"}
        assert client.get("/api/v1/overview", headers=good).status_code == 200


def test_requests_by_other_names_or_sites_are_refused_without_a_token(running: Service) -> None:
    with TestClient(make_app(running), base_url="http://evil.example") as client:
        assert client.get("/api/v1/overview").status_code == 421
    with TestClient(make_app(running), base_url="http://localhost:7077") as client:
        headers = {"origin": "http://evil.example"}
        assert client.post("/api/v1/migrations/pause", headers=headers).status_code == 403
        headers = {"origin": "http://localhost:7077"}
        assert client.post("/api/v1/migrations/pause", headers=headers).status_code == 200


def test_body_that_is_too_large_is_refused(client: TestClient) -> None:
    body = b"x" * (LARGEST_BODY + 1)
    assert client.post("/api/v1/jobs", content=body).status_code == 413

    def pieces() -> Iterator[bytes]:
        for _ in range(LARGEST_BODY // 1024 + 2):
            yield b"x" * 1024

    assert client.post("/api/v1/jobs", content=pieces()).status_code == 413


def test_page_runs_no_foreign_script(client: TestClient) -> None:
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy


def test_token_is_made_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state" / "token"
    token = load_token(path)
    assert len(token) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_token(path) == token
    path.write_text("short\n")
    with pytest.raises(CompassError, match="16 or more"):
        load_token(path)
    for nonsense in (b"\xff\xfe" * 20, b"two lines that are\nlong enough", "ein Schlüssel mit Umlaut".encode()):
        path.write_bytes(nonsense)
        with pytest.raises(CompassError, match="plain ASCII"):
            load_token(path)


def test_loopback_is_told_from_other_addresses() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.org", ""))


def test_answers_are_what_the_description_says(client: TestClient) -> None:
    """Of a cluster in which something runs, waits, has moved and has ended; no field undescribed or missing."""
    job = client.post("/api/v1/jobs", json=JOB).json()["id"]
    node = wait_for(client, job, "running")["nodes"][0]
    client.post("/api/v1/jobs", json={**JOB, "instances": 4, "gpus_per_instance": 8})
    client.post(f"/api/v1/nodes/{node}/drain")
    until(lambda: client.get("/api/v1/migrations").json(), lambda found: found["total"] > 0)
    until(lambda: client.get("/api/v1/history").json(), lambda found: bool(found["samples"]))
    document = description()
    for path, methods in document["paths"].items():
        operation = methods.get("get") or {}
        schema = operation.get("responses", {}).get("200", {}).get("content", {}).get("application/json")
        if schema is None or "$ref" not in schema["schema"]:
            continue
        answer = client.get(path.replace("{job}", job))
        name = schema["schema"]["$ref"].rpartition("/")[2]
        strict = {**schema["schema"], "components": closed(document["components"])}
        jsonschema.validate(answer.json(), strict, cls=jsonschema.Draft202012Validator)
        assert name in ANSWERS
    for path, method in (("/api/v1/nodes/n0/undrain", "DrainedNode"), ("/api/v1/migrations/pause", "Switched")):
        reference = {"$ref": f"#/components/schemas/{method}", "components": document["components"]}
        jsonschema.validate(client.post(path).json(), reference, cls=jsonschema.Draft202012Validator)


def test_reader_of_events_that_cannot_keep_up_is_sent_away_with_what_it_has_read(running: Service) -> None:
    class Connected:
        async def is_disconnected(self) -> bool:
            return False

    async def read() -> list[bytes]:
        stream = Api(running, Metrics(), History())._stream(Connected(), None)  # type: ignore[arg-type]
        found = [await anext(stream)]
        for number in range(1, 6001):
            running._listeners[-1](Event(1_000_000 + number, Setting("x", 0.0, "y")))
        return found + [piece async for piece in stream]

    found = asyncio.run(read())
    assert found[0] == b": hello\n\n"
    numbers = [int(piece.split(b"\n")[0].removeprefix(b"id: ")) for piece in found[1:]]
    assert numbers == list(range(1_000_001, 1_005_001)), "as many as wait for a reader, without a gap"


def closed(components: dict[str, Any]) -> dict[str, Any]:
    """The shapes of answers with no room for a field that isn't described; those that others build on stay open."""
    open_ones = {"Node", "DrainedNode", "Explanation"}
    schemas = {
        name: {**schema, "additionalProperties": False} if name in ANSWERS and name not in open_ones else schema
        for name, schema in components["schemas"].items()
    }
    return {**components, "schemas": schemas}


def test_every_route_of_the_api_is_described(running: Service) -> None:
    described = {(path, method.upper()) for path, methods in description()["paths"].items() for method in methods}
    routes = Api(running, Metrics(), History()).routes()
    served = {(r.path, m) for r in routes if isinstance(r, Route) for m in (r.methods or ()) if m != "HEAD"}
    assert served - described == {("/", "GET"), ("/api/v1/openapi.json", "GET")}
    assert described <= served


def send(client: TestClient, case: schemathesis.Case) -> int:
    request = case.as_transport_kwargs()
    headers = {k: v for k, v in (request.get("headers") or {}).items() if k.lower() != "host"}
    body = {key: request[key] for key in ("json", "data", "content") if request.get(key) is not None}
    answer = client.request(request["method"], case.formatted_path, params=case.query or None, headers=headers, **body)
    return answer.status_code


@pytest.mark.parametrize("mode", list(GenerationMode))
@pytest.mark.parametrize("examples", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_fuzzed_requests_cause_no_server_error(running: Service, examples: int, mode: GenerationMode) -> None:
    """Requests that the description allows, and ones that it forbids."""
    rounds = settings(max_examples=examples, deadline=None, suppress_health_check=list(HealthCheck))
    with TestClient(make_app(running), base_url="http://localhost", raise_server_exceptions=False) as client:
        described = schemathesis.openapi.from_dict(client.get("/api/v1/openapi.json").json())
        for operation in (found.ok() for found in described.get_all_operations()):
            # The stream of events has no end to wait for; and without a body or a query there is nothing to get wrong.
            wrongable = len(operation.query) or len(operation.body)
            if operation.path.endswith("/events") or (mode is GenerationMode.NEGATIVE and not wrongable):
                continue

            @rounds
            @given(case=operation.as_strategy(generation_mode=mode))
            def fuzz(case: schemathesis.Case) -> None:
                assert send(client, case) < 500

            fuzz()
