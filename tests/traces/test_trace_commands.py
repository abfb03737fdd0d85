"""`compass trace ...` as a user types it."""

import json
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from compass_abs.cli.main import app
from compass_abs.model import CompassError
from compass_abs.traces import read_trace
from compass_abs.traces.calibration import model_as_json
from compass_abs.traces.workloads import workload
from tests.traces.files import HELIOS_HEADER, helios_row, write
from tests.traces.test_download import CONTENT, Site, site  # noqa: F401 - a fixture


def compass(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["trace", *map(str, arguments)], catch_exceptions=False)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    rows = [helios_row(i, 8 if i % 3 else 1, f"2020-03-{18 + i // 10} {i % 10 + 5:02d}:00:00", 500) for i in range(30)]
    return write(tmp_path, HELIOS_HEADER, *rows, helios_row("bad", "x", "2020-03-21 00:00:00"), name="small.csv")


def test_list_names_every_trace_and_says_which_are_here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COMPASS_TRACES", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    listed = {row["name"]: row for row in json.loads(compass("list", "--json").stdout)["traces"]}
    assert listed["demo"]["file"]
    assert listed["demo"]["synthetic"]
    assert listed["venus"]["file"] is None
    assert listed["venus"]["licence"] == "CC-BY-4.0"
    table = compass("list").stdout
    assert all(name in table for name in listed)


def test_info_names_bad_rows_or_counts_them(small: Path) -> None:
    with pytest.raises(CompassError, match=r"small\.csv, row 31 \(line 32\): gpu_num is 'x'.*--skip-bad-rows"):
        compass("info", small)
    summary = json.loads(compass("info", small, "--skip-bad-rows", "--json").stdout)
    assert summary["jobs"] == 30
    assert summary["dropped"] == {"bad row: gpu_num": 1}
    assert sum(summary["instance_shares"].values()) == pytest.approx(1.0)
    assert "bad row: gpu_num" in compass("info", small, "--skip-bad-rows").stdout


def test_error_is_one_line_and_exit_code_2(small: Path) -> None:
    command = [sys.executable, "-m", "compass_abs", "trace", "info", str(small)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("compass: ")


def test_info_of_a_day_and_of_a_window_count_its_jobs(small: Path) -> None:
    def jobs(*options: str) -> int:
        number: int = json.loads(compass("info", small, "--skip-bad-rows", "--json", *options).stdout)["jobs"]
        return number

    assert jobs("--day", "2") == 10
    assert jobs("--from", "2020-03-19T06:00", "--to", "2020-03-19T08:00") == 2
    assert jobs("--from", str(86_400 + 6 * 3600)) == 19


def test_info_by_day_agrees_with_the_info_of_each_day(small: Path) -> None:
    days = json.loads(compass("info", small, "--skip-bad-rows", "--by-day", "--json").stdout)["days"]
    assert [(line["day"], line["date"]) for line in days] == [(1, "2020-03-18"), (2, "2020-03-19"), (3, "2020-03-20")]
    for line in days:
        alone = json.loads(compass("info", small, "--skip-bad-rows", "--day", line["day"], "--json").stdout)
        for key in ("jobs", "gpus", "nodes", "instance_shares", "wcc_coverage"):
            assert line[key] == alone[key], key
    assert "2020-03-19" in compass("info", small, "--skip-bad-rows", "--by-day").stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--day", "9"), "days with jobs: 1-3"),
        (("--day", "1", "--from", "0"), "two ways to say the same"),
        (("--from", "soon"), "--from is 'soon', expected seconds or a date"),
        (("--from", "900000", "--to", "900001"), "no job of trace"),
        (("--origin", "then"), "--origin is 'then'"),
        (("--format", "nope"), "format is 'nope'"),
        (("--refill-tail",), "no durations are cut"),
    ],
)
def test_info_asked_for_what_is_not_there_says_so(small: Path, options: tuple[str, ...], message: str) -> None:
    with pytest.raises(CompassError, match=message):
        compass("info", small, "--skip-bad-rows", *options)


def test_info_of_synthetic_jobs_says_so_twice() -> None:
    shown = compass("info", "demo").stdout
    assert "SYNTHETIC" in shown
    assert "synthetic, seed 4" in shown
    assert json.loads(compass("info", "demo", "--json").stdout)["synthetic"] is True


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_convert_writes_a_slice_that_reads_back(small: Path, tmp_path: Path, ending: str) -> None:
    output = tmp_path / f"day{ending}"
    shown = compass("convert", small, output, "--day", "2", "--skip-bad-rows").stdout
    assert "10 jobs" in shown
    trace = read_trace(output)
    assert trace.days() == (2,)
    assert trace.dropped == {"bad row: gpu_num": 1}
    assert str(tmp_path) not in trace.source


def test_convert_replaces_a_file_only_when_told(small: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.csv"
    output.write_text("mine")
    with pytest.raises(CompassError, match="exists; pass --force"):
        compass("convert", small, output, "--skip-bad-rows")
    assert output.read_text() == "mine"
    compass("convert", small, output, "--skip-bad-rows", "--force")
    assert len(read_trace(output).jobs) == 30


def test_synth_with_every_knob_writes_the_command_that_makes_it(tmp_path: Path) -> None:
    output = tmp_path / "s.csv"
    knobs = "--days 2 --seed 9 --load 0.5 --mix .5,.2,.1,.2 --gangs 2 --largest-gang 4 --durations 2 --longest 9000"
    compass("synth", "venus", "-o", output, *knobs.split(), "--diurnal", "0")
    trace = read_trace(output)
    assert trace.synthetic
    assert trace.days() == (1, 2)
    assert max(job.instances for job in trace.jobs) <= 4
    assert max(job.duration or 0 for job in trace.jobs) == 9_000
    again = tmp_path / "again.csv"
    compass(*trace.source.split()[2:], "-o", again)
    assert again.read_bytes() == output.read_bytes()


def test_synth_like_a_trace_and_from_its_model_file_agree(tmp_path: Path) -> None:
    first, second, model = tmp_path / "a.csv", tmp_path / "b.csv", tmp_path / "m.json"
    compass("synth", "--like", "demo", "--seed", "3", "-o", first, "--model-out", model)
    compass("synth", model, "--seed", "3", "-o", second)
    assert read_trace(first).jobs == read_trace(second).jobs


NONSENSE = ("NaN", "Infinity", "-1", "0", "1e308", "null", '"x"', "[]", "{}", "true", "1e-320")


@pytest.mark.parametrize("value", NONSENSE)
def test_synth_from_a_damaged_model_makes_jobs_or_says_what_is_wrong(tmp_path: Path, value: str) -> None:
    whole = json.loads(model_as_json(replace(workload("phys-mix"), jobs_per_day=20.0)))
    path, output = tmp_path / "m.json", tmp_path / "s.csv"
    places: list[tuple[str, ...]] = [(key,) for key in whole]
    places += [("hourly", 3), ("shapes", 2, 0), ("shapes", 2, 1), ("shapes", 2, 2)]  # type: ignore[list-item]
    places += [("durations", 0, 0), ("durations", 0, 1, 1, 0), ("durations", 0, 1, 1, 1)]  # type: ignore[list-item]
    for place in places:
        damaged = json.loads(json.dumps(whole))
        holder = damaged
        for key in place[:-1]:
            holder = holder[key]  # type: ignore[index]
        holder[place[-1]] = json.loads(value)
        path.write_text(json.dumps(damaged))
        with suppress(CompassError):
            compass("synth", path, "-o", output, "--force")
            assert read_trace(output).synthetic, place


def test_synth_with_nothing_to_write_or_a_bad_mix_says_so(tmp_path: Path) -> None:
    with pytest.raises(CompassError, match="nothing to write"):
        compass("synth", "venus")
    with pytest.raises(CompassError, match="--mix is 'a,b'"):
        compass("synth", "venus", "-o", tmp_path / "s.csv", "--mix", "a,b")


def test_fetch_says_the_licence_and_where_the_file_is(site: Site, tmp_path: Path) -> None:  # noqa: F811
    site.files["/saturn/cluster_log.csv"] = CONTENT
    result = compass("fetch", "saturn", "--to", tmp_path, "--mirror", site.address)
    assert "CC-BY-4.0" in result.stderr
    assert "No SHA-256 is published" in result.stderr
    assert Path(result.stdout.strip()).read_bytes() == CONTENT


def test_fetch_checks_the_published_hash(site: Site, tmp_path: Path) -> None:  # noqa: F811
    site.files["/gfs/job_info_df.csv"] = CONTENT
    with pytest.raises(CompassError, match="the published one is 113ccee4"):
        compass("fetch", "gfs", "--to", tmp_path, "--mirror", site.address)


def test_fetch_of_what_has_no_official_file_says_what_has(tmp_path: Path) -> None:
    with pytest.raises(CompassError, match="no trace is named 'mars'; those to fetch are venus"):
        compass("fetch", "mars")
    with pytest.raises(CompassError, match="nothing to download"):
        compass("fetch", "demo", "--to", tmp_path)
