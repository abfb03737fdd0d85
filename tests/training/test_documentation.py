"""The page's example does what the page says."""

import json
import re
from pathlib import Path

import pytest

from compass_abs.training.standby import fork_successor

_PAGE = Path(__file__).parents[2] / "docs" / "checkpoint-contract.md"
_GIVEN = """
import os, signal, torch
class MyModel(torch.nn.Linear):
    def __init__(self):
        super().__init__(3, 1)
    def forward(self, x):
        return super().forward(x).square().mean()
torch.manual_seed(0)
def next_batch(data):
    x = torch.randn(4, 3, generator=data)
    print(x.sum().item().hex(), flush=True)
    next_batch.calls = getattr(next_batch, "calls", 0) + 1
    if next_batch.calls == int(os.environ.get("STOP_AT", "0")):
        os.kill(os.getpid(), signal.SIGTERM)
    return x
"""


def test_example_of_the_page_goes_on_where_it_was_stopped(standby: Path, tmp_path: Path) -> None:
    found = re.search(r"## Adopt a session\n+```python\n(.*?)```", _PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    example = found[1].replace(".cuda()", "").replace("10_000", "40")
    assert len(found[1].splitlines()) <= 25
    (tmp_path / "train.py").write_text(_GIVEN + example)

    def run(folder: str, **environment: str) -> None:
        (tmp_path / folder).mkdir(exist_ok=True)
        process = fork_successor(
            standby,
            [str(tmp_path / "train.py")],
            environment,
            cwd=tmp_path / folder,
            output=tmp_path / folder / "output",
        )
        assert process.wait(30) == 0, (tmp_path / folder / "output").read_text()

    run("whole")
    run("parts", STOP_AT="7")
    assert len((tmp_path / "parts" / "output").read_text().splitlines()) == 7
    run("parts")
    lines = (tmp_path / "whole" / "output").read_text().splitlines()
    assert len(lines) == 40
    assert (tmp_path / "parts" / "output").read_text().splitlines() == lines


@pytest.mark.parametrize("name", ["wrap", "standby", "workloads"])
def test_programs_of_the_page_exist(name: str) -> None:
    page = _PAGE.read_text(encoding="utf-8")
    assert f"python -m compass_abs.training.{name}" in page
    folder = Path(__file__).parents[2] / "src" / "compass_abs" / "training"
    assert (folder / f"{name}.py").exists() or (folder / name / "__main__.py").exists()


def test_measurements_in_the_page_are_those_that_are_kept() -> None:
    from benchmarks.migration_results import BEGIN, END, tables

    shown = _PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    results = _PAGE.parents[1] / "benchmarks" / "results" / "migration-h200.json"
    assert shown.strip() == tables(json.loads(results.read_text(encoding="utf-8"))).strip()
