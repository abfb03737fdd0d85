"""Every published layout, on files of a few made-up rows."""

import gzip
import json
from datetime import datetime
from pathlib import Path

import pytest

from compass_abs.traces import BadRows, NodeGroup, TraceError, read_trace
from compass_abs.traces.formats.splitting import equal_instances
from compass_abs.traces.gathering import LeftOut
from tests.traces.files import (
    ACME_HEADER,
    GFS_HEADER,
    HELIOS_HEADER,
    OPENB_HEADER,
    acme_row,
    gfs_row,
    helios_row,
    openb_row,
    write,
)


def shapes(path: Path) -> list[tuple[int, int]]:
    return [(job.instances, job.gpus) for job in read_trace(path).jobs]


# ---- Helios


@pytest.mark.parametrize(
    ("gpus", "instances", "each"),
    [(1, 1, 1), (7, 1, 7), (8, 1, 8), (12, 2, 6), (14, 2, 7), (16, 2, 8), (24, 3, 8), (200, 25, 8), (21, 3, 7)],
)
def test_helios_job_of_many_gpus_becomes_fewest_equal_instances(
    tmp_path: Path, gpus: int, instances: int, each: int
) -> None:
    assert shapes(write(tmp_path, HELIOS_HEADER, helios_row(gpus=gpus))) == [(instances, each)]


@pytest.mark.parametrize("capacity", [1, 2, 4, 8, 16])
def test_equal_instances_are_equal_fit_a_node_and_are_the_fewest(capacity: int) -> None:
    for gpus in range(1, 300):
        split = equal_instances(gpus, capacity)
        fewest = next(w for w in range(1, gpus + 1) if w * capacity >= gpus)
        if isinstance(split, LeftOut):
            assert gpus % fewest != 0
        else:
            assert split[0] == fewest
            assert split[0] * split[1] == gpus
            assert split[1] <= capacity


def test_helios_rows_outside_the_study_are_counted_by_reason(tmp_path: Path) -> None:
    rows = [helios_row(1, 0), helios_row(2, 9), helios_row(3, 20), helios_row(4, 1, duration=0), helios_row(5, 2)]
    trace = read_trace(write(tmp_path, HELIOS_HEADER, *rows))
    assert [job.id for job in trace.jobs] == ["5"]
    assert trace.dropped == {
        "asks for no GPU": 1,
        "GPUs do not split into equal instances": 2,
        "never ran": 1,
    }


def test_helios_times_count_from_the_first_midnight(tmp_path: Path) -> None:
    rows = [helios_row(1, submitted="2020-03-18 04:01:39"), helios_row(2, submitted="2020-03-20 00:00:00")]
    trace = read_trace(write(tmp_path, HELIOS_HEADER, *rows))
    assert [job.submitted for job in trace.jobs] == [4 * 3600 + 99, 2 * 86400]
    assert trace.origin == datetime(2020, 3, 18)
    assert trace.days() == (1, 3)
    assert trace.date(3) == "2020-03-20"


def test_helios_with_an_origin_counts_days_from_it(tmp_path: Path) -> None:
    path = write(tmp_path, HELIOS_HEADER, helios_row())
    assert read_trace(path, origin=datetime(2020, 3, 17, 13)).days() == (2,)
    with pytest.raises(TraceError, match="before the origin"):
        read_trace(path, origin=datetime(2020, 3, 19))


def test_venus_by_its_name_pins_day_one_whatever_its_first_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "venus").mkdir()
    write(tmp_path / "venus", HELIOS_HEADER, helios_row(submitted="2020-06-17 10:00:00"), name="cluster_log.csv")
    monkeypatch.setenv("COMPASS_TRACES", str(tmp_path))
    assert read_trace("venus").days() == (92,)


def test_gzipped_file_reads_like_the_plain_one(tmp_path: Path) -> None:
    path = write(tmp_path, HELIOS_HEADER, helios_row())
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_trace(packed).jobs == read_trace(path).jobs


# ---- Alibaba spot-gpu 2026


def test_gfs_keeps_gangs_of_whole_gpus_and_counts_shares(tmp_path: Path) -> None:
    rows = [
        gfs_row(1, 8.0, 94),
        gfs_row(2, 0.5),
        gfs_row(3, "1", 16),
        gfs_row(4, 16),
        gfs_row(5, 0),
        gfs_row(6, 1, 1, 9, 0),
    ]
    trace = read_trace(write(tmp_path, GFS_HEADER, *rows))
    assert [(job.instances, job.gpus) for job in trace.jobs] == [(94, 8), (16, 1)]
    assert trace.origin is None
    assert trace.dropped == {
        "asks for a share of a GPU": 1,
        "an instance is larger than a node": 1,
        "asks for no GPU": 1,
        "never ran": 1,
    }


def test_gfs_with_its_node_list_beside_it_knows_the_fleet(tmp_path: Path) -> None:
    path = write(tmp_path, GFS_HEADER, gfs_row())
    write(
        tmp_path,
        "gpu_model,gpu_capacity_num,cpu_num,node_name",
        "A,8,1,0",
        "B,1,1,1",
        "B,1,1,2",
        name="node_info_df.csv",
    )
    assert read_trace(path).fleet == (NodeGroup("B", 1, 2), NodeGroup("A", 8, 1))


def test_gfs_with_a_broken_node_list_names_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, GFS_HEADER, gfs_row())
    write(tmp_path, "gpu_model,gpu_capacity_num", "A,eight", name="node_info_df.csv")
    with pytest.raises(TraceError, match=r"node_info_df.csv, line 2: gpu_capacity_num is 'eight'"):
        read_trace(path)


# ---- Acme


def test_acme_gives_the_instances_as_published(tmp_path: Path) -> None:
    rows = [
        acme_row("a", 8, 64),
        acme_row("b", 1, 0),
        acme_row("c", 3, 8),
        acme_row("d", 1, 16),
        acme_row("e", 1, 2, t=""),
        acme_row("f", 4, 4),
    ]
    trace = read_trace(write(tmp_path, ACME_HEADER, *rows))
    assert [(job.instances, job.gpus) for job in trace.jobs] == [(8, 8), (4, 1)]
    assert sum(trace.dropped.values()) == 4
    assert trace.dropped["was still running, or its end was not recorded"] == 1


def test_acme_rows_out_of_order_are_sorted_and_noted(tmp_path: Path) -> None:
    rows = [acme_row("late", at="2023-03-02 00:00:00+08:00"), acme_row("early", at="2023-03-01 06:00:00+08:00")]
    trace = read_trace(write(tmp_path, ACME_HEADER, *rows))
    assert [job.id for job in trace.jobs] == ["early", "late"]
    assert [job.submitted for job in trace.jobs] == [6 * 3600, 86400]
    assert "1 row was out of order" in trace.notes[0]


def test_converted_kalos_multiplies_iterations_by_their_length(tmp_path: Path) -> None:
    header = "job_id,arrival_time,num_iteration,iteration_computing_time,gpu_workers,gpu_per_worker"
    (job,) = read_trace(write(tmp_path, header, "0,5.0,208,0.5,8,8.0")).jobs
    assert (job.instances, job.gpus, job.submitted, job.duration) == (8, 8, 5.0, 104.0)


# ---- openb


def test_openb_pod_is_a_job_of_one_instance_from_scheduled_to_deleted(tmp_path: Path) -> None:
    rows = [openb_row("a", 4, 1000, 3, 70, 10), openb_row("b", 1, 460), openb_row("c", 0, 0), openb_row("d", start="")]
    trace = read_trace(write(tmp_path, OPENB_HEADER, *rows))
    (job,) = trace.jobs
    assert (job.instances, job.gpus, job.submitted, job.duration) == (1, 4, 3.0, 60.0)
    assert sum(trace.dropped.values()) == 3


def test_openb_pod_deleted_before_it_was_scheduled_is_a_bad_row(tmp_path: Path) -> None:
    path = write(tmp_path, OPENB_HEADER, openb_row("a"), openb_row("b", end=5, start=6))
    with pytest.raises(TraceError, match=r"row 2 .*deletion_time is '5'"):
        read_trace(path)


# ---- Philly


def philly_job(job_id: str = "j", sizes: tuple[int, ...] = (8,), **changes: object) -> dict[str, object]:
    detail = [{"ip": f"m{i}", "gpus": [f"gpu{k}" for k in range(n)]} for i, n in enumerate(sizes)]
    attempt = {"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:23", "detail": detail}
    job = {"status": "Pass", "vc": "v", "jobid": job_id, "attempts": [attempt], "user": "u"}
    return {**job, "submitted_time": "2017-10-07 01:11:39", **changes}


def philly(tmp_path: Path, *jobs: object) -> Path:
    path = tmp_path / "cluster_job_log"
    path.write_text(json.dumps(jobs, indent=4))
    return path


def test_philly_log_takes_servers_as_instances_and_first_start_to_last_end(tmp_path: Path) -> None:
    job = philly_job(sizes=(2, 2, 2))
    last = {"start_time": "2017-10-07 02:00:00", "end_time": "2017-10-07 03:12:09", "detail": []}
    job["attempts"] = [*job["attempts"], last]  # type: ignore[misc]
    (read,) = read_trace(philly(tmp_path, job)).jobs
    assert (read.instances, read.gpus, read.duration) == (3, 2, 7200.0)
    assert read.submitted == 3600 + 11 * 60 + 39


def test_philly_log_counts_what_never_ran_and_unequal_gangs(tmp_path: Path) -> None:
    running = philly_job("r")
    running["attempts"][0]["end_time"] = None  # type: ignore[index]
    path = philly(
        tmp_path,
        philly_job("ok"),
        philly_job("queued", attempts=[]),
        running,
        philly_job("mixed", (8, 1)),
        philly_job("none", ()),
    )
    trace = read_trace(path)
    assert [job.id for job in trace.jobs] == ["ok"]
    assert trace.dropped == {
        "never ran": 1,
        "was still running, or its end was not recorded": 1,
        "GPUs do not split into equal instances": 1,
        "asks for no GPU": 1,
    }


def test_philly_log_longer_than_a_chunk_is_read_whole(tmp_path: Path) -> None:
    jobs = [philly_job(f"j{i}") for i in range(3_000)]
    path = philly(tmp_path, *jobs)
    assert path.stat().st_size > 2 << 20
    assert [job.id for job in read_trace(path).jobs] == [f"j{i}" for i in range(3_000)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[{"jobid": "a"', "row 1: not a JSON record"),
        ("[{]", "row 1: not a JSON record"),
        ("[" * 100_000, "row 1: not a JSON record"),
        ("[]", "no jobs"),
        ("[1]", "row 1: record is 1, expected a JSON object"),
        ('[{"jobid": 5}]', "row 1: jobid is 5, expected a text"),
    ],
)
def test_philly_log_that_is_broken_names_the_row(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cluster_job_log"
    path.write_text(text)
    with pytest.raises(TraceError, match=message.replace("[", r"\[")):
        read_trace(path)


def test_philly_log_with_bad_records_skips_and_counts_them(tmp_path: Path) -> None:
    backwards = philly_job("b")
    backwards["attempts"][0]["end_time"] = "2017-10-07 00:00:00"  # type: ignore[index]
    path = philly(tmp_path, philly_job("a"), backwards, philly_job("c", submitted_time="yesterday"), 7)
    trace = read_trace(path, bad_rows=BadRows.SKIP)
    assert len(trace.jobs) == 1
    assert trace.dropped == {"bad row: end_time": 1, "bad row: submitted_time": 1, "bad row: record": 1}


def test_flat_philly_splits_total_gpus(tmp_path: Path) -> None:
    path = write(tmp_path, "#job id,arrival time (sec),topology,shape,size,duration (sec)", "0,0.0,CLOS,12,12,5.0")
    assert shapes(path) == [(2, 6)]


# ---- finding files


def test_format_by_name_reads_what_detection_would_not(tmp_path: Path) -> None:
    path = write(tmp_path, HELIOS_HEADER, helios_row())
    assert read_trace(path, format="helios").jobs
    with pytest.raises(TraceError, match="column 'job_name' is missing"):
        read_trace(path, format="gfs")
    with pytest.raises(TraceError, match="format is 'nope', expected one of"):
        read_trace(path, format="nope")


def test_named_trace_that_is_nowhere_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPASS_TRACES", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(TraceError, match="compass trace fetch saturn"):
        read_trace("saturn")


def test_named_trace_in_the_cache_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COMPASS_TRACES", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "compass-abs" / "traces" / "saturn"
    folder.mkdir(parents=True)
    write(folder, HELIOS_HEADER, helios_row(), name="cluster_log.csv")
    assert read_trace("saturn").name == "saturn"
