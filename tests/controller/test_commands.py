"""The command line against a running controller, as a user would."""

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
from typer.testing import CliRunner

from compass_abs.cli.main import app
from compass_abs.controller.client import Client, ControllerError
from tests.controller.running import LivingEngine

JOB = "name: my job\ncommand: [train]\ninstances: 2\ngpus_per_instance: 4\n"


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    from compass_abs.controller.reconcile import Config
    from compass_abs.controller.server import Settings, configure_logging, in_background

    configure_logging(as_json=False, level="error")
    engine = LivingEngine(steps=10_000, seconds_per_step=0.01)
    with in_background(Settings(tmp_path, port=0, config=Config(scheduler="best-fit")), engine) as found:
        monkeypatch.setenv("COMPASS_URL", found)
        yield found
    structlog.reset_defaults()


def run(*words: str, code: int = 0, text: str | None = None) -> str:
    result = CliRunner().invoke(app, list(words), input=text)
    assert result.exit_code == code, result.output
    return result.output


def run_uncaught(*words: str) -> None:
    """Raises what `compass` tells its user in one line."""
    CliRunner().invoke(app, list(words), catch_exceptions=False)


def wait_until_running(job: str) -> dict[str, Any]:
    for _ in range(300):
        found: dict[str, Any] = json.loads(run("describe", job, "--json"))
        if found["phase"] == "running":
            return found
        time.sleep(0.02)
    raise AssertionError(found)


def test_job_goes_through_its_life_by_commands(url: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    job = run("submit", str(file)).strip()
    assert job == "my-job-1"
    node = wait_until_running(job)["nodes"][0]
    assert job in run("ps")
    assert "instance 1" in run("describe", job)
    assert "alert(1)" in run("logs", job, "-i", "1")
    assert f"{job}.0:4" in run("nodes")
    assert "still on it: my-job-1" in run("drain", node)
    for _ in range(300):
        if "done: " in run("describe", job):
            break
        time.sleep(0.02)
    told = run("describe", job)
    assert "migration    m1 (drain) done" in told
    story = [line[16:].split(" ", 1)[0] for line in told.splitlines() if re.match(r"\d\d-\d\d \d\d:", line)]
    assert story[:3] == ["submitted", "starts", "trains"]
    assert story[-1] == "migration"
    assert "up" in run("undrain", node)
    assert "paused" in run("pause")
    assert "shown, not made" in run("plan")
    assert "on" in run("resume")
    assert "does not wait" in run("explain", job)
    assert json.loads(run("drain", "n3", "--json"))["status"] == "draining"
    assert json.loads(run("undrain", "n3", "--json"))["status"] == "up"
    assert "is being ended" in run("cancel", job)
    assert json.loads(run("cancel", job, "--json"))["id"] == job
    for _ in range(300):
        if json.loads(run("ps", "--all", "--json"))["jobs"][0]["phase"] == "cancelled":
            break
        time.sleep(0.02)
    assert run("ps").count(job) == 0
    assert job in run("ps", "--all")


def test_job_file_from_standard_input_is_taken(url: str) -> None:
    assert json.loads(run("submit", "-", "--json", text=JOB)) == {"id": "my-job-1"}


def test_job_that_waits_is_explained_with_its_numbers(url: str) -> None:
    for _ in range(2):
        job = run(
            "submit", "-", text=JOB.replace("instance: 4", "instance: 8").replace("instances: 2", "instances: 4")
        ).strip()
    told = run("explain", job)
    assert f"{job} is queued: capacity" in told
    assert "32 GPUs wanted, 0 free; 0 of 4 instances fit without a move" in told
    assert json.loads(run("explain", job, "--json"))["now"]["verdict"] == "capacity"


def test_job_that_even_the_empty_cluster_could_not_hold_says_so_and_keeps_nobody_waiting(url: str) -> None:
    job = run("submit", "-", text=JOB.replace("instances: 2", "instances: 9")).strip()
    wait_until_running(run("submit", "-", text=JOB).strip())
    told = " ".join(run("explain", job).split())
    assert "could hold 8 of its 9 instances if they were empty; others go before it" in told
    assert job in run("ps", "--phase", "queued")


def test_unknown_phase_names_the_known_ones(url: str) -> None:
    result = CliRunner().invoke(app, ["ps", "--phase", "asleep"])
    assert "phase is 'asleep', expected one of: open, queued" in str(result.exception)


@pytest.mark.parametrize("job", ["../../etc/passwd", "a b/c?x=1#y", "%2e%2e", "..", "", "\u202e", "\udcff"])
def test_job_that_cannot_be_one_is_not_found(
    url: str, job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `explain` takes files, too: where the tests run, the first of these may be one.
    monkeypatch.chdir(tmp_path)
    for words in (["describe"], ["logs"], ["logs", "-f"], ["cancel"], ["explain"]):
        with pytest.raises(ControllerError, match="there is no job "):
            run_uncaught(*words, job)
    for command in ("drain", "undrain"):
        with pytest.raises(ControllerError, match="there is no node "):
            run_uncaught(command, job)


def test_phase_that_is_no_text_is_told(url: str) -> None:
    with pytest.raises(ControllerError, match="is not UTF-8 text"):
        run_uncaught("ps", "--phase", "\udcff")


def test_snapshot_without_a_size_is_asked_for_one(url: str, tmp_path: Path) -> None:
    snapshot = tmp_path / "cluster.json"
    snapshot.write_text("{}")
    result = CliRunner().invoke(app, ["explain", str(snapshot)])
    assert "--gpus is missing" in str(result.exception)


def test_job_file_that_is_no_text_is_refused_with_its_name(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_bytes(b"name: \xff")
    result = CliRunner().invoke(app, ["submit", str(file)])
    assert f"{file}: byte 6 is not UTF-8 text" in str(result.exception)


def test_hostile_name_sends_nothing_to_the_terminal(url: str) -> None:
    with Client(url) as client:
        client.submit_fields({"name": "a\u202e\u009b31m", "command": ["x"]})
    assert "\u009b" not in run("ps")


def test_followed_log_is_printed_until_the_job_is_over(url: str) -> None:
    with Client(url) as client:
        job = client.submit_fields({"name": "a", "command": ["x"]})
        wait_until_running(job)
        with Client(url) as other:
            timer = threading.Timer(0.5, lambda: other.post(f"/jobs/{job}/cancel"))
            timer.start()
            assert run("logs", "-f", job).startswith("step 1\n")
            timer.join()
        assert client.get(f"/jobs/{job}")["ended"] is not None


def test_events_are_streamed_and_those_that_were_missed_sent_again(url: str) -> None:
    with Client(url) as client:
        job = client.submit_fields({"name": "a", "command": ["x"]})
    numbers, kinds = [], []
    with httpx.stream("GET", f"{url}/api/v1/events", params={"after": 0}, timeout=20, trust_env=False) as stream:
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if name == "id":
                numbers.append(int(value))
            elif name == "event":
                kinds.append(value)
            elif name == "data" and kinds[-1] == "resumed":
                assert json.loads(value)["job_id"] == job
                break
    assert numbers == sorted(set(numbers))
    assert [kind for kind in kinds if kind not in ("opened", "node")] == ["submitted", "placed", "launched", "resumed"]


def test_mistake_in_a_job_file_names_file_and_line(tmp_path: Path) -> None:
    from compass_abs.controller.job_file import JobSpecError

    file = tmp_path / "job.yaml"
    file.write_text("name: a\ncommand: [x]\nwhat: 1\n")
    result = CliRunner().invoke(app, ["submit", str(file)])
    assert isinstance(result.exception, JobSpecError)
    assert f"{file}, line 3" in str(result.exception)


def test_missing_controller_is_told_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPASS_URL", "http://127.0.0.1:9")
    result = CliRunner().invoke(app, ["ps"])
    assert isinstance(result.exception, ControllerError)
    assert "compass serve" in str(result.exception)


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("COMPASS_URL", "http://[::1", r"'http://\[::1' is no address: .*expected one like http://127"),
        ("COMPASS_URL", "http://a\nb", "is no address"),
        ("COMPASS_URL", "ftp://127.0.0.1", "no controller answers at ftp://127.0.0.1"),
        ("COMPASS_TOKEN", "tokén", "COMPASS_TOKEN or COMPASS_TOKEN_FILE has characters that none has"),
        ("COMPASS_TOKEN", "a\nb", "has characters that none has"),
    ],
)
def test_address_or_token_that_can_be_none_is_told(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(ControllerError, match=message):
        run_uncaught("ps")


def test_token_file_of_other_bytes_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_bytes(b"\xff\xfe" * 20)
    monkeypatch.setenv("COMPASS_TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(ControllerError, match="has characters that none has"):
        run_uncaught("ps")


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (200, b'{"jobs": 3}'), (404, b"<html>"), (404, b"[]"), (501, b'{"error"')]
)
def test_server_that_is_no_controller_is_told_from_one(status: int, body: bytes) -> None:
    class Stranger(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *words: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Stranger) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        for words in (["ps"], ["pause"], ["logs", "a-1"], ["logs", "-f", "a-1"], ["top"]):
            with pytest.raises(ControllerError, match=f"{url} is no controller .status {status}"):
                run_uncaught(*words, "--url", url)
        server.shutdown()


def test_terminal_dashboard_shows_a_picture_that_takes_longer_than_its_interval() -> None:
    import asyncio

    from textual.widgets import Static

    from compass_abs.cli.terminal_dashboard import TerminalDashboard

    class Slow:
        def get(self, path: str) -> dict[str, Any]:
            time.sleep(0.5)
            node = {"name": "n0", "gpus": 8, "slots": [], "status": "up"}
            return {"pools": [], "nodes": [node], "jobs": [], "waiting": [], "waiting_total": 0, "migrations": "on"}

    async def look() -> str:
        dashboard = TerminalDashboard(Slow(), 0.1)  # type: ignore[arg-type]
        async with dashboard.run_test() as pilot:
            for _ in range(200):
                await pilot.pause(0.05)
                if "n0" in str(dashboard.query_one("#nodes", Static).render()):
                    break
            return str(dashboard.query_one("#nodes", Static).render())

    assert "n0" in asyncio.run(look())


def test_schema_is_printed_for_editors() -> None:
    assert json.loads(run("schema"))["properties"]["command"]


def test_terminal_dashboard_shows_nodes_and_jobs(url: str) -> None:
    import asyncio

    from textual.widgets import DataTable

    from compass_abs.cli.terminal_dashboard import TerminalDashboard

    with Client(url) as client:
        job = client.submit_fields({"name": "a", "command": ["x"]})
        wait_until_running(job)

        async def look() -> int:
            dashboard = TerminalDashboard(client, 0.2)
            async with dashboard.run_test() as pilot:
                for _ in range(600):
                    await pilot.pause(0.05)
                    if dashboard.query_one("#jobs", DataTable).row_count:
                        break
                return dashboard.query_one("#jobs", DataTable).row_count

        assert asyncio.run(look()) == 1


def test_terminal_dashboard_keeps_the_row_of_its_reader_and_shows_jobs_in_the_colours_of_their_gpus() -> None:
    import asyncio

    from textual.widgets import DataTable

    from compass_abs.cli.terminal_dashboard import TerminalDashboard, cluster_text

    looks = []

    class Canned:
        def get(self, path: str) -> dict[str, Any]:
            looks.append(path)
            job = {"phase": "running", "instances": 1, "gpus": 1, "total": 0, "step": 0, "reason": "", "nodes": ["n0"]}
            jobs = [{**job, "id": f"job-{number}"} for number in range(8)]
            slots = [{"job": job["id"], "gpus": 1, "state": "running"} for job in jobs]
            node = {"name": "n0", "gpus": 8, "slots": slots, "status": "up"}
            return {"pools": [], "nodes": [node], "jobs": jobs, "waiting": [], "waiting_total": 0, "migrations": "on"}

    dashboard = TerminalDashboard(Canned(), 0.1)  # type: ignore[arg-type]

    async def look() -> tuple[int, list[Any]]:
        async with dashboard.run_test() as pilot:
            table = dashboard.query_one("#jobs", DataTable)
            for _ in range(200):
                await pilot.pause(0.05)
                if table.row_count:
                    break
            table.move_cursor(row=5)
            seen = len(looks)
            for _ in range(200):
                await pilot.pause(0.05)
                if len(looks) > seen + 2:
                    break
            rows = [table.get_row_at(row) for row in range(table.row_count)]
            return table.cursor_row, rows

    row, rows = asyncio.run(look())
    assert row == 5
    assert [str(each[3]) for each in rows] == ["-"] * 8
    shown = [each[0].style for each in rows]
    assert len(set(shown)) == 8
    cluster = cluster_text(Canned().get("")["nodes"], dashboard._colours)
    assert [str(span.style) for span in cluster.spans if str(span.style).startswith("#")] == shown
