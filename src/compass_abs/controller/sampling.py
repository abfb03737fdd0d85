"""Looks at the cluster now and then, for the curves and the gauges."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from compass_abs.controller.book import JobPhase
from compass_abs.controller.history import History, Sample
from compass_abs.controller.metrics import Metrics
from compass_abs.controller.reconcile import Controller
from compass_abs.controller.service import Service, ServiceError
from compass_abs.fragmentation import sif

_EVERY = 1.0
_ACTIVE = (JobPhase.STARTING, JobPhase.RUNNING, JobPhase.MIGRATING)


def sample(c: Controller) -> Sample:
    """The cluster now."""
    states = [pool.state for pool in c.pools.values()]
    total = sum(state.available_nodes * state.capacity for state in states)
    free = sum(state.free_gpus for state in states)
    nodes = sum(state.available_nodes for state in states)
    weighted = sum(sif(state) * state.available_nodes for state in states if state.available_nodes)
    return Sample(
        time=c.clock.wall(),
        utilisation=(total - free) / total if total else 0.0,
        sif=weighted / nodes if nodes else 0.0,
        partial_nodes=sum(state.partial_nodes for state in states),
        waiting=c.book.counts[JobPhase.QUEUED],
        running=sum(c.book.counts[phase] for phase in _ACTIVE),
    )


class Sampler:
    """Fills the history while the application runs."""

    def __init__(self, service: Service, history: History, metrics: Metrics) -> None:
        self._service = service
        self._history = history
        self._metrics = metrics

    def _look(self, c: Controller) -> Sample:
        self._metrics.look(c)
        return sample(c)

    async def _sample_for_ever(self) -> None:
        with contextlib.suppress(ServiceError):
            while True:
                self._history.add(await asyncio.wrap_future(self._service.do(self._look)))
                await asyncio.sleep(_EVERY)

    @contextlib.asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        """Begins with the application, ends with it."""
        task = asyncio.create_task(self._sample_for_ever())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
