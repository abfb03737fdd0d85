"""What is wrong with a file is said with its name, the row and the value; or counted, when asked to skip."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from compass_abs.model import CompassError, Job
from compass_abs.traces import BadRows, RowOrder, Trace, TraceError, read_trace, write_trace
from tests.traces.files import (
    ACME_HEADER,
    GFS_HEADER,
    HELIOS_HEADER,
    OPENB_HEADER,
    PLAIN_HEADER,
    gfs_row,
    helios_row,
    write,
)

GOOD = helios_row("good", 1, "2020-03-18 04:00:00", 60)
LATER = "2020-03-19 00:00:00"

BAD_HELIOS = {
    "negative gpus": (helios_row(2, -1, LATER), "gpu_num is '-1', expected a whole number ≥ 0"),
    "gpus not a number": (helios_row(2, "x", LATER), "gpu_num is 'x'"),
    "gpus not whole": (helios_row(2, 1.5, LATER), "gpu_num is '1.5'"),
    "gpus not there": (helios_row(2, "", LATER), "gpu_num is ''"),
    "gpus huge": (helios_row(2, "9" * 30, LATER), "expected at most 1,000,000"),
    "gpus endless": (helios_row(2, "9" * 5000, LATER), "gpu_num is '999"),
    "gpus infinite": (helios_row(2, "1e999", LATER), "gpu_num is '1e999'"),
    "gpus with underscore": (helios_row(2, "1_0", LATER), "gpu_num is '1_0'"),
    "duration negative": (helios_row(2, 1, LATER, -5), "duration is '-5', expected a number of seconds ≥ 0"),
    "duration NaN": (helios_row(2, 1, LATER, "nan"), "duration is 'nan'"),
    "duration not there": (helios_row(2, 1, LATER, ""), "duration is ''"),
    "duration huge": (helios_row(2, 1, LATER, "1e12"), "a century"),
    "date nonsense": (helios_row(2, 1, "2020-02-31 00:00:00"), "submit_time is '2020-02-31 00:00:00'"),
    "date not there": (helios_row(2, 1, ""), "submit_time is ''"),
    "date far": (helios_row(2, 1, "9999-01-01 00:00:00"), "a date between 1970 and 2070"),
    "time going backwards": (helios_row(2, 1, "2020-03-18 03:00:00"), "was submitted 3600 s before the one above"),
    "id twice": (helios_row("good", 1, LATER), "job 'good' appeared before"),
    "id not there": (helios_row("", 1, LATER), "job_id is ''"),
    "too few values": ("2,1", "2 values under a header of 12"),
    "too many values": (helios_row(2, 1, LATER) + ",1", "13 values under a header of 12"),
    "endless field": ("x" * 200_000, "field larger than field limit"),
    "a NUL": (helios_row("a\0b", 1, LATER), "job_id is"),
}


@pytest.mark.parametrize("case", BAD_HELIOS)
def test_bad_row_raises_naming_file_row_and_value(tmp_path: Path, case: str) -> None:
    row, message = BAD_HELIOS[case]
    path = write(tmp_path, HELIOS_HEADER, GOOD, row)
    with pytest.raises(TraceError) as error:
        read_trace(path)
    assert str(error.value).startswith(f"{path}, row 2 (line 3): ")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("case", BAD_HELIOS)
def test_bad_row_when_skipped_is_counted_and_costs_nothing_else(tmp_path: Path, case: str) -> None:
    row, _ = BAD_HELIOS[case]
    last = helios_row("last", 2, "2020-03-20 00:00:00")
    trace = read_trace(write(tmp_path, HELIOS_HEADER, GOOD, row, last), bad_rows=BadRows.SKIP)
    assert [job.id for job in trace.jobs] == ["good", "last"]
    assert list(trace.dropped.values()) == [1]
    assert next(iter(trace.dropped)).startswith("bad row: ")


def test_row_number_counts_data_and_line_number_counts_lines(tmp_path: Path) -> None:
    path = write(tmp_path, "# a comment: yes", HELIOS_HEADER, GOOD, "", helios_row(2, "x"))
    with pytest.raises(TraceError, match=r"row 2 \(line 5\)"):
        read_trace(path)


def test_rows_out_of_order_are_sorted_when_asked(tmp_path: Path) -> None:
    path = write(tmp_path, HELIOS_HEADER, GOOD, helios_row(2, 1, "2020-03-18 03:00:00"))
    trace = read_trace(path, order=RowOrder.ANY)
    assert [job.id for job in trace.jobs] == ["2", "good"]
    assert "out of order" in trace.notes[0]


def test_skipped_late_row_does_not_make_the_rest_late(tmp_path: Path) -> None:
    rows = [GOOD, helios_row(2, 1, "2020-03-18 03:00:00"), helios_row(3, 1, "2020-03-18 05:00:00")]
    trace = read_trace(write(tmp_path, HELIOS_HEADER, *rows), bad_rows=BadRows.SKIP)
    assert [job.id for job in trace.jobs] == ["good", "3"]


def test_zero_gpus_in_the_plain_format_is_a_bad_row(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN_HEADER, "a,1,0,0,60")
    with pytest.raises(TraceError, match=r"row 1 .*gpus is '0', expected a whole number ≥ 1"):
        read_trace(path)


def test_missing_column_is_named_with_the_format_it_is_missing_from(tmp_path: Path) -> None:
    path = write(tmp_path, HELIOS_HEADER.replace(",duration", ""), "1,2")
    with pytest.raises(TraceError, match="lacks column 'duration' of a Helios"):
        read_trace(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\n", "no known trace"),
        (b"\x00\x01\x02\xff\xfe\xfd" * 200, "no header of column names"),
        (b"a" * 200_000, "no header of column names"),
        (b"PAR1 and then nothing of the kind", "trace.csv: "),
        (b"hello,world\n1,2\n", "it starts with 'hello,world', which is no known trace.*job_id, instances"),
        (b"job_id;instances;gpus;submitted;duration\na;1;8;0;5\n", "separated by semicolons in its first line"),
        (b"job_id\tinstances\tgpus\tsubmitted\tduration\n", "separated by tabs in its first line"),
    ],
)
def test_file_that_is_no_trace_says_so(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(content)
    with pytest.raises(TraceError, match=message) as error:
        read_trace(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_header_without_rows_has_no_jobs(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no jobs; the file has no rows"):
        read_trace(write(tmp_path, HELIOS_HEADER))


def test_only_bad_rows_leaves_no_jobs_and_says_why(tmp_path: Path) -> None:
    path = write(tmp_path, HELIOS_HEADER, helios_row(1, "x"), helios_row(2, 0))
    with pytest.raises(TraceError, match="1 rows: bad row: gpu_num; 1 rows: asks for no GPU"):
        read_trace(path, bad_rows=BadRows.SKIP)


def test_folder_and_missing_file_are_told_apart(tmp_path: Path) -> None:
    write(tmp_path, HELIOS_HEADER)
    with pytest.raises(TraceError, match=r"is a folder; name a file in it, such as trace\.csv"):
        read_trace(tmp_path)
    with pytest.raises(TraceError, match="no such file"):
        read_trace(tmp_path / "nothing.csv")


def test_broken_gzip_is_an_error_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv.gz"
    path.write_bytes(b"\x1f\x8b\x08\x00 broken")
    with pytest.raises(TraceError, match=r"trace\.csv\.gz"):
        read_trace(path)


def test_pipe_is_refused_before_anybody_waits_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", Path("/dev/null")):
        with pytest.raises(TraceError, match="pipes and devices can't be read"):
            read_trace(path)


def test_more_jobs_than_memory_holds_end_the_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compass_abs.traces.gathering.MOST_JOBS", 3)
    path = write(tmp_path, HELIOS_HEADER, *(helios_row(i, i % 2) for i in range(8)))
    # Rows that are left out take no memory and don't count.
    with pytest.raises(TraceError, match=r"row 8 \(line 9\): more than 3 jobs.*cut the file"):
        read_trace(path, bad_rows=BadRows.SKIP)


@pytest.mark.parametrize("capacity", [3, 0, -8])
def test_capacity_that_no_node_has_is_refused(tmp_path: Path, capacity: int) -> None:
    with pytest.raises(TraceError, match=f"capacity is {capacity}"):
        read_trace(write(tmp_path, HELIOS_HEADER, GOOD), capacity=capacity)


# ---- whatever the bytes, never another exception

HEADERS = st.sampled_from(
    [HELIOS_HEADER, GFS_HEADER, ACME_HEADER, OPENB_HEADER, PLAIN_HEADER, PLAIN_HEADER + ",movable"]
)
VALUES = st.one_of(
    st.sampled_from(["", "0", "1", "8", "1e400", "-0", "nan", "inf", "9" * 400, "2020-03-18 00:00:00", '"', "\r", "٣"]),
    st.integers().map(str),
    st.floats().map(repr),
    st.text(max_size=8),
)
ROWS = st.lists(st.lists(VALUES, max_size=14).map(",".join), max_size=8)


def read_as_it_comes(path: Path, bad_rows: BadRows) -> Trace | None:
    message = ""
    try:
        return read_trace(path, bad_rows=bad_rows)
    except CompassError as error:
        message = str(error)
    assert message
    assert "\n" not in message
    return None


@given(header=HEADERS, rows=ROWS, bad_rows=st.sampled_from(BadRows))
def test_reader_fed_any_rows_gives_a_sound_trace_or_a_compass_error(
    tmp_path_factory: pytest.TempPathFactory, header: str, rows: list[str], bad_rows: BadRows
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.csv"
    path.write_bytes("\n".join([header, *rows]).encode("utf-8", "surrogatepass"))
    trace = read_as_it_comes(path, bad_rows)
    if trace is not None:
        times = [job.submitted for job in trace.jobs]
        assert times == sorted(times)
        assert times[0] >= 0
        assert all(job.duration is not None and 0 < job.duration < float("inf") for job in trace.jobs)
        assert all(1 <= job.gpus <= trace.capacity for job in trace.jobs)
        assert len({job.id for job in trace.jobs}) == len(trace.jobs)


@given(content=st.binary(max_size=300), prefix=st.sampled_from([b"", b"[", b"PAR1", HELIOS_HEADER.encode() + b"\n"]))
@example(content=b"{}", prefix=b"[")
@example(content=b"1" * 5000, prefix=b"[")
def test_reader_fed_any_bytes_never_raises_another_exception(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, prefix: bytes
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t"
    path.write_bytes(prefix + content)
    for bad_rows in BadRows:
        read_as_it_comes(path, bad_rows)


@given(good=st.integers(1, 30), bad=st.integers(0, 30), seed=st.randoms(use_true_random=False))
def test_skipping_counts_exactly_the_bad_rows(
    tmp_path_factory: pytest.TempPathFactory, good: int, bad: int, seed: object
) -> None:
    rows = [(i, gfs_row(i, 1, 1, i)) for i in range(good)] + [(i, gfs_row("x", "NaN", 1, i)) for i in range(bad)]
    seed.shuffle(rows)  # type: ignore[attr-defined]
    ordered = [row for _, row in sorted(rows, key=lambda pair: pair[0])]
    trace = read_trace(write(tmp_path_factory.mktemp("t"), GFS_HEADER, *ordered), bad_rows=BadRows.SKIP)
    assert len(trace.jobs) == good
    assert sum(trace.dropped.values()) == bad


@given(changes=st.lists(st.tuples(st.integers(4, 10_000), st.integers(0, 255)), max_size=20), kept=st.floats(0.1, 1.0))
def test_reader_fed_a_damaged_parquet_file_never_raises_another_exception(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], kept: float
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "t.parquet"
    write_trace(Trace(tuple(Job(f"j{i}", 1, 1, float(i), 1.0) for i in range(50))), path)
    content = bytearray(path.read_bytes())
    for at, value in changes:
        content[4 + at % (len(content) - 4)] = value
    path.write_bytes(content[: max(4, int(kept * len(content)))] if kept < 0.3 else content)
    for bad_rows in BadRows:
        read_as_it_comes(path, bad_rows)
