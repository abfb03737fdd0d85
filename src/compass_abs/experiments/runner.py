"""Carries out what of a study isn't known yet, and collects all of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from compass_abs.experiments.cell import Cell
from compass_abs.experiments.errors import SweepError
from compass_abs.experiments.executors import Executor
from compass_abs.experiments.store import ResultStore
from compass_abs.experiments.workloads import job_count


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a sweep is."""

    done: int
    total: int
    #: Of `done`, how many were known before this sweep began.
    known: int
    #: Of the others, the share that is done, measured in jobs replayed: what the time that is left depends on.
    share: float


def run_cells(
    cells: Sequence[Cell],
    store: ResultStore,
    executor: Executor,
    progress: Callable[[Progress], None] = lambda _: None,
) -> list[dict[str, Any]]:
    """The result of each run, in order; every one is kept the moment it is there.

    Runs whose inputs are equal are carried out once. When some fail the others are carried out all the same, and the
    error names the first.
    """
    keys = [cell.key() for cell in cells]
    todo: dict[str, Cell] = {}
    for key, cell in zip(keys, cells, strict=True):
        if key not in todo and store.get(key) is None:
            todo[key] = cell
    # The largest first, so that none of them is left alone at the end while other workers have nothing to do.
    todo = dict(sorted(todo.items(), key=lambda item: -_weight(item[1])))
    total = len(dict.fromkeys(keys))
    known = done = total - len(todo)
    weight, weight_done = sum(map(_weight, todo.values())), 0
    progress(Progress(done, total, known, 0.0))
    missing, failures = list(todo), list[tuple[Cell, str]]()
    for outcome in executor.run(list(todo.values())):
        if outcome.result is None:
            failures.append((todo[missing[outcome.position]], outcome.error))
        else:
            store.put(missing[outcome.position], outcome.result)
        done += 1
        weight_done += _weight(todo[missing[outcome.position]])
        progress(Progress(done, total, known, weight_done / weight))
    if failures:
        cell, error = failures[0]
        raise SweepError(
            f"{len(failures)} of {total} runs failed, the others are kept; first {cell.scheduler} on "
            f"{cell.workload.name}, day {cell.day}: {error}"
        )
    results = [store.get(key) for key in keys]
    for cell, result in zip(cells, results, strict=True):
        if result is None:
            raise SweepError(f"the result of {cell.scheduler} on {cell.workload.name}, day {cell.day} has vanished")
    return [result for result in results if result is not None]


def _weight(cell: Cell) -> int:
    """Roughly how long a run takes."""
    return job_count(cell.workload, cell.day)
