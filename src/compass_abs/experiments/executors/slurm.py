"""Runs as a job array on a Slurm cluster, through submitit."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import Any

from compass_abs.experiments.cell import Cell
from compass_abs.experiments.errors import SweepError
from compass_abs.experiments.executors.base import Outcome, attempt_all, batches, whole_option

_MINUTES = 120
_CLUSTERS = ("slurm", "local")


class SlurmExecutor:
    """`workers` array tasks at a time. Options: `folder` (shared, for logs), `minutes`, `batch`, `cluster`, and
    everything that submitit passes on, such as `slurm_partition`.

    `cluster=local` runs the same tasks as processes of this machine, which is how to try it out without Slurm.
    """

    def __init__(self, workers: int, options: Mapping[str, str]) -> None:
        self._workers = workers
        rest = dict(options)
        self._folder = Path(rest.pop("folder", "runs/slurm"))
        self._minutes = whole_option("slurm", options, "minutes", _MINUTES)
        self._batch = whole_option("slurm", options, "batch", 0)
        self._cluster = rest.pop("cluster", "slurm")
        if self._cluster not in _CLUSTERS:
            raise SweepError(f"engine 'slurm': option cluster is {self._cluster!r}, expected {' or '.join(_CLUSTERS)}")
        rest = {name: text for name, text in rest.items() if name not in ("minutes", "batch")}
        for option in rest:
            if not option.startswith("slurm_"):
                raise SweepError(f"engine 'slurm' has no option {option!r}; submitit's own begin with 'slurm_'")
        self._parameters = rest

    def run(self, cells: Sequence[Cell]) -> Iterator[Outcome]:
        """Every run's outcome, as it becomes known."""
        try:
            import submitit
        except ImportError as error:
            raise SweepError("engine 'slurm' needs submitit: pip install 'compass-abs[sweep]'") from error
        # A few batches for each worker, so that a slow one doesn't keep everybody waiting.
        size = self._batch or max(1, ceil(len(cells) / (4 * self._workers)))
        parts = batches(cells, size)
        jobs: list[Any] = []
        try:
            executor = submitit.AutoExecutor(folder=self._folder, cluster=self._cluster)
            executor.update_parameters(
                timeout_min=self._minutes,
                name="compass-sweep",
                slurm_array_parallelism=self._workers,
                **self._parameters,
            )
            jobs = executor.map_array(attempt_all, parts)
            for job in submitit.helpers.as_completed(jobs, poll_frequency=1):
                yield from self._outcomes(job, parts[jobs.index(job)])
        # What submitit says of a parameter that it doesn't know is a NameError; its first line says all.
        except NameError as error:
            raise SweepError(f"engine 'slurm': {str(error).splitlines()[0]}") from error
        except RuntimeError as error:
            raise SweepError(f"engine 'slurm': {error}") from error
        finally:
            for job in jobs:
                if not job.done():
                    job.cancel()

    def _outcomes(self, job: Any, batch: Sequence[tuple[int, Cell]]) -> list[Outcome]:
        error = job.exception()
        if error is None:
            outcomes: list[Outcome] = job.result()
            return outcomes
        reason = f"Slurm job {job.job_id} failed: {error}; see {job.paths.stderr}"
        return [Outcome(position, None, reason) for position, _ in batch]
