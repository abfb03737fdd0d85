"""A run as files: complete, the same bytes every time, never over another run unless told to."""

import hashlib
import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from compass_abs.model import Job, NodeStatus
from compass_abs.simulation import Existing, NodeChange, Result, ResultsError, Setup, StrictCost, record
from compass_abs.simulation.perfetto import perfetto_events
from compass_abs.simulation.results import CONFIG, PERFETTO, SUMMARY, TABLES, check_target


def some_jobs() -> list[Job]:
    """Enough of everything to block, move and fragment."""
    return [Job(f"j{i}", 1 + i % 3, 1 + (i * 5) % 8, i * 4.25, 30 + (i * 37) % 91) for i in range(300)]


def some_run() -> Result:
    """COMPASS-ABS with a failing node."""
    changes = (NodeChange(200, "n3", NodeStatus.LOST), NodeChange(400, "n3", NodeStatus.UP))
    setup = Setup("compass-abs", 12, cost=StrictCost(3, 5), node_changes=changes, checkpoint_period=20)
    return record(some_jobs(), setup, about={"name": "some"})


def test_a_run_directory_reads_back_as_it_was(tmp_path: Path) -> None:
    run = some_run()
    run.save(tmp_path / "run")
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == sorted(
        [CONFIG, SUMMARY, PERFETTO, *(f"{table}.parquet" for table in TABLES)]
    )
    back = Result.load(tmp_path / "run")
    assert back.summary == run.summary
    assert back.config == run.config
    for table in TABLES:
        assert getattr(back, table).equals(getattr(run, table))
    assert back.config["setup"]["cost"] == {"model": "strict", "checkpoint": 3, "restore": 5}
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]


def test_a_run_is_not_overwritten_unless_told_to(tmp_path: Path) -> None:
    run = some_run()
    run.save(tmp_path / "run")
    with pytest.raises(ResultsError, match="--force"):
        run.save(tmp_path / "run")
    run.save(tmp_path / "run", Existing.REPLACE)
    (tmp_path / "run" / SUMMARY).unlink()
    with pytest.raises(ResultsError, match="no earlier run"):
        run.save(tmp_path / "run", Existing.REPLACE)


def test_what_is_no_run_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ResultsError, match="no earlier run"):
        some_run().save(tmp_path, Existing.REPLACE)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    with pytest.raises(ResultsError, match="is a file"):
        some_run().save(tmp_path / "thesis.tex", Existing.REPLACE)


def test_a_file_beside_an_earlier_run_outlives_its_replacement(tmp_path: Path) -> None:
    run = some_run()
    run.save(tmp_path / "run")
    (tmp_path / "run" / "notes.txt").write_text("mine")
    (tmp_path / "run" / SUMMARY).write_text("{}")
    run.save(tmp_path / "run", Existing.REPLACE)
    assert Result.load(tmp_path / "run").summary == run.summary
    assert (tmp_path / "run" / "notes.txt").read_text() == "mine"
    assert len(list((tmp_path / "run").iterdir())) == 7


def test_a_run_goes_into_the_working_directory_and_through_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = some_run()
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")
    monkeypatch.chdir(tmp_path / "here")
    run.save(Path())
    run.save(tmp_path / "link", Existing.REPLACE)
    assert (tmp_path / "link").is_symlink()
    assert Result.load(tmp_path / "here").summary == run.summary
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "link"]


def test_a_run_that_cannot_be_written_whole_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("compass_abs.simulation.results.perfetto_events", broken)
    (tmp_path / "empty").mkdir()
    for name in ("run", "empty"):
        with pytest.raises(KeyboardInterrupt):
            some_run().save(tmp_path / name)
    assert list(tmp_path.iterdir()) == [tmp_path / "empty"]
    assert not list((tmp_path / "empty").iterdir())


def test_a_place_that_cannot_hold_a_run_is_refused_before_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place, message in (
        (tmp_path / "file", "is a file"),
        (tmp_path / "file" / "run", "can't be made, because .*file is a file"),
        (Path("/dev/null"), "is a file"),
        (Path("/dev/null/run"), "because /dev/null is a file"),
    ):
        with pytest.raises(ResultsError, match=message):
            check_target(place, Existing.REPLACE)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_lets_nobody_write_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(ResultsError, match="locked doesn't let you"):
        check_target(tmp_path / "locked" / "deep" / "run", Existing.REFUSE)


def test_writing_a_run_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compass_abs.simulation.perfetto._TELL_EVERY", 100)
    run, seen = some_run(), list[int]()
    run.save(tmp_path / "run", progress=seen.append)
    rows = run.events.height + run.timeseries.height
    assert seen == list(range(100, rows + 1, 100))


def test_a_directory_without_a_run_is_named_when_read(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"no run directory: it has no config\.yaml"):
        Result.load(tmp_path)


def test_perfetto_slices_on_a_track_never_overlap_and_arrows_join_them() -> None:
    run = some_run()
    events = list(perfetto_events(run.events, run.timeseries, run.node_names))
    json.dumps(events)
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in events:
        if event["ph"] == "X":
            tracks.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for slices in tracks.values():
        slices.sort()
        assert all(first[1] <= second[0] for first, second in pairwise(slices))
    starts = {event["id"]: event for event in events if event["ph"] == "s"}
    ends = {event["id"]: event for event in events if event["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert len(starts) == run.summary.migrations > 0
    for number, arrow in starts.items():
        slices = tracks[arrow["pid"], arrow["tid"]]
        assert any(begin <= arrow["ts"] <= end for begin, end in slices)
        assert any(begin == ends[number]["ts"] for begin, _ in tracks[ends[number]["pid"], ends[number]["tid"]])
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names[1] == "n0"
    assert names[0] == "cluster"


def test_perfetto_slices_last_as_long_as_gangs_hold_gpus() -> None:
    run = some_run()
    events = list(perfetto_events(run.events, run.timeseries))
    held = sum(event["dur"] * event["args"]["gpus"] for event in events if event["ph"] == "X")
    table = run.jobs
    gpus = table["instances"] * table["gpus"]
    assert held == (gpus * (table["service_us"] + table["delay_us"] + table["redone_us"])).sum()


SCRIPT = """
import sys
from pathlib import Path
from tests.simulation.test_results import some_jobs, some_run
from compass_abs.simulation import Setup, record
target = Path(sys.argv[1])
some_run().save(target / "with-a-failing-node")
for scheduler in ("gfs", "mcg", "drr", "fft", "compass-jit", "random"):
    parameters = {"period": "60"} if scheduler in ("drr", "fft") else {}
    record(some_jobs()[:100], Setup(scheduler, 12, parameters=parameters)).save(target / scheduler)
"""


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    digests = []
    for seed in ("1", "2"):
        target = tmp_path / seed
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", SCRIPT, str(target)], check=True, cwd=root, env=environment)
        files = sorted(path for path in target.rglob("*") if path.is_file())
        digests.append({str(path.relative_to(target)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files})
    assert digests[0] == digests[1]
    logs = [digest for name, digest in digests[0].items() if name.endswith("events.parquet")]
    # Logs of different schedulers differ: they are not equal because nothing happens in them.
    assert len(logs) == len(set(logs)) == 7
