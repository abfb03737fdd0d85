"""The accounts of one job, from its submission to its end."""

from compass_abs.model import Job


class JobRecord:
    """Where the time of one job goes, in whole microseconds.

    While it runs, `end` is when it will finish and `resumes` when it last stops being paused; what lies between the
    two is work that is still to be done. completion = `queueing` + `service` + `delay` + `redone`, always.
    """

    __slots__ = (
        "delay",
        "end",
        "first_start",
        "heap_end",
        "job",
        "migrations",
        "number",
        "pauses",
        "queued_at",
        "queueing",
        "redone",
        "requeues",
        "resumes",
        "running",
        "saved",
        "service",
        "submitted",
    )

    def __init__(self, job: Job, number: int, submitted: int, service: int) -> None:
        self.job = job
        #: Position in the order of submission; breaks ties between departures.
        self.number = number
        self.submitted = submitted
        self.service = service
        self.queued_at = submitted
        self.running = False
        self.first_start = -1
        self.end = -1
        self.resumes = -1
        #: The time of its valid entry in the event heap; -1 for none.
        self.heap_end = -1
        #: Work that survives the loss of a node.
        self.saved = 0
        self.queueing = 0
        self.delay = 0
        self.redone = 0
        self.pauses = 0
        self.migrations = 0
        self.requeues = 0

    def progress(self, now: int) -> int:
        """Work done so far, of a job that runs."""
        return self.service - (self.end - max(now, self.resumes))

    def keep(self, now: int, period: int | None) -> int:
        """Work that a crash at `now` would leave: up to its last checkpoint, taken every `period` of work."""
        if period is None:
            return self.saved
        done = self.progress(now)
        return max(self.saved, done if period == 0 else done - done % period)
