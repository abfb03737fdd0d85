"""The controller, as it is seen by what takes jobs in that users submitted on the platform itself."""

from collections.abc import Mapping
from typing import Any, Protocol

from compass_abs.model import CompassError


class JobsAwayError(CompassError):
    """The controller can't answer now, which says nothing about what it was asked."""


class Jobs(Protocol):
    """The controller's jobs."""

    def submit(self, fields: dict[str, Any]) -> str:
        """Submits a job; its id."""

    def find(self, name: str) -> str | None:
        """Id of the job with this name."""

    def is_over(self, job_id: str) -> bool:
        """True when the job has ended, however."""

    def open(self) -> Mapping[str, str]:
        """Jobs that are not over: why each waits; empty for one that doesn't."""

    def cancel(self, job_id: str) -> None:
        """Ends a job."""
