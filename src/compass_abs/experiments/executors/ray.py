"""Runs on a Ray cluster."""

import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from compass_abs.experiments.cell import Cell
from compass_abs.experiments.errors import SweepError
from compass_abs.experiments.executors.base import Outcome, attempt_all, batches, whole_option

_OPTIONS = ("address", "batch")
#: Runs in one task: most take less time than starting a task does.
_BATCH = 8
#: Seconds for a head node to accept a connection.
_PATIENCE = 10


class RayExecutor:
    """Uses the cluster at `address` (or $RAY_ADDRESS), and starts one on this machine when there is none.

    Traces and this package must be found on every node under the same paths.
    """

    def __init__(self, workers: int, options: Mapping[str, str]) -> None:
        for option in options:
            if option not in _OPTIONS:
                raise SweepError(f"engine 'ray' has no option {option!r}; it has: {', '.join(_OPTIONS)}")
        self._workers = workers
        self._address = options.get("address")
        self._batch = whole_option("ray", options, "batch", _BATCH)

    def run(self, cells: Sequence[Cell]) -> Iterator[Outcome]:
        """Every run's outcome, as it becomes known."""
        try:
            import ray
        except ImportError as error:
            raise SweepError("engine 'ray' needs Ray: pip install 'compass-abs[sweep]'") from error
        ours = not ray.is_initialized()
        if ours and self._address:
            _knock(self._address)
        if ours:
            try:
                if self._address:
                    ray.init(address=self._address, log_to_driver=False)
                else:
                    ray.init(num_cpus=self._workers, include_dashboard=False, log_to_driver=False)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise SweepError(f"engine 'ray': no cluster at {self._address or 'this machine'}: {error}") from error
        pending: list[Any] = []
        try:
            remote = ray.remote(attempt_all)
            pending = [remote.remote(batch) for batch in batches(cells, self._batch)]
            while pending:
                done, pending = ray.wait(pending, num_returns=1)
                for outcomes in ray.get(done):
                    yield from outcomes
        finally:
            for task in pending:
                ray.cancel(task, force=True)
            if ours:
                ray.shutdown()


def _knock(address: str) -> None:
    """Raises unless something listens at host:port: Ray itself would retry for minutes, then end this process."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon or not port.isdecimal():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except (OSError, OverflowError) as error:
        raise SweepError(
            f"engine 'ray': nothing answers at {address} ({error}); `ray status` on the head node shows its address"
        ) from error
