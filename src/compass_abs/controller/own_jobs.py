"""The controller of this process, for what takes jobs in that users submitted to their platform."""

from collections.abc import Callable
from typing import Any, TypeVar

from compass_abs.controller.book import JobPhase
from compass_abs.controller.job_spec import check_job
from compass_abs.controller.reconcile import Controller, NotReadyError
from compass_abs.controller.service import Service, ServiceError
from compass_abs.controller.views import why_waiting
from compass_abs.engines.submitting import JobsAwayError

Answer = TypeVar("Answer")


class OwnJobs:
    """Asked without a detour over HTTP, which takes longer than the rest of a submission: see `engines.submitting`."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def submit(self, fields: dict[str, Any]) -> str:
        """Submits a job; its id."""
        spec = check_job(fields)
        return self._ask(lambda c: c.submit(spec))

    def find(self, name: str) -> str | None:
        """Id of the job with this name."""
        return self._ask(
            lambda c: next((entry.id for entry in reversed(c.book.jobs.values()) if entry.spec.name == name), None)
        )

    def is_over(self, job_id: str) -> bool:
        """True when the job has ended, however."""
        return self._ask(lambda c: c.entry(job_id).over)

    def open(self) -> dict[str, str]:
        """Jobs that are not over: why each waits; empty for one that doesn't."""
        return self._ask(
            lambda c: {
                entry.id: why_waiting(c, entry) if entry.phase is JobPhase.QUEUED else ""
                for entry in c.book.open_jobs.values()
            }
        )

    def cancel(self, job_id: str) -> None:
        """Ends a job."""
        self._ask(lambda c: c.cancel(job_id))

    def _ask(self, action: Callable[[Controller], Answer]) -> Answer:
        try:
            return self._service.ask(action)
        except (NotReadyError, ServiceError) as error:
            raise JobsAwayError(str(error)) from None
        except TimeoutError:
            raise JobsAwayError("the controller doesn't answer") from None
