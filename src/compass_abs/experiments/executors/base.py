"""The protocol of executors: runs in, outcomes out, in whatever order they finish."""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from compass_abs.experiments.cell import Cell, run_cell
from compass_abs.experiments.errors import SweepError
from compass_abs.model import CompassError

_KNOWN = {"local": "LocalExecutor", "ray": "RayExecutor", "slurm": "SlurmExecutor"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a run: a result, or why there is none."""

    #: Position among the runs that were given to the executor.
    position: int
    result: dict[str, Any] | None
    error: str = ""


class Executor(Protocol):
    """Carries out runs. Closing the iterator early abandons those that haven't finished."""

    def run(self, cells: Sequence[Cell]) -> Iterator[Outcome]:
        """Every run's outcome, once, as it becomes known."""
        ...


def attempt(position: int, cell: Cell) -> Outcome:
    """Carries out one run; whatever goes wrong is told, not raised."""
    try:
        return Outcome(position, run_cell(cell))
    except CompassError as error:
        return Outcome(position, None, str(error))
    except Exception:
        return Outcome(position, None, traceback.format_exc())


def attempt_all(batch: Sequence[tuple[int, Cell]]) -> list[Outcome]:
    """Carries out a batch, where sending single runs would cost more than they take."""
    return [attempt(position, cell) for position, cell in batch]


def batches(cells: Sequence[Cell], size: int) -> list[list[tuple[int, Cell]]]:
    """Consecutive runs, `size` at a time; neighbours share a day's jobs."""
    numbered = list(enumerate(cells))
    return [numbered[i : i + size] for i in range(0, len(numbered), size)]


def whole_option(engine: str, options: Mapping[str, str], name: str, default: int, least: int = 1) -> int:
    """An option that is a whole number; raises naming it when it is none, or too small."""
    text = options.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or int(text) < least:
        raise SweepError(f"engine {engine!r}: option {name} is {text!r}, expected a whole number of at least {least}")
    return int(text)


def make_executor(engine: str, workers: int, options: dict[str, str] | None = None) -> Executor:
    """The executor of this name; `options` are its own, such as a Slurm partition or a Ray address."""
    if engine not in _KNOWN:
        raise SweepError(f"engine is {engine!r}, expected one of {', '.join(_KNOWN)}")
    if workers < 1:
        raise SweepError(f"workers is {workers}, expected at least 1")
    module = import_module(f"compass_abs.experiments.executors.{engine}")
    executor: Executor = getattr(module, _KNOWN[engine])(workers, options or {})
    return executor
