"""What engines know by id and by node is the same, whatever comes and goes."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from compass_abs.engines.local.run_files import RunFiles
from compass_abs.engines.protocol import CheckpointMode, RunId
from compass_abs.engines.run_book import RunBook
from compass_abs.engines.supervised_run import SupervisedRun

STEPS = st.lists(st.tuples(st.sampled_from(["put", "take", "discard"]), st.integers(0, 4), st.integers(0, 2)))


def run_on(files: RunFiles, number: int, node: str) -> SupervisedRun:
    return SupervisedRun(RunId("j", number, 1), node, 1, CheckpointMode.PERIODIC, "", files, 1)


@given(STEPS)
def test_runs_of_a_node_are_those_of_the_book_that_are_on_it(steps: list[tuple[str, int, int]]) -> None:
    files, book = RunFiles.__new__(RunFiles), RunBook[SupervisedRun]()
    for what, number, node in steps:
        found = run_on(files, number, f"n{node}")
        if what == "put":
            book[found.run] = found
        elif what == "discard":
            book.discard(found.run)
        elif found.run in book:
            del book[found.run]
        for name in ("n0", "n1", "n2"):
            assert sorted(run.run for run in book.on(name)) == sorted(
                run.run for run in book.values() if run.node == name
            )


def test_run_that_is_ordered_elsewhere_leaves_its_node(tmp_path: Path) -> None:
    files, book = RunFiles(tmp_path), RunBook[SupervisedRun]()
    first, second = run_on(files, 0, "n1"), run_on(files, 0, "n2")
    book[first.run] = first
    book[second.run] = second
    assert list(book.on("n1")) == []
    assert list(book.on("n2")) == [second]
