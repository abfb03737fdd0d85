"""Every published layout meets the same damage: named with file and row, or counted, or set right with a note."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from compass_abs.traces import BadRows, TraceError, read_trace
from tests.traces.files import (
    ACME_HEADER,
    GFS_HEADER,
    HELIOS_HEADER,
    OPENB_HEADER,
    PLAIN_HEADER,
    acme_row,
    gfs_row,
    helios_row,
    openb_row,
    write,
)

#: (job id, GPUs, hours after midnight, seconds of service), each as the layout writes it.
Row = tuple[str, object, object, object]
GOOD: Row = ("good", 2, 4, 60)
LAST: Row = ("last", 2, 6, 60)


@dataclass(frozen=True)
class Layout:
    """How a layout writes a job, and what it makes of rows that are not in order and of jobs without GPUs."""

    write: Callable[[Path, Sequence[Row]], Path]
    #: A column that every row needs.
    needed: str
    sorts: bool = False
    knows_no_gpu: bool = True


def dated(hours: object) -> str:
    return f"2020-03-18 {hours:0>2}:00:00" if isinstance(hours, int) else str(hours)


def relative(hours: object) -> object:
    return 3600 * hours if isinstance(hours, int) else hours


def table(header: str, row: Callable[[Row], str]) -> Callable[[Path, Sequence[Row]], Path]:
    return lambda folder, rows: write(folder, header, *map(row, rows))


def philly(folder: Path, rows: Sequence[Row]) -> Path:
    path = folder / "cluster_job_log"
    path.write_text(json.dumps([philly_job(row) for row in rows]))
    return path


def philly_job(row: Row) -> dict[str, Any]:
    job_id, gpus, hours, service = row
    servers = [{"ip": "m", "gpus": [f"gpu{k}" for k in range(gpus)] if isinstance(gpus, int) and gpus >= 0 else gpus}]
    end = (
        f"2020-03-18 12:{service // 60:02d}:00" if isinstance(service, int) and service >= 0 else "2020-03-18 11:00:00"
    )
    attempt = {"start_time": "2020-03-18 12:00:00", "end_time": end, "detail": servers}
    return {"jobid": job_id, "submitted_time": dated(hours), "attempts": [attempt]}


def parquet(folder: Path, rows: Sequence[Row]) -> Path:
    path = folder / "t.parquet"
    columns = {
        "job_id": [row[0] for row in rows],
        "instances": [1 for _ in rows],
        "gpus": [str(row[1]) for row in rows],
        "submitted": [str(relative(row[2])) for row in rows],
        "duration": [str(row[3]) for row in rows],
    }
    pl.DataFrame(columns).write_parquet(path)
    return path


FLAT_HEADER = "#job id,arrival time (sec),topology,shape,size,duration (sec)"
CONVERTED_HEADER = "job_id,arrival_time,num_iteration,iteration_computing_time,gpu_workers,gpu_per_worker"
LAYOUTS: dict[str, Layout] = {
    "helios": Layout(table(HELIOS_HEADER, lambda r: helios_row(r[0], r[1], dated(r[2]), r[3])), "duration"),
    "gfs": Layout(table(GFS_HEADER, lambda r: gfs_row(r[0], r[1], 1, relative(r[2]), r[3])), "submit_time"),
    "philly": Layout(philly, "jobid", sorts=True),
    "philly-flat": Layout(
        table(FLAT_HEADER, lambda r: f"{r[0]},{relative(r[2])},CLOS,{r[1]},{r[1]},{r[3]}"), "size", knows_no_gpu=False
    ),
    "acme": Layout(table(ACME_HEADER, lambda r: acme_row(r[0], 1, r[1], dated(r[2]), r[3])), "node_num", sorts=True),
    "acme-converted": Layout(
        table(CONVERTED_HEADER, lambda r: f"{r[0]},{relative(r[2])},{r[3]},0.5,1,{r[1]}"),
        "gpu_workers",
        knows_no_gpu=False,
    ),
    # A pod that is deleted as many seconds after it was scheduled as it is said to have run.
    "openb": Layout(
        table(
            OPENB_HEADER,
            lambda r: openb_row(r[0], r[1], 1000, relative(r[2]), r[3] if isinstance(r[3], str) else 99_999 + r[3],
                                99_999),  # type: ignore[operator]
        ),
        "num_gpu",
        sorts=True,
    ),
    "plain": Layout(
        table(PLAIN_HEADER, lambda r: f"{r[0]},1,{r[1]},{relative(r[2])},{r[3]}"), "instances", knows_no_gpu=False
    ),
    "plain-dated": Layout(
        table(PLAIN_HEADER.replace("submitted", "submitted_at"), lambda r: f"{r[0]},1,{r[1]},{dated(r[2])},{r[3]}"),
        "duration",
        knows_no_gpu=False,
    ),
    "parquet": Layout(parquet, "submitted", knows_no_gpu=False),
}  # fmt: skip

#: Rows that make no sense to any reader.
BAD: dict[str, Row] = {
    "negative GPUs": ("x", -1, 5, 60),
    "NaN GPUs": ("x", "nan", 5, 60),
    "negative duration": ("x", 2, 5, -60),
    "time NaN": ("x", 2, "nan", 60),
    "no time": ("x", 2, "", 60),
    "no id": ("", 2, 5, 60),
    "id twice": ("good", 2, 5, 60),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_bad_row_is_named_with_file_and_row_or_counted(tmp_path: Path, layout: str, case: str) -> None:
    path = LAYOUTS[layout].write(tmp_path, [GOOD, BAD[case], LAST])
    with pytest.raises(TraceError) as error:
        read_trace(path, layout)
    assert str(error.value).startswith(f"{path}, row 2")
    assert str(error.value).endswith("correct the row or pass --skip-bad-rows")
    trace = read_trace(path, layout, BadRows.SKIP)
    assert [job.id for job in trace.jobs] == ["good", "last"]
    assert [(why[:9], number) for why, number in trace.dropped.items()] == [("bad row: ", 1)]


# The log of Philly has no durations but times of start and end.
@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "philly"])
def test_duration_that_is_no_number_is_a_bad_row(tmp_path: Path, layout: str) -> None:
    path = LAYOUTS[layout].write(tmp_path, [GOOD, ("x", 2, 5, "NaN")])
    with pytest.raises(TraceError, match=r", row 2.* is 'NaN', expected"):
        read_trace(path, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_job_without_gpus_is_left_out_where_a_trace_has_such_and_bad_elsewhere(tmp_path: Path, layout: str) -> None:
    path = LAYOUTS[layout].write(tmp_path, [GOOD, ("none", 0, 5, 60)])
    if LAYOUTS[layout].knows_no_gpu:
        trace = read_trace(path, layout)
        assert [job.id for job in trace.jobs] == ["good"]
        assert trace.dropped == {"asks for no GPU": 1}
    else:
        with pytest.raises(TraceError, match=r", row 2.* is '0', expected a whole number ≥ 1"):
            read_trace(path, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_time_going_backwards_is_a_bad_row_or_sorted_with_a_note(tmp_path: Path, layout: str) -> None:
    path = LAYOUTS[layout].write(tmp_path, [GOOD, ("early", 2, 1, 60)])
    if LAYOUTS[layout].sorts:
        trace = read_trace(path, layout)
        assert [job.id for job in trace.jobs] == ["early", "good"]
        assert trace.notes == ("1 row was out of order and sorted by time of submission",)
    else:
        with pytest.raises(TraceError, match=r", row 2.*was submitted 10800 s before the one above it"):
            read_trace(path, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_missing_column_is_named(tmp_path: Path, layout: str) -> None:
    described = LAYOUTS[layout]
    path = described.write(tmp_path, [GOOD])
    if layout == "philly":
        path.write_text(path.read_text().replace(described.needed, "other"))
        message = f"row 1: {described.needed} is None, expected a text"
    elif layout == "parquet":
        pl.read_parquet(path).drop(described.needed).write_parquet(path)
        message = f"column '{described.needed}' is missing"
    else:
        path.write_text(path.read_text().replace(described.needed, "other"))
        message = f"column '{described.needed}' is missing"
    with pytest.raises(TraceError, match=message) as error:
        read_trace(path, layout)
    assert str(error.value).startswith(str(path))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_empty_file_and_file_without_jobs_are_named(tmp_path: Path, layout: str) -> None:
    path = LAYOUTS[layout].write(tmp_path, [])
    with pytest.raises(TraceError, match="no jobs") as error:
        read_trace(path, layout)
    assert str(error.value).startswith(str(path))
    path.write_bytes(b"")
    with pytest.raises(TraceError, match=r"the file is empty|not a readable Parquet file") as error:
        read_trace(path, layout)
    assert str(error.value).startswith(str(path))
