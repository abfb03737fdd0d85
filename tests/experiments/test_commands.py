"""`compass reproduce`, `sweep` and `report` as users call them."""

import contextlib
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from compass_abs.cli.experiments import _lines
from compass_abs.cli.main import app
from compass_abs.experiments import Progress, load_study, read_study, shipped_studies
from compass_abs.model import CompassError
from tests.experiments.small import small_study

runner = CliRunner()


def sweep_file(folder: Path, **changes: object) -> Path:
    path = folder / "mine.yaml"
    study = small_study(figures=[], eta=[0.9], **changes)
    path.write_text(yaml.safe_dump(study.model_dump(mode="json")), encoding="utf-8")
    return path


def test_list_of_studies_names_each_with_its_section() -> None:
    result = runner.invoke(app, ["reproduce", "list"])
    assert result.exit_code == 0
    assert [line.split()[0] for line in result.output.splitlines()] == list(shipped_studies())
    assert "section 6.4, Table 3" in result.output


def test_shown_study_can_be_swept_as_it_is(tmp_path: Path) -> None:
    result = runner.invoke(app, ["reproduce", "case-study", "--show"])
    path = tmp_path / "copy.yaml"
    path.write_text(result.output, encoding="utf-8")
    assert read_study(path) == load_study("case-study")


def test_sweep_of_a_file_writes_its_folder_and_says_where(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["sweep", str(sweep_file(tmp_path)), "--out", str(out), "--workers", "1"]
    first = runner.invoke(app, command)
    assert first.exit_code == 0, first.output
    assert f"A small study: {out / 'small' / 'README.md'}" in first.output
    again = runner.invoke(app, command)
    assert "10 of 10 runs, 10 known before" in again.output
    assert (out / "small" / "runs.parquet").is_file()


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_sweep_on_a_terminal_shows_how_far_it_is_and_how_long_it_will_take(tmp_path: Path) -> None:
    import pty

    ours, theirs = pty.openpty()
    command = ["sweep", str(sweep_file(tmp_path)), "--out", str(tmp_path / "out"), "--workers", "1"]
    process = subprocess.Popen(
        [sys.executable, "-m", "compass_abs", *command],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=dict(os.environ, TERM="xterm", COLUMNS="120"),
    )
    os.close(theirs)
    shown = b""
    # The end of what a terminal shows is an error to whoever reads it.
    with contextlib.suppress(OSError):
        while block := os.read(ours, 4096):
            shown += block
    os.close(ours)
    assert process.wait() == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "0 of 10 runs" in text
    assert re.search(r"10 of 10 runs .*100% \d:\d\d:\d\d gone, 0:00:00 left", text)
    assert any(0 < int(percent) < 100 for percent in re.findall(r"(\d+)%", text))


def test_lines_of_a_log_are_few_and_tell_the_time_that_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A quarter of the work after 60 s: 180 s are left. Between two lines 30 s pass."""
    clock = [1000.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    show = _lines()
    show(Progress(5, 25, 5, 0.0))
    for second, done in ((10, 6), (60, 10), (70, 11), (240, 25)):
        clock[0] = 1000.0 + second
        show(Progress(done, 25, 5, (done - 5) / 20))
    assert capsys.readouterr().err.splitlines() == [
        "5 of 25 runs, 5 known before",
        "10 of 25 runs, 5 known before, about 180 s left",
        "25 of 25 runs, 5 known before",
    ]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["reproduce", "figure-9"], "no study 'figure-9'"),
        (["sweep", "nowhere.yaml"], "nowhere.yaml"),
        (["reproduce", "overall", "--engine", "moon"], "engine is 'moon'"),
        (["reproduce", "overall", "--engine", "ray", "--engine-option", "batch=0"], "option batch is '0'"),
        (["reproduce", "overall", "--engine", "ray", "--engine-option", "adress=x"], "no option 'adress'"),
        (["reproduce", "overall", "--engine", "slurm", "--engine-option", "minutes=x"], "option minutes is 'x'"),
        (["reproduce", "overall", "--engine", "slurm", "--engine-option", "cluster=moon"], "option cluster is 'moon'"),
        (["reproduce", "overall", "--engine-option", "x"], "--engine-option is 'x', expected NAME=VALUE"),
    ],
)
def test_mistake_of_a_user_is_an_error_that_names_it(arguments: list[str], complaint: str) -> None:
    result = runner.invoke(app, arguments)
    assert isinstance(result.exception, CompassError | FileNotFoundError)
    assert complaint in str(result.exception)


@pytest.mark.parametrize("option", ["--out", "--docs"])
@pytest.mark.parametrize("place", ["file", "file/below"])
def test_place_that_can_hold_no_results_is_refused_before_anything_runs(
    tmp_path: Path, option: str, place: str
) -> None:
    (tmp_path / "file").write_text("something else")
    command = ["reproduce", "overall", "--out", str(tmp_path / "out"), option, str(tmp_path / place)]
    result = runner.invoke(app, command)
    assert isinstance(result.exception, CompassError)
    assert str(tmp_path / "file") in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_address_at_which_no_ray_cluster_is_is_said_at_once(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="pip install 'compass-abs[sweep]'")
    with socket.socket() as taken:
        # Bound but not listening: nothing will ever answer there.
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        command = ["sweep", str(sweep_file(tmp_path)), "--out", str(tmp_path / "out")]
        result = runner.invoke(app, [*command, "--engine", "ray", "--engine-option", f"address={address}"])
    assert isinstance(result.exception, CompassError)
    assert f"nothing answers at {address}" in str(result.exception)


def test_report_of_run_directories_is_written_once_and_replaced_only_when_told(tmp_path: Path) -> None:
    from compass_abs.simulation import Setup, record
    from tests.reporting.sample import random_jobs

    record(random_jobs(1, 40, 2), Setup("gfs", 8), about={"name": "made up"}).save(tmp_path / "gfs")
    page = tmp_path / "page.html"
    command = ["report", str(tmp_path / "gfs"), "--out", str(page)]
    assert runner.invoke(app, command).exit_code == 0
    assert "made up" in page.read_text()
    refused = runner.invoke(app, command)
    assert "exists; choose another --out, or replace it with --force" in str(refused.exception)
    assert runner.invoke(app, [*command, "--force"]).exit_code == 0


def test_report_of_nothing_is_refused(tmp_path: Path) -> None:
    result = runner.invoke(app, ["report", str(tmp_path / "nowhere"), "--out", str(tmp_path / "page.html")])
    assert isinstance(result.exception, CompassError)
    assert "is no run directory" in str(result.exception)
