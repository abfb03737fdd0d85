"""The thread around the controller: events that outlive it, logs that name what they are about."""

from pathlib import Path

from structlog.testing import capture_logs

from compass_abs.controller.book import JobPhase
from compass_abs.controller.job_spec import check_job
from compass_abs.model import NodeStatus
from tests.controller.running import service, wait_until

JOB = check_job({"name": "a", "command": ["x"], "gpus_per_instance": 4})


def test_events_of_a_restarted_service_go_on_counting(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        running.ask(lambda c: c.submit(JOB))
        last = running.events[-1].number
    with service(tmp_path) as running:
        # A reader who comes back with the number of the last event that it saw misses nothing.
        assert running.events[0].number > last
        assert running.events[0].record.kind == "opened"


def test_log_of_a_migration_names_job_and_migration(tmp_path: Path) -> None:
    with capture_logs() as lines, service(tmp_path) as running:
        job = running.ask(lambda c: c.submit(JOB))
        wait_until(running, lambda c: c.entry(job).phase is JobPhase.RUNNING)
        running.ask(lambda c: c.set_node(c.entry(job).nodes[0], NodeStatus.DRAINING))
        wait_until(running, lambda c: bool(c.entry(job).past))
    told = [line for line in lines if line["event"].startswith("migration")]
    assert [line["event"] for line in told] == ["migration", *["migration-step"] * 4, "migration-end"]
    assert {(line["job_id"], line["migration_id"]) for line in told} == {(job, told[0]["migration_id"])}
    assert told[-1]["outcome"] == "done"
