"""Fragmentation on every level of a topology, averaged over time."""

from dataclasses import asdict, dataclass
from typing import Any

from compass_abs.fragmentation.levels import LevelMeasure, measure_levels
from compass_abs.model import ClusterState
from compass_abs.simulation.meter import Meter
from compass_abs.simulation.observer import Observer


@dataclass(frozen=True, slots=True)
class LevelSummary:
    """One level over a whole run; its nodes are panels on the lowest, and domains above."""

    name: str
    nodes: int
    #: GPUs of a panel, or usable members of a domain.
    capacity: int
    #: SIF of the level, averaged over the time in which somebody waits (its AFR; None where nobody ever does), and
    #: over all of it.
    afr: float | None
    sif: float
    #: Most avoidable partial nodes at any time (N·SIF), against the exact Φ* of the level.
    max_n_sif: int
    #: Most open regions that one domain had, over its members: theorem 2's SIF of a domain. None for panels.
    max_domain_sif: float | None
    #: Nodes that hold nothing, on average.
    empty: float
    #: Share of the time in which the level's composition condition held.
    condition: float

    def as_dict(self) -> dict[str, Any]:
        """Everything by its name."""
        return asdict(self)


class LevelMeter(Observer):
    """Measures every level whenever time passes."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._latest: tuple[LevelMeasure, ...] = measure_levels(state)
        count = len(self._latest)
        self._total = self._peak = 0
        self._sif, self._afr, self._empty = [0.0] * count, [0.0] * count, [0] * count
        self._held, self._most, self._worst = [0] * count, [0] * count, [0.0] * count

    def passed(self, now: int, until: int, meter: Meter, busy: int, waiting: int) -> None:
        """Weighs what the cluster looks like with how long it does."""
        span = until - now
        self._latest = measure_levels(self._state)
        self._total += span
        self._peak += span if waiting else 0
        for k, level in enumerate(self._latest):
            self._sif[k] += span * level.sif
            self._afr[k] += span * level.sif if waiting else 0.0
            self._empty[k] += span * level.empty
            self._held[k] += span if level.margin >= 0 else 0
            self._most[k] = max(self._most[k], level.avoidable)
            self._worst[k] = max(self._worst[k], *(level.sif_of(region) for region in level.regions), 0.0)

    def summary(self) -> tuple[LevelSummary, ...]:
        """Every level, panels first."""
        total, peak = self._total or 1, self._peak
        return tuple(
            LevelSummary(
                level.name,
                level.nodes,
                level.capacity,
                self._afr[k] / peak if peak else None,
                self._sif[k] / total,
                self._most[k],
                self._worst[k] if k else None,
                self._empty[k] / total,
                self._held[k] / total,
            )
            for k, level in enumerate(self._latest)
        )
