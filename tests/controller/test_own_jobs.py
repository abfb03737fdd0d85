"""The controller as it is seen by what takes users' jobs in, in its own process."""

from pathlib import Path

import pytest

from compass_abs.controller.own_jobs import OwnJobs
from compass_abs.engines.submitting import JobsAwayError
from compass_abs.model import CompassError
from tests.controller.running import service

JOB = {"name": "a", "instances": 1, "gpus_per_instance": 1, "command": ["sleep", "60"]}


def test_jobs_are_submitted_found_and_ended(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        jobs = OwnJobs(running)
        job, large = jobs.submit(JOB), jobs.submit({**JOB, "name": "b", "instances": 4, "gpus_per_instance": 8})
        assert (jobs.find("a"), jobs.find("b"), jobs.find("c")) == (job, large, None)
        assert set(jobs.open()) == {job, large}
        assert jobs.open()[job] == ""
        assert jobs.open()[large] != ""
        assert not jobs.is_over(large)
        jobs.cancel(large)
        assert jobs.is_over(large)
        assert list(jobs.open()) == [job]


def test_job_that_makes_no_sense_is_refused_with_its_field(tmp_path: Path) -> None:
    with service(tmp_path) as running, pytest.raises(CompassError, match="gpus_per_instance") as refused:
        OwnJobs(running).submit({**JOB, "gpus_per_instance": 0})
    assert not isinstance(refused.value, JobsAwayError)


def test_controller_that_has_stopped_is_away(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        jobs = OwnJobs(running)
    with pytest.raises(JobsAwayError, match="has stopped"):
        jobs.submit(JOB)


def test_controller_that_does_not_answer_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(action: object) -> None:
        raise TimeoutError

    with service(tmp_path) as running:
        monkeypatch.setattr(running, "ask", silent)
        with pytest.raises(JobsAwayError, match="doesn't answer"):
            OwnJobs(running).find("a")
