"""Schedulers by name: ours, and those that other packages register."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from compass_abs.model import ClusterState, CompassError
from compass_abs.schedulers.base import Scheduler
from compass_abs.schedulers.parameters import Parameter, ParameterError, checked, parameters_of

#: A package that brings a scheduler names it in this entry point group: `my-rule = "my_package.my_rule:MyRule"`.
ENTRY_POINT_GROUP = "compass_abs.schedulers"


class UnknownSchedulerError(CompassError):
    """A name under which no scheduler is registered."""


class BrokenSchedulerError(CompassError):
    """A registered scheduler that can't be imported, or isn't one."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A name, the class behind it, and the parameters that the name stands for."""

    name: str
    #: `module:Class`, imported when it is first used.
    target: str
    aliases: tuple[str, ...] = ()
    preset: Mapping[str, Any] = field(default_factory=dict)
    #: One line, where the name says more than its class does.
    summary: str = ""
    #: The distribution that registered it; empty for our own.
    package: str = ""


@dataclass(frozen=True, slots=True)
class Listing:
    """What `compass schedulers` says of one scheduler."""

    name: str
    aliases: tuple[str, ...]
    summary: str
    source: str
    parameters: tuple[Parameter, ...]
    package: str = ""
    #: Why it can't be used, for a registered scheduler that fails to import.
    problem: str = ""


def _ours(module: str, target: str) -> str:
    return f"compass_abs.schedulers.{module}:{target}"


_BUILT_IN = (
    Entry("compass-abs", _ours("compass_abs", "CompassAbs")),
    Entry("compass-abs-literal", _ours("compass_literal", "CompassAbsLiteral")),
    Entry("compass-abs-residual", _ours("compass_residual", "CompassAbsResidual")),
    Entry("compass-jit", _ours("jit", "CompassJit")),
    Entry("hierarchical", _ours("hierarchical", "HierarchicalCompass")),
    Entry(
        "hierarchical-literal",
        _ours("hierarchical", "HierarchicalCompass"),
        preset={"fillers": "whole-instances"},
        summary="Appendix D as printed: only whole-panel instances fill domains, and no bound holds.",
    ),
    Entry("hierarchical-jit", _ours("hierarchical_jit", "HierarchicalJit")),
    Entry("hierarchical-best-fit", _ours("hierarchical_baselines", "DomainBestFit")),
    Entry("tightest-rack", _ours("hierarchical_baselines", "TightestRack")),
    Entry("hierarchical-spread", _ours("hierarchical_baselines", "DomainSpread")),
    Entry("hierarchical-opt", _ours("hierarchical_oracle", "DomainOracle")),
    Entry("gfs", _ours("best_fit", "BestFit"), aliases=("best-fit",)),
    Entry("fgd", _ours("fgd", "FragmentationGradientDescent")),
    Entry("cafgd", _ours("cafgd", "ContextAwareFgd")),
    Entry("mcg", _ours("mcg", "McgSched")),
    Entry("drr", _ours("drr", "DefragmentingRescheduler")),
    Entry("fft", _ours("fft", "FastAndFairTraining")),
    Entry("sif-opt", _ours("sif_opt", "FluidOracle")),
    Entry("sif-opt-moves", _ours("sif_opt_moves", "RealisableOracle")),
    Entry("spread", _ours("spread", "LeastAllocated")),
    Entry("pack", _ours("pack", "MostAllocated")),
    Entry("kai", _ours("kai", "KaiConsolidation")),
    Entry("threshold", _ours("threshold", "ThresholdDefragmenter")),
    Entry("slurm", _ours("slurm", "SlurmPacking")),
    Entry("first-fit", _ours("first_fit", "FirstFit")),
    Entry("random", _ours("random_fit", "RandomFit"), aliases=("random-fit",)),
)


def _registered_elsewhere() -> list[EntryPoint]:
    return sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda point: (point.name, point.value))


@cache
def _entries() -> dict[str, Entry]:
    """Every entry by its name; a foreign one never replaces ours."""
    found = {entry.name: entry for entry in _BUILT_IN}
    for point in _registered_elsewhere():
        package = point.dist.name if point.dist is not None else "?"
        found.setdefault(point.name, Entry(point.name, point.value, package=package))
    return found


@cache
def _by_any_name() -> dict[str, Entry]:
    found = {alias: entry for entry in _entries().values() for alias in entry.aliases}
    return found | _entries()


def names() -> tuple[str, ...]:
    """Every name under which `make_scheduler` finds something; no scheduler is imported for it."""
    return tuple(_by_any_name())


def find(name: str) -> Entry:
    """The entry of this name or alias."""
    entry = _by_any_name().get(name)
    if entry is None:
        close = get_close_matches(name, _by_any_name(), n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(_entries()))}"
        raise UnknownSchedulerError(f"there is no scheduler {name!r}; {hint}")
    return entry


def scheduler_class(name: str) -> type[Scheduler]:
    """The class behind a name."""
    entry = find(name)
    module, _, attribute = entry.target.partition(":")
    origin = f"of package {entry.package!r} " if entry.package else ""
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise BrokenSchedulerError(f"scheduler {entry.name!r} {origin}can't be imported: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Scheduler)):
        raise BrokenSchedulerError(
            f"scheduler {entry.name!r} {origin}is {entry.target}, "
            "which is no subclass of compass_abs.schedulers.base.Scheduler"
        )
    return found


def make_scheduler(name: str, state: ClusterState, **parameters: object) -> Scheduler:
    """The scheduler of this name on this state; raises `ParameterError` on a parameter that it doesn't take."""
    entry, kind = find(name), scheduler_class(name)
    values = checked(name, parameters_of(kind), {**entry.preset, **parameters})
    return kind(state, **values)


def describe(name: str) -> Listing:
    """What is known of one scheduler."""
    entry = find(name)
    try:
        kind = scheduler_class(name)
        known = parameters_of(kind)
    except BrokenSchedulerError as error:
        return Listing(entry.name, entry.aliases, entry.summary, "", (), entry.package, str(error))
    summary = entry.summary or (kind.__doc__ or "").strip().partition("\n")[0]
    fixed = [parameter for parameter in known if parameter.name not in entry.preset]
    source = str(getattr(kind, "source", ""))
    return Listing(entry.name, entry.aliases, summary, source, tuple(fixed), entry.package)


def available() -> tuple[Listing, ...]:
    """Every scheduler, with its one line, parameters and source; one that can't be imported says why."""
    return tuple(describe(name) for name in _entries())


def parse_choice(text: str) -> tuple[str, dict[str, str]]:
    """Name and parameters from `fft:period=600,limit=5`, as the command line and sweeps write them."""
    name, _, rest = text.partition(":")
    find(name)
    parameters: dict[str, str] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not equals or not key.strip():
            raise ParameterError(f"scheduler {text!r}: {item!r} isn't name=value")
        parameters[key.strip()] = value.strip()
    return name, parameters
