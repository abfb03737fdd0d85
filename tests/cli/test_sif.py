"""`compass sif` as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from compass_abs.cli import main

SNAPSHOT = """\
node,capacity,instances,pool
n0,8,4:a,h100
n1,8,4:a,h100
n2,8,7:b,h100
n3,8,,h100
m0,4,3 1!,old
"""


def run(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of the command line with these arguments."""
    monkeypatch.setattr(sys, "argv", ["compass", *arguments])
    try:
        main.run()
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    path = tmp_path / "cluster.csv"
    path.write_text(SNAPSHOT)
    return str(path)


def test_sif_as_json_gives_every_measure_of_every_pool(
    snapshot: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sif", snapshot, "--json"], monkeypatch) == 0
    h100, old = json.loads(capsys.readouterr().out)["pools"]
    expected = {
        "pool": "h100",
        "nodes": 4,
        "free_gpus": 17,
        "partial_nodes": 3,
        "unavoidable_partial_nodes": 1,
        "avoidable_partial_nodes": 2,
        "gross": 0.75,
        "inherent": 0.25,
        "sif": 0.5,
        "used_nodes": 3,
        "fewest_used_nodes": 2,
        "wcc_margin": -1,
        "wcc_holds": False,
        "pinned_instances": 0,
    }
    assert {key: h100[key] for key in expected} == expected
    assert [gang["now"] for gang in h100["largest_gangs"]] == [17, 8, 4, 4, 1, 1, 1, 1]
    assert [gang["repacked"] for gang in h100["largest_gangs"]] == [17, 8, 4, 4, 2, 2, 2, 2]
    assert (old["pool"], old["capacity"], old["sif"], old["pinned_instances"]) == ("old", 4, 0.0, 1)


def test_sif_table_shows_each_pool_with_its_split_and_gangs(
    snapshot: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sif", snapshot], monkeypatch) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "Pool h100: 4 nodes of 8 GPUs; 17 of 32 GPUs free" in lines
    assert any(line.startswith("partial (F) 3 0.7500") for line in lines)
    assert any(line.startswith("unavoidable (F*) 1 0.2500") for line in lines)
    assert any(line.startswith("avoidable (SIF) 2 0.5000") for line in lines)
    assert any(line.startswith("WCC margin -1") for line in lines)
    assert "8-GPU instances 1 2 53%" in lines
    assert "Pool old: 1 node of 4 GPUs; 0 of 4 GPUs free" in lines
    assert any(line.startswith("reclaimable 0 0.0000 by moves around the 1 pinned instance") for line in lines)


def test_sif_reads_standard_input_and_prints_plain_text_to_a_pipe() -> None:
    command = [sys.executable, "-m", "compass_abs", "sif"]
    done = subprocess.run(command, input=SNAPSHOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "Pool h100" in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("node,capacity,instances\nn0,8,4\nn1,8,9\n", "cluster.csv: row 3: node 'n1': an instance has 9 GPUs"),
        ('{"nodes": [{"node": "n0", "capacity": 8, "instances": [-1]}]}', "nodes[0]: instances[0]: gpus is -1"),
        ("", "cluster.csv: is empty"),
    ],
)
def test_sif_of_bad_input_says_where_in_one_line_and_exits_with_2(
    content: str,
    said: str,
    snapshot: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path(snapshot).write_text(content)
    assert run(["sif", snapshot], monkeypatch) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert printed.err.startswith("compass: ")
    assert len(printed.err.splitlines()) == 1


def test_sif_of_a_missing_file_exits_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["sif", str(tmp_path / "nowhere.json")], monkeypatch) == 2
    assert "nowhere.json: No such file" in capsys.readouterr().err
