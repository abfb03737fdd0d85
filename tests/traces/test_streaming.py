"""A long file costs the memory of its jobs, not of its rows."""

import gzip
import tracemalloc
from pathlib import Path

import pytest

from compass_abs.traces import BadRows, TraceError, read_trace
from tests.traces.files import HELIOS_HEADER, helios_row

ROWS = 60_000


def test_reading_a_long_file_of_few_jobs_takes_the_memory_of_the_jobs(tmp_path: Path) -> None:
    path = tmp_path / "long.csv"
    with path.open("w") as out:
        out.write(HELIOS_HEADER + "\n")
        for i in range(ROWS):
            # One row in a thousand wants a GPU, the others are CPU jobs and dropped.
            out.write(helios_row(i, int(i % 1_000 == 0)) + "\n")
    size = path.stat().st_size
    tracemalloc.start()
    trace = read_trace(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(trace.jobs) == ROWS // 1_000
    assert trace.dropped == {"asks for no GPU": ROWS - ROWS // 1_000}
    assert peak < size / 4


def test_file_without_line_breaks_is_not_held_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "endless.csv"
    with path.open("w") as out:
        out.write(HELIOS_HEADER + "\n" + helios_row() + "\n")
        for _ in range(40):
            out.write("x" * 1_000_000)
    tracemalloc.start()
    trace = read_trace(path, bad_rows=BadRows.SKIP)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(trace.jobs) == 1
    assert peak < 15_000_000


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz"])
def test_reading_a_file_says_how_far_it_is_up_to_its_end(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"long{suffix}"
    text = HELIOS_HEADER + "\n" + "".join(helios_row(i) + "\n" for i in range(20_000))
    path.write_bytes(gzip.compress(text.encode()) if suffix.endswith(".gz") else text.encode())
    seen: list[int] = []
    read_trace(path, progress=seen.append)
    assert len(seen) > 2
    assert seen == sorted(seen)
    assert seen[-1] == path.stat().st_size


@pytest.mark.nightly
def test_file_of_two_gigabytes_takes_the_memory_of_its_jobs_and_its_bad_row_is_found(tmp_path: Path) -> None:
    path = tmp_path / "huge.csv"
    # Most rows are CPU jobs, as in the published logs, with names long enough to fill the file soon.
    user = "u" * 1_000
    rows = "".join(helios_row(i, 0).replace("u1", user) + "\n" for i in range(2_000))
    blocks = 2 * 1024**3 // len(rows) + 1
    with path.open("w") as out:
        out.write(HELIOS_HEADER + "\n")
        for _ in range(blocks):
            out.write(rows)
        out.write(helios_row("good", 8) + "\n" + helios_row("bad", "x") + "\n")
    assert path.stat().st_size > 2 * 1024**3
    number = 2_000 * blocks + 2
    with pytest.raises(TraceError, match=rf"huge\.csv, row {number} \(line {number + 1}\): gpu_num is 'x'"):
        read_trace(path)
    tracemalloc.start()
    trace = read_trace(path, bad_rows=BadRows.SKIP)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [job.id for job in trace.jobs] == ["good"]
    assert trace.dropped == {"asks for no GPU": number - 2, "bad row: gpu_num": 1}
    assert peak < 20_000_000
