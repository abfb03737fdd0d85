"""`compass simulate`, `compare` and `demo`, as a user calls them."""

import json
import sys
from pathlib import Path

import pytest

from compass_abs.cli import main

PLAIN = "job_id,submitted,duration,instances,gpus\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A small trace that fragments."""
    path = tmp_path / "small.csv"
    rows = [f"j{i},{i * 4},{30 + (i * 37) % 91},{1 + i % 3},{1 + (i * 5) % 8}" for i in range(120)]
    path.write_text(PLAIN + "\n".join(rows) + "\n")
    return path


def compass(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Runs the command line; its exit code."""
    monkeypatch.setattr(sys, "argv", ["compass", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main.run()
    code = stopped.value.code
    return code if isinstance(code, int) else 0


def test_simulate_prints_the_metrics(monkeypatch, capsys, trace) -> None:  # type: ignore[no-untyped-def]
    assert compass(monkeypatch, "simulate", trace, "--nodes", 10) == 0
    shown = capsys.readouterr().out
    assert "120 jobs, 10 nodes of 8 GPUs" in shown
    assert "AJCT" in shown
    assert "× the bound" in shown


def test_simulate_as_json_says_what_was_run_and_what_came_out(monkeypatch, capsys, trace) -> None:  # type: ignore[no-untyped-def]
    arguments = ("simulate", trace, "--nodes", 10, "--scheduler", "gfs", "--queue", "backfill", "--json")
    assert compass(monkeypatch, *arguments, "--cost-model", "strict", "--checkpoint", 2, "--check") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["setup"]["queue"] == "backfill"
    assert found["setup"]["cost"] == {"model": "strict", "checkpoint": 2.0, "restore": 5.0}
    assert found["summary"]["finished"] == 120
    assert found["ratio_to_bound"]["ajct"] > 0
    assert found["trace"]["jobs"] == 120


def test_simulate_writes_a_run_directory_once(monkeypatch, capsys, trace, tmp_path) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "run"
    arguments = ("simulate", trace, "--nodes", 10, "--out", out)
    assert compass(monkeypatch, *arguments) == 0
    assert (out / "jobs.parquet").is_file()
    assert compass(monkeypatch, *arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert compass(monkeypatch, *arguments, "--force") == 0


def test_simulate_replays_node_events(monkeypatch, capsys, trace, tmp_path) -> None:  # type: ignore[no-untyped-def]
    events = tmp_path / "nodes.csv"
    events.write_text("time,node,status\n100,n1,lost\n200,n1,up\n")
    assert compass(monkeypatch, "simulate", trace, "--nodes", 10, "--node-events", events, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["summary"]["requeues"] > 0
    assert found["ratio_to_bound"]["ajct"] > 1
    arguments = ("simulate", trace, "--nodes", 10, "--node-events", events, "--queue", "sjf", "--json")
    assert compass(monkeypatch, *arguments) == 0
    assert json.loads(capsys.readouterr().out)["ratio_to_bound"] == {}


def test_compare_draws_nodes_that_join(monkeypatch, capsys, trace, tmp_path) -> None:  # type: ignore[no-untyped-def]
    events = tmp_path / "nodes.csv"
    events.write_text("time,node,status\n100,n1,lost\n150,extra,up\n200,n1,up\n")
    arguments = ("compare", trace, "--nodes", 10, "--node-events", events, "--schedulers", "gfs,compass-abs")
    assert compass(monkeypatch, *arguments, "--html", tmp_path / "r.html", "--json") == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert list(runs) == ["bound", "gfs", "compass-abs"]
    assert runs["gfs"]["ajct_ratio"] > 1
    assert "11 nodes" in (tmp_path / "r.html").read_text()


def test_compare_sets_schedulers_side_by_side(monkeypatch, capsys, trace, tmp_path) -> None:  # type: ignore[no-untyped-def]
    out = tmp_path / "all"
    arguments = ("compare", trace, "--nodes", 10, "--schedulers", "gfs,compass-abs", "--out", out)
    assert compass(monkeypatch, *arguments) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines() if line.startswith(("bound", "GFS", "COMPASS"))][:2] == [
        "bound",
        "GFS",
    ]
    assert sorted(path.name for path in out.iterdir()) == [
        "bound", "comparison.json", "compass-abs", "gfs", "report.html",
    ]  # fmt: skip
    assert "<html" in (out / "report.html").read_text()
    assert compass(monkeypatch, *arguments) == 2
    assert compass(monkeypatch, *arguments, "--force") == 0


def test_compare_keeps_events_only_where_they_are_drawn(monkeypatch, capsys, trace, tmp_path) -> None:  # type: ignore[no-untyped-def]
    class Kept:
        def __init__(self, state: object) -> None:
            raise AssertionError("events were kept")

    arguments = ("compare", trace, "--nodes", 10, "--schedulers", "gfs,fgd")
    assert compass(monkeypatch, *arguments, "--html", tmp_path / "r.html", "--json") == 0
    drawn = capsys.readouterr().out
    monkeypatch.setattr("compass_abs.reporting.recorder.ReportRecorder", Kept)
    assert compass(monkeypatch, *arguments, "--json") == 0
    assert capsys.readouterr().out == drawn
    with pytest.raises(AssertionError, match="events were kept"):
        compass(monkeypatch, *arguments, "--html", tmp_path / "again.html")


def test_compare_as_json_has_ratios_to_the_bound(monkeypatch, capsys, trace) -> None:  # type: ignore[no-untyped-def]
    assert compass(monkeypatch, "compare", trace, "--nodes", 10, "--schedulers", "gfs,fgd", "--json") == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert list(runs) == ["bound", "gfs", "fgd"]
    assert runs["bound"]["ajct_ratio"] == 1
    assert runs["gfs"]["ajct_ratio"] == runs["gfs"]["ajct"] / runs["bound"]["ajct"]


def test_compare_gives_parameters_to_the_scheduler_that_is_named(monkeypatch, capsys, trace) -> None:  # type: ignore[no-untyped-def]
    arguments = ("compare", trace, "--nodes", 10, "--schedulers", "gfs,cafgd", "--set", "cafgd.wait=0", "--json")
    assert compass(monkeypatch, *arguments) == 0
    assert [setup["parameters"] for setup in json.loads(capsys.readouterr().out)["setups"]] == [{}, {"wait": "0"}]


def test_demo_compares_on_the_bundled_sample(monkeypatch, capsys, tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert compass(monkeypatch, "demo", "--out", tmp_path / "demo", "--quiet") == 0
    shown = capsys.readouterr().out
    assert "COMPASS-ABS" in shown
    assert "synthetic" in shown
    report = tmp_path / "demo" / "report.html"
    assert report.stat().st_size > 50_000
    assert compass(monkeypatch, "demo", "--out", tmp_path / "demo", "--quiet") == 0
    report.write_text("<html>mine</html>")
    assert compass(monkeypatch, "demo", "--out", tmp_path / "demo", "--quiet") == 2
    assert "report.html isn't replaced" in capsys.readouterr().err
    assert report.read_text() == "<html>mine</html>"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--nodes", 1), "at least"),
        (("--queue", "lifo"), "no queue 'lifo'"),
        (("--scheduler", "nobody"), "no scheduler 'nobody'"),
        (("--set", "wait"), "expected NAME=VALUE"),
        (("--set", "gfs.wait=1"), "'gfs' isn't among the schedulers compass-abs"),
        (("--set", "colour=red"), "no parameter 'colour'"),
        (("--cost", -1), "migration cost is -1.0"),
        (("--cost-model", "free"), "'free'; known: paper, strict"),
        (("--checkpoint-period", -1), "--checkpoint-period is -1.0"),
        (("--eta", 1.5), "eta is 1.5"),
        (("--window", "7"), "expected FROM:TO"),
        (("--window", "a:b"), "such as 0:86400, 2020-06-17:2020-06-19 or 2020-06-17T21:00/2020-06-17T22:30"),
        (("--window", "0/soon"), "such as 0:86400"),
        (("--window", "2020-06-17:2020-06-19"), "the trace has no dates"),
        (("--window", "0:9", "--day", 1), "exclude each other"),
        (("--day", 7), "day 7"),
        (("--node-events", "/nowhere.csv"), "/nowhere.csv"),
        (("--window", "5000:6000"), "no job of trace 'small' was submitted in [5000, 6000) s"),
        (("--checkpoint", 2), "are for model strict"),
        (("--nodes", 10**9), "nodes is 1,000,000,000, expected at most 1,000,000"),
        (("--capacity", 4, "--topology", "hgx"), "exclude each other"),
        (("--capacity", 4), "--capacity changes it"),
        (("--out", "/dev/null"), "is a file"),
        (("--out", "/dev/null/run"), "because /dev/null is a file"),
    ],
)
def test_a_mistake_is_one_plain_line(monkeypatch, capsys, trace, arguments, message) -> None:  # type: ignore[no-untyped-def]
    assert compass(monkeypatch, "simulate", trace, *arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("compass: ")
    assert not captured.out


@pytest.mark.parametrize("names", ["", "gfs,gfs", "gfs,nobody"])
def test_compare_refuses_names_it_cannot_use(monkeypatch, capsys, trace, names) -> None:  # type: ignore[no-untyped-def]
    assert compass(monkeypatch, "compare", trace, "--schedulers", names) == 2
    assert capsys.readouterr().err.startswith("compass: ")


def test_compare_refuses_to_replace_what_is_no_comparison(monkeypatch, capsys, trace, tmp_path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "mine.txt").write_text("x")
    assert compass(monkeypatch, "compare", trace, "--schedulers", "gfs", "--out", tmp_path, "--force") == 2
    assert compass(monkeypatch, "compare", trace, "--schedulers", "gfs", "--html", tmp_path / "mine.txt") == 2
    assert (tmp_path / "mine.txt").read_text() == "x"


@pytest.mark.parametrize("place", ["/dev/null", "/dev/null/report.html", "folder"])
def test_compare_and_demo_refuse_a_report_that_cannot_be_written(  # type: ignore[no-untyped-def]
    monkeypatch, capsys, trace, tmp_path, place
) -> None:
    (tmp_path / "folder").mkdir()
    monkeypatch.chdir(tmp_path)
    assert compass(monkeypatch, "compare", trace, "--schedulers", "gfs", "--html", place, "--force") == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("compass: ")
    assert not captured.out
    assert compass(monkeypatch, "demo", "--out", "/dev/null") == 2
    assert "/dev/null is a file" in capsys.readouterr().err


def test_compare_replacing_a_comparison_leaves_no_run_of_the_old_one(  # type: ignore[no-untyped-def]
    monkeypatch, capsys, trace, tmp_path
) -> None:
    out = tmp_path / "all"
    assert compass(monkeypatch, "compare", trace, "--schedulers", "gfs,fgd", "--out", out) == 0
    (out / "notes").mkdir()
    arguments = ("compare", trace, "--window", "0:200", "--schedulers", "gfs", "--out", out)
    assert compass(monkeypatch, *arguments) == 2
    assert "--force" in capsys.readouterr().err
    assert compass(monkeypatch, *arguments, "--force") == 0
    assert sorted(path.name for path in out.iterdir()) == ["bound", "comparison.json", "gfs", "notes", "report.html"]
    assert compass(monkeypatch, "report", out, "--out", tmp_path / "again.html") == 0


def test_a_window_between_dates_ends_before_the_second(monkeypatch, capsys, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "dated.csv"
    rows = [f"j{day},2024-02-{day} 23:00:00,60,1,8" for day in range(26, 30)]
    path.write_text("\n".join([PLAIN.strip().replace("submitted", "submitted_at"), *rows]) + "\n")
    arguments = ("simulate", path, "--nodes", 1, "--json", "--window")
    assert compass(monkeypatch, *arguments, "2024-02-27:2024-02-29") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["summary"]["jobs"] == 2
    assert found["trace"]["part"] == "window 86400:259200"
    assert compass(monkeypatch, *arguments, "2024-02-27T23:00/2024-02-28T23:00") == 0
    assert json.loads(capsys.readouterr().out)["trace"]["part"] == "window 169200:255600"
    assert compass(monkeypatch, *arguments, "86400:2024-02-28") == 0
    assert json.loads(capsys.readouterr().out)["summary"]["jobs"] == 1


def test_nodes_that_are_racks_ask_for_their_topology(monkeypatch, capsys, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "racks.csv"
    path.write_text("# capacity: 72\n" + PLAIN + "a,0,10,1,72\nb,0,10,1,3\n")
    assert compass(monkeypatch, "simulate", path) == 2
    assert "give their --topology, such as nvl72" in capsys.readouterr().err
    assert compass(monkeypatch, "simulate", path, "--topology", "nvl72", "--scheduler", "hierarchical") == 0
    assert compass(monkeypatch, "trace", "info", path, "--by-day") == 0
    assert "says nothing of nodes of 72" in capsys.readouterr().out


def test_rows_out_of_order_are_refused_or_sorted(monkeypatch, capsys, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "late.csv"
    path.write_text(PLAIN + "a,50,10,1,4\nb,0,10,1,4\n")
    assert compass(monkeypatch, "simulate", path) == 2
    assert "row 2 (line 3)" in capsys.readouterr().err
    assert compass(monkeypatch, "simulate", path, "--any-order", "--capacity", 4, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["summary"]["finished"] == 2
    assert found["setup"]["capacity"] == 4
    assert any("1 row was out of order" in note for note in found["trace"]["notes"])
    assert found["trace"]["reading"] == {"any_order": True, "capacity": 4}


def test_a_full_disk_is_one_plain_line(monkeypatch, capsys, trace) -> None:  # type: ignore[no-untyped-def]
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("compass_abs.simulation.results.perfetto_events", full)
    assert compass(monkeypatch, "simulate", trace, "--out", trace.parent / "run") == 2
    assert capsys.readouterr().err == "compass: No space left on device\n"
    assert not (trace.parent / "run").exists()


def test_compare_takes_settings_of_one_scheduler_side_by_side(monkeypatch, capsys, trace, tmp_path) -> None:  # type: ignore[no-untyped-def]
    names = "cafgd,cafgd:wait=0,patience=0.1,gfs"
    arguments = ("compare", trace, "--nodes", 10, "--schedulers", names, "--out", tmp_path / "all", "--json")
    assert compass(monkeypatch, *arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found["runs"]) == ["bound", "cafgd", "cafgd:wait=0,patience=0.1", "gfs"]
    assert [setup["parameters"] for setup in found["setups"]] == [{}, {"wait": "0", "patience": "0.1"}, {}]
    assert (tmp_path / "all" / "cafgd-wait-0-patience-0.1" / "summary.json").is_file()
    assert compass(monkeypatch, "report", tmp_path / "all", "--out", tmp_path / "again.html") == 0
    assert "CAFGD (wait 0, patience 0.1)" in (tmp_path / "again.html").read_text()


def test_simulate_where_nobody_waits_shows_no_averages_over_waiting(monkeypatch, capsys, trace) -> None:  # type: ignore[no-untyped-def]
    assert compass(monkeypatch, "simulate", trace, "--nodes", 500, "--json") == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert (summary["peak_seconds"], summary["afr"], summary["agu"]) == (0, None, None)
    assert compass(monkeypatch, "simulate", trace, "--nodes", 500) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("AGU"))
    assert line.split()[-3:] == ["–", "nobody", "waits"]
    assert compass(monkeypatch, "compare", trace, "--nodes", 500, "--schedulers", "gfs,fgd") == 0
    assert "–" in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("FGD"))


def test_jobs_of_several_pools_on_one_cluster_are_said_to_be(monkeypatch, capsys, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "pools.csv"
    path.write_text(PLAIN.replace("gpus", "gpus,pool") + "a,0,10,1,8,a100\nb,0,10,1,8,h100\n")
    assert compass(monkeypatch, "simulate", path) == 0
    assert "note: jobs of 2 pools (a100, h100) are replayed on one cluster" in capsys.readouterr().out
    path.write_text(PLAIN.replace("gpus", "gpus,pool") + "a,0,10,1,8,a100\nb,0,10,1,8,\n")
    assert compass(monkeypatch, "simulate", path) == 0
    assert "note: " not in capsys.readouterr().out
