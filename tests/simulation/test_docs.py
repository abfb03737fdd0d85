"""The page on the simulator says what is so."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from compass_abs.queues import QUEUES
from compass_abs.simulation import Summary
from compass_abs.simulation.recorder import EVENT_COLUMNS, JOB_COLUMNS, SERIES_COLUMNS

PAGE = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text("utf-8")


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    example = re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    exec(compile(example[1], "docs/simulator.md", "exec"), {})
    assert "move" in capsys.readouterr().out


def test_every_queue_is_on_the_page() -> None:
    assert [name for name in QUEUES if f"`{name}`" not in PAGE] == []


def test_every_name_of_a_metric_or_column_on_the_page_exists() -> None:
    known = {field.name for field in fields(Summary)} | {*EVENT_COLUMNS, *JOB_COLUMNS, *SERIES_COLUMNS}
    measured = PAGE[PAGE.index("## What is measured") : PAGE.index("## From Python")]
    names = set(re.findall(r"`([a-z]+_[a-z_0-9]+)`", measured))
    assert names - known == set()
    assert len(names) > 25
