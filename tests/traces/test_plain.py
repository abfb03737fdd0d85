"""The plain format: what is written is read back, as CSV and as Parquet."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compass_abs.model import Job
from compass_abs.traces import Trace, TraceError, read_trace, write_trace
from compass_abs.traces.trace import sort_jobs
from tests.traces.files import PLAIN_HEADER, write

SECONDS = st.floats(0.0, 1e8).map(abs)
NAMES = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufffd"), min_size=1).map(
    lambda text: text.strip() or "x"
)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    jobs = [
        Job(
            f"{draw(NAMES)}-{i}",
            draw(st.integers(1, 1_000)),
            draw(st.integers(1, 8)),
            draw(SECONDS),
            draw(st.floats(1e-6, 1e8)),
            draw(st.sampled_from(["", "a100", "h 100"])),
            draw(st.integers(-5, 5)),
            draw(st.booleans()),
            draw(st.none() | SECONDS),
            draw(st.none() | SECONDS),
        )
        for i in range(draw(st.integers(1, 6)))
    ]
    return Trace(
        sort_jobs(jobs),
        name="mine",
        capacity=draw(st.sampled_from([8, 16])),
        origin=draw(st.sampled_from([None, datetime(2020, 3, 18)])),
        dropped=draw(st.dictionaries(st.sampled_from(["never ran", "bad row: gpus"]), st.integers(1, 9))),
        notes=draw(st.sampled_from([(), ("one",), ("one: with a colon", "two")])),
        synthetic=draw(st.booleans()),
        source="compass trace synth venus --seed 1",
    )


@given(trace=traces(), ending=st.sampled_from([".csv", ".parquet"]))
def test_written_trace_is_read_back_whole(tmp_path_factory: pytest.TempPathFactory, trace: Trace, ending: str) -> None:
    path = tmp_path_factory.mktemp("plain") / f"t{ending}"
    write_trace(trace, path)
    assert read_trace(path) == trace
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_synthetic_label_survives_both_formats(tmp_path: Path) -> None:
    trace = Trace((Job("a", 1, 1, 0.0, 1.0),), synthetic=True)
    for name in ("t.csv", "t.parquet"):
        write_trace(trace, tmp_path / name)
        assert read_trace(tmp_path / name).synthetic
    assert "# synthetic: true" in (tmp_path / "t.csv").read_text()


def test_someones_own_csv_needs_only_five_columns_in_any_order(tmp_path: Path) -> None:
    path = write(tmp_path, "gpus,note,job_id,duration,instances,submitted", "4,hello,a,60,2,5.5")
    assert read_trace(path).jobs == (Job("a", 2, 4, 5.5, 60.0),)


def test_own_csv_with_dates_starts_at_their_first_midnight(tmp_path: Path) -> None:
    path = write(tmp_path, "job_id,instances,gpus,submitted_at,duration", "a,1,1,2024-05-01 10:00:00,60")
    trace = read_trace(path)
    assert trace.jobs[0].submitted == 36_000.0
    assert trace.origin == datetime(2024, 5, 1)


def test_own_parquet_with_integers_and_dates_missing_reads_the_same(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    columns = {"job_id": [7, 8], "instances": [1, 2], "gpus": [8, 4], "submitted": [0, 5], "duration": [1.5, 2.0]}
    pl.DataFrame({**columns, "priority": [None, 3]}).write_parquet(path)
    assert read_trace(path).jobs == (Job("7", 1, 8, 0.0, 1.5), Job("8", 2, 4, 5.0, 2.0, priority=3))


def test_own_parquet_with_a_bad_value_names_the_row(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    columns = {"job_id": ["a", "b"], "instances": [1, 1], "gpus": [8, 9], "submitted": [0, 5], "duration": [1, 1]}
    pl.DataFrame(columns).write_parquet(path)
    with pytest.raises(TraceError, match=r"t\.parquet, row 2: gpus is '9', expected at most 8"):
        read_trace(path)
    assert len(read_trace(path, capacity=16).jobs) == 2


def test_own_parquet_without_a_column_names_it(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pl.DataFrame({"job_id": ["a"], "gpus": [8]}).write_parquet(path)
    with pytest.raises(TraceError, match="column 'instances' is missing"):
        read_trace(path)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,1,1,0,0", "duration is '0', expected a number of seconds > 0"),
        ("a,0,1,0,5", "instances is '0'"),
        ("a,1,1,-1,5", "submitted is '-1'"),
        ("a,1,16,0,5", "gpus is '16', expected at most 8"),
    ],
)
def test_value_that_makes_no_sense_is_refused(tmp_path: Path, row: str, message: str) -> None:
    with pytest.raises(TraceError) as error:
        read_trace(write(tmp_path, PLAIN_HEADER, row))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("columns", "values", "message"),
    [
        ("movable", "perhaps", "movable is 'perhaps', expected true or false"),
        ("priority", "1.5", "priority is '1.5', expected a whole number"),
        ("deadline", "-1", "deadline is '-1'"),
        ("pause", "nan", "pause is 'nan'"),
    ],
)
def test_optional_value_that_makes_no_sense_is_refused(tmp_path: Path, columns: str, values: str, message: str) -> None:
    with pytest.raises(TraceError) as error:
        read_trace(write(tmp_path, f"{PLAIN_HEADER},{columns}", f"a,1,1,0,5,{values}"))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("# origin: soon", "origin is 'soon'"),
        ("# capacity: many", "capacity is 'many'"),
        ("# synthetic: so so", "synthetic"),
    ],
)
def test_preamble_that_makes_no_sense_is_refused(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(write(tmp_path, line, PLAIN_HEADER, "a,1,1,0,5"))


def test_deadline_moves_with_the_clock(tmp_path: Path) -> None:
    path = write(tmp_path, f"{PLAIN_HEADER},deadline", "a,1,1,0,5,100")
    (job,) = read_trace(path, origin=datetime(2024, 5, 1, 1)).jobs
    assert (job.submitted, job.deadline) == (3_600.0, 3_700.0)


def test_writing_needs_jobs_and_a_known_ending(tmp_path: Path) -> None:
    trace = Trace((Job("a", 1, 1, 0.0, 1.0),))
    with pytest.raises(TraceError, match=r"ends in \.csv or \.parquet"):
        write_trace(trace, tmp_path / "t.xlsx")
    with pytest.raises(TraceError, match="no jobs to write"):
        write_trace(replace(trace, jobs=()), tmp_path / "t.csv")
    with pytest.raises(TraceError, match="No such file"):
        write_trace(trace, tmp_path / "nowhere" / "t.csv")
