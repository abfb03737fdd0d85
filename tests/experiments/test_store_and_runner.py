"""Results that outlive interruptions, and sweeps that carry out only what is missing."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from compass_abs.experiments import (
    Cell,
    Outcome,
    Progress,
    ResultStore,
    SweepError,
    cells_of,
    make_executor,
    run_cells,
)
from tests.experiments.small import small_study


class Counting:
    """Runs here, and remembers what it was given; `stop_after` pulls the plug."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.given: list[Cell] = []
        self._inner = make_executor("local", 1)
        self._stop_after = stop_after

    def run(self, cells: Sequence[Cell]) -> Iterator[Outcome]:
        self.given += cells
        for count, outcome in enumerate(self._inner.run(cells)):
            if count == self._stop_after:
                raise KeyboardInterrupt
            yield outcome


def summaries(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [result["summary"] for result in results]


def test_result_put_and_got_is_the_same(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    assert store.get("ab12") is None
    store.put("ab12", {"summary": {"ajct": 0.1 + 0.2}})
    assert store.get("ab12") == {"summary": {"ajct": 0.1 + 0.2}}


@pytest.mark.parametrize("content", [b"", b'{"summary": {"ajct": 1', b"[]", b"{}", b"\xff\xfe"])
def test_result_half_written_counts_as_none(tmp_path: Path, content: bytes) -> None:
    store = ResultStore(tmp_path)
    store.put("ab12", {"summary": {}})
    next(tmp_path.rglob("ab12.json")).write_bytes(content)
    assert store.get("ab12") is None


def test_sweep_run_again_carries_out_nothing(tmp_path: Path) -> None:
    cells, store = cells_of(small_study()), ResultStore(tmp_path)
    first, second = Counting(), Counting()
    results = run_cells(cells, store, first)
    assert run_cells(cells, store, second) == results
    assert len(first.given) == len(cells)
    assert second.given == []


def test_sweep_with_something_added_carries_out_only_that(tmp_path: Path) -> None:
    store, executor = ResultStore(tmp_path), Counting()
    run_cells(cells_of(small_study()), store, Counting())
    run_cells(cells_of(small_study(schedulers=["gfs", "first-fit", "compass-abs"])), store, executor)
    assert {cell.scheduler for cell in executor.given} == {"first-fit"}


def test_runs_with_equal_inputs_are_carried_out_once(tmp_path: Path) -> None:
    cells = cells_of(small_study(costs=[1, 5, 60], schedulers=["sif-opt", "gfs", "compass-abs"], eta=[0.9]))
    executor = Counting()
    results = run_cells(cells, ResultStore(tmp_path), executor)
    assert len(cells) == 18
    assert sorted(cell.scheduler for cell in executor.given) == ["compass-abs"] * 6 + ["gfs"] * 2 + ["sif-opt"] * 2
    assert len(results) == len(cells)


def test_sweep_interrupted_anywhere_and_run_again_gives_the_same(tmp_path: Path) -> None:
    cells = cells_of(small_study())
    whole = summaries(run_cells(cells, ResultStore(tmp_path / "whole"), Counting()))
    for stop_after in (0, 1, 7, len(cells) - 1):
        store = ResultStore(tmp_path / str(stop_after))
        with pytest.raises(KeyboardInterrupt):
            run_cells(cells, store, Counting(stop_after))
        rest = Counting()
        assert summaries(run_cells(cells, store, rest)) == whole
        assert len(rest.given) == len(cells) - stop_after


def test_failing_run_is_named_and_the_others_are_kept(tmp_path: Path) -> None:
    good = cells_of(small_study(schedulers=["gfs"], eta=[0.9]))
    bad = replace(good[0], nodes=1, eta=None)
    store = ResultStore(tmp_path)
    with pytest.raises(
        SweepError, match=r"1 of 3 runs failed, the others are kept; first gfs on venus .*day 2: job .*"
    ):
        run_cells([bad, *good], store, Counting())
    executor = Counting()
    run_cells(good, store, executor)
    assert executor.given == []


def test_progress_counts_known_and_fresh_runs(tmp_path: Path) -> None:
    cells, store = cells_of(small_study(schedulers=["gfs"])), ResultStore(tmp_path)
    run_cells(cells[:1], store, Counting())
    seen: list[Progress] = []
    run_cells(cells, store, Counting(), seen.append)
    assert [(p.done, p.total, p.known) for p in seen] == [(1, 4, 1), (2, 4, 1), (3, 4, 1), (4, 4, 1)]
    assert [p.share for p in seen] == sorted(p.share for p in seen)
    assert (seen[0].share, seen[-1].share) == (0.0, 1.0)


def test_two_processes_give_what_one_gives(tmp_path: Path) -> None:
    cells = cells_of(small_study(eta=[0.9]))
    one = run_cells(cells, ResultStore(tmp_path / "one"), make_executor("local", 1))
    two = run_cells(cells, ResultStore(tmp_path / "two"), make_executor("local", 2))
    assert summaries(one) == summaries(two)


@pytest.mark.parametrize(
    ("engine", "workers", "options", "complaint"),
    [
        ("lokal", 1, {}, "engine is 'lokal', expected one of local, ray, slurm"),
        ("local", 0, {}, "workers is 0"),
        ("local", 1, {"speed": "9"}, "engine 'local' has no option 'speed'"),
        ("ray", 1, {"speed": "9"}, "engine 'ray' has no option 'speed'"),
        ("slurm", 1, {"speed": "9"}, "engine 'slurm' has no option 'speed'"),
    ],
)
def test_engine_that_cannot_be_had_is_refused(
    engine: str, workers: int, options: dict[str, str], complaint: str
) -> None:
    with pytest.raises(SweepError, match=complaint):
        make_executor(engine, workers, options)
