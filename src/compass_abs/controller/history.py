"""Utilisation and fragmentation over time: a sample now and then, thinned out as it gets old."""

from typing import NamedTuple


class Sample(NamedTuple):
    """The cluster at one moment."""

    time: float
    utilisation: float
    sif: float
    partial_nodes: int
    waiting: int
    running: int


class History:
    """At most `most` samples: when they get too many, every second one of the older half goes."""

    def __init__(self, most: int = 2000) -> None:
        self._most = most
        self.samples: list[Sample] = []

    def add(self, sample: Sample) -> None:
        """Keeps a sample."""
        self.samples.append(sample)
        if len(self.samples) > self._most:
            half = len(self.samples) // 2
            self.samples[:half] = self.samples[:half:2]

    def since(self, time: float) -> list[Sample]:
        """Samples after a time."""
        return [each for each in self.samples if each.time > time]
