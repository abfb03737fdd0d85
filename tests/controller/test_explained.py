"""What a running controller says would let a waiting job start: by the policy that it acts by."""

from pathlib import Path
from typing import Any

import pytest

from compass_abs.controller import views
from compass_abs.controller.book import JobPhase
from compass_abs.controller.job_spec import check_job
from compass_abs.controller.reconcile import Config
from compass_abs.controller.service import Service
from tests.controller.running import service, wait_until


def submitted(running: Service, gpus: int) -> str:
    spec = check_job({"name": f"of{gpus}", "command": ["x"], "gpus_per_instance": gpus})
    return running.ask(lambda c: c.submit(spec))


def explained(running: Service) -> dict[str, Any]:
    """Of a job of a whole node, when the only free GPUs are two halves of two nodes."""
    halves = [submitted(running, 4) for _ in range(4)]
    others = [submitted(running, 8) for _ in range(2)]
    wait_until(running, lambda c: all(c.entry(job).phase is JobPhase.RUNNING for job in halves + others))
    for job in (halves[0], halves[2]):
        running.ask(lambda c, job=job: c.cancel(job))
        wait_until(running, lambda c, job=job: c.entry(job).over)
    waiting = submitted(running, 8)
    wait_until(running, lambda c: views.why_waiting(c, c.entry(waiting)) != "")
    return running.ask(lambda c: views.explain_job(c, c.entry(waiting)))


def test_scheduler_without_budgets_is_told_the_cheapest_moves(tmp_path: Path) -> None:
    with service(tmp_path) as running:
        now = explained(running)["now"]
    assert (now["verdict"], now["plan"]["moves"]) == ("fragmentation", 1)


@pytest.mark.parametrize("budget", ["moves_per_hour", "moves_in_flight"])
def test_budget_of_the_scheduler_is_the_explanations_too(tmp_path: Path, budget: str) -> None:
    config = Config(scheduler="compass-jit", parameters={budget: 0})
    with service(tmp_path, config) as running:
        found = explained(running)
    assert found["now"]["verdict"] == "policy"
    assert found["now"]["text"].startswith("budget: ")
    assert found["now"]["plan"]["moves"] == 1
