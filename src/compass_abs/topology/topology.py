"""Levels of an NVLink system as data: GPUs make a panel, panels a domain, domains a further tier.

The paper (appendix D) calls G_p GPUs a panel and K panels a domain, and takes G_p = 8. Real racks differ: an NVL72 has
18 trays of 4 GPUs, of which an operator may use 16 and keep two as spares.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from compass_abs.model import CompassError, InvalidJobError, Job
from compass_abs.model.cluster_state import LARGEST_CAPACITY


class TopologyError(CompassError):
    """A topology that makes no sense, or a cluster that it can't have."""


@dataclass(frozen=True, slots=True)
class Level:
    """A domain: `size` of what the level below is made of, of which `usable` run jobs and the others are spares."""

    name: str
    size: int
    usable: int

    def __post_init__(self) -> None:
        if not self.name:
            raise TopologyError("a level has no name; call it what you call it, such as rack")
        if type(self.size) is not int or not 1 <= self.size <= LARGEST_CAPACITY:
            raise TopologyError(
                f"level {self.name!r}: size is {self.size!r}, expected a whole number from 1 to {LARGEST_CAPACITY}"
            )
        if type(self.usable) is not int or not 1 <= self.usable <= self.size:
            raise TopologyError(f"level {self.name!r}: usable is {self.usable!r}, expected 1 to its size, {self.size}")


class Demand(NamedTuple):
    """What an instance asks of a topology: `units` of the members of `level`."""

    #: 0 for GPUs of a panel, 1 for panels of the first domain level, and so on.
    level: int
    units: int


@dataclass(frozen=True, slots=True)
class Topology:
    """`panel_gpus` GPUs (G_p) make a panel, and `levels[0].usable` panels (K) the smallest domain."""

    name: str
    panel_gpus: int
    levels: tuple[Level, ...]
    panel_name: str = "panel"

    def __post_init__(self) -> None:
        if type(self.panel_gpus) is not int or not 1 <= self.panel_gpus <= LARGEST_CAPACITY:
            raise TopologyError(
                f"topology {self.name!r}: a {self.panel_name} has {self.panel_gpus!r} GPUs, "
                f"expected a whole number from 1 to {LARGEST_CAPACITY}"
            )
        if not self.levels:
            raise TopologyError(f"topology {self.name!r} has no levels; a flat cluster has one of size 1")
        for level in self.levels if len(self.levels) > 1 else ():
            if level.usable == 1:
                raise TopologyError(f"topology {self.name!r}: level {level.name!r} has one member; leave it out")
        names = [self.panel_name, *(level.name for level in self.levels)]
        for name in names:
            if names.count(name) > 1:
                raise TopologyError(f"topology {self.name!r}: two levels are called {name!r}; give each its own name")

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Topology":
        """The topology that `dataclasses.asdict` made these plain values of."""
        levels = tuple(Level(**level) for level in values["levels"])
        return cls(values["name"], values["panel_gpus"], levels, values["panel_name"])

    def panels(self, level: int) -> int:
        """Usable panels in a domain of `levels[level]`."""
        count = 1
        for each in self.levels[: level + 1]:
            count *= each.usable
        return count

    @property
    def panels_per_domain(self) -> int:
        """Usable panels of the largest domain: what a cluster is built of."""
        return self.panels(len(self.levels) - 1)

    def gpus(self, level: int) -> int:
        """Usable GPUs in a domain of `levels[level]`."""
        return self.panel_gpus * self.panels(level)

    @property
    def largest_instance(self) -> int:
        """GPUs of the largest domain: no instance can have more."""
        return self.gpus(len(self.levels) - 1)

    def demand(self, gpus: int) -> Demand:
        """At which level an instance of this size lives, and how much of a domain there it takes, rounded up."""
        if gpus <= self.panel_gpus:
            return Demand(0, gpus)
        member = self.panel_gpus
        for number, level in enumerate(self.levels, start=1):
            if gpus <= member * level.usable:
                return Demand(number, -(-gpus // member))
            member *= level.usable
        raise InvalidJobError(
            f"an instance of {gpus} GPUs fits no domain of topology {self.name!r}, whose largest has {member}; "
            "split it into more instances of fewer GPUs"
        )

    def panels_of(self, gpus: int) -> int:
        """Whole panels that an instance larger than a panel is held on."""
        level, units = self.demand(gpus)
        return units if level == 1 else units * self.panels(level - 2)

    def pieces(self, job: Job) -> Job:
        """The job as it is held: itself, or a gang of whole panels."""
        if job.gpus <= self.panel_gpus:
            return job
        return replace(job, instances=job.instances * self.panels_of(job.gpus), gpus=self.panel_gpus)

    def domains(self, panels: int) -> int:
        """How many of the largest domains this many panels make; they must be whole."""
        each = self.panels_per_domain
        if panels % each:
            whole = -(-panels // each) * each
            raise TopologyError(
                f"{panels} {self.panel_name}s don't make whole {self.levels[-1].name}s of {each} each; take {whole}"
            )
        return panels // each

    def described(self, panels: int) -> str:
        """A cluster of so many panels in words, such as 18 racks of 9 panels of 8 GPUs."""
        counts = [(panels // self.panels_per_domain, self.levels[-1].name)]
        members = [self.panel_name, *(level.name for level in self.levels)]
        for level, member in reversed(list(zip(self.levels, members, strict=False))):
            if level.usable > 1:
                counts.append((level.usable, member))
        counts.append((self.panel_gpus, "GPU"))
        return " of ".join(f"{count:,} {name}{'s' if count != 1 else ''}" for count, name in counts)

    def panel_names(self, panels: int) -> list[str]:
        """Names that say where each panel is, such as rack0-tray3."""
        names = []
        for panel in range(panels):
            parts, left = [f"{self.panel_name}{panel % self.levels[0].usable}"], panel
            for number, level in enumerate(self.levels):
                left //= level.usable
                top = number == len(self.levels) - 1
                parts.append(f"{level.name}{left if top else left % self.levels[number + 1].usable}")
            names.append("-".join(reversed(parts)))
        return names
