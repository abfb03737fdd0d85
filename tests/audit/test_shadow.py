"""`compass shadow`: what was seen, and what another scheduler would have done with it."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from compass_abs.audit import AuditError
from compass_abs.audit.journal import Journal
from compass_abs.audit.reading import observe_documents
from compass_abs.audit.shadow import ShadowOptions, compare
from compass_abs.cli.main import app
from tests.audit.kubectl import listed, node, pod

RUNNER = CliRunner()
#: 2026-11-18T09:00:00Z, when the pods of these tests were made.
T0 = 1_794_992_400.0


def at(minute: float, *pods: dict[str, Any]) -> tuple[float, dict[str, Any]]:
    """A look at two nodes."""
    for each in pods:
        if "nodeName" in each["spec"]:
            each["status"].setdefault("startTime", "2026-11-18T08:00:00Z")
    return T0 + 60 * minute, listed(node("a"), node("b"), *pods)


def half(name: str, host: str, movable: bool = True) -> dict[str, Any]:
    return pod(name, 4, host, movable=movable)


def started(entry: dict[str, Any], clock: str) -> dict[str, Any]:
    entry["status"]["startTime"] = f"2026-11-18T{clock}:00Z"
    return entry


def fragmented_hour(movable: bool = True) -> list[tuple[float, dict[str, Any]]]:
    """Two halves and a whole that waits for half an hour until one of the halves ends."""
    two = [half("one", "a", movable), half("two", "b", movable)]
    waits = [at(k, *two, pod("whole", 8)) for k in range(0, 30, 5)]
    runs = [
        at(k, half("two", "b", movable), started(pod("whole", 8, "a", movable=True), "09:30")) for k in range(30, 61, 5)
    ]
    return waits + runs


def seen(path: Path, looks: list[tuple[float, dict[str, Any]]]) -> None:
    journal = Journal(path)
    for time, document in looks:
        journal.observe(observe_documents([("k", document)], "k", time=time), time)
    journal.close()


def test_job_that_waited_for_fragmentation_starts_earlier_in_the_shadow(tmp_path: Path) -> None:
    seen(tmp_path / "s", fragmented_hour())
    report = compare(Journal.read(tmp_path / "s"))
    (job,) = report.earlier
    assert (job.job, job.really, job.shadow) == ("team/whole", T0 + 1800, T0)
    assert report.waits() == (1800.0, 0.0)
    (pool,) = report.pools
    assert (pool.moves, pool.jobs_moved, pool.gpu_seconds) == (1, 1, 32.0)
    assert pool.shadow_avoidable < pool.really_avoidable
    assert not report.later


def test_what_declares_nothing_is_left_where_it_is_unless_all_may_move(tmp_path: Path) -> None:
    seen(tmp_path / "s", fragmented_hour(movable=False))
    history = Journal.read(tmp_path / "s")
    assert not compare(history).earlier
    assert compare(history, ShadowOptions(everything_moves=True)).earlier


def test_scheduler_that_does_worse_is_said_to_do_worse(tmp_path: Path) -> None:
    """First come, first served: a wide gang at the head holds up what really slipped past it."""
    wide = [pod(f"wide-{k}", 8, labels={"job-name": "wide"}) for k in range(2)]
    for each in wide:
        each["metadata"]["creationTimestamp"] = "2026-11-18T08:30:00Z"
    small = started(pod("small", 4, "b"), "09:05")
    looks = [at(0, half("one", "a"), *wide, pod("small", 4))]
    looks += [at(k, half("one", "a"), *wide, small) for k in range(5, 61, 5)]
    seen(tmp_path / "s", looks)
    report = compare(Journal.read(tmp_path / "s"), ShadowOptions(queue="fifo"))
    assert [job.job for job in report.only_really] == ["team/small"]
    assert not report.earlier


def test_watch_that_was_torn_off_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    looks = fragmented_hour()
    seen(tmp_path / "whole", looks)
    seen(tmp_path / "torn", looks[:5])
    with (tmp_path / "torn").open("ab") as file:
        file.write(b'{"kind":"start","time":17')
    seen(tmp_path / "torn", looks[5:])
    whole, torn = (compare(Journal.read(tmp_path / name)).as_dict() for name in ("whole", "torn"))
    assert whole == torn


def test_every_prefix_of_the_file_can_be_read(tmp_path: Path) -> None:
    seen(tmp_path / "s", fragmented_hour())
    raw = (tmp_path / "s").read_bytes()
    first = raw.index(b"\n") + 1
    for size in range(first, len(raw), 37):
        (tmp_path / "cut").write_bytes(raw[:size])
        Journal(tmp_path / "cut").close()
        assert raw.startswith((tmp_path / "cut").read_bytes())


def test_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "notes"
    other.write_text("dear diary\n")
    with pytest.raises(AuditError, match="line 1 can't be read"):
        Journal(other)
    assert other.read_text() == "dear diary\n"


def test_looks_have_to_come_in_order_and_two_at_least(tmp_path: Path) -> None:
    looks = fragmented_hour()
    with pytest.raises(AuditError, match="order of their times"):
        seen(tmp_path / "s", [looks[1], looks[0]])
    seen(tmp_path / "one", looks[:1])
    with pytest.raises(AuditError, match="1 observations so far"):
        compare(Journal.read(tmp_path / "one"))


def test_job_that_nobody_saw_waiting_is_not_blamed_on_anybody(tmp_path: Path) -> None:
    came = started(pod("quick", 4, "b", movable=True), "09:07")
    came["metadata"]["creationTimestamp"] = "2026-11-18T09:06:00Z"
    seen(tmp_path / "s", [at(0, half("one", "a")), at(10, half("one", "a"), came), at(20, half("one", "a"))])
    report = compare(Journal.read(tmp_path / "s"))
    assert not report.earlier
    assert not report.later


def test_recorded_folder_is_read_by_the_times_of_its_names(tmp_path: Path) -> None:
    folder = tmp_path / "recorded"
    folder.mkdir()
    for time, document in fragmented_hour():
        (folder / f"{time:.0f}.json").write_text(json.dumps(document))
    done = RUNNER.invoke(app, ["shadow", str(tmp_path / "s"), "--from", str(folder)], env={"COLUMNS": "160"})
    assert done.exit_code == 0, done.output
    assert "1 would have started earlier, 0 later" in done.output
    assert "Mean wait 30.0 min really, 0 s in the shadow" in done.output
    again = RUNNER.invoke(app, ["shadow", str(tmp_path / "s"), "--json"])
    assert json.loads(again.output)["jobs_earlier"] == 1


def test_shadow_without_anything_to_look_at_says_what_to_give(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["shadow", str(tmp_path / "none")])
    assert "--kubernetes, --slurm or --from" in str(done.exception)
    assert not os.path.lexists(tmp_path / "none")


def test_watch_that_died_in_its_first_line_begins_anew(tmp_path: Path) -> None:
    seen(tmp_path / "whole", fragmented_hour())
    raw = (tmp_path / "whole").read_bytes()
    for size in range(raw.index(b"\n")):
        (tmp_path / "torn").write_bytes(raw[:size])
        seen(tmp_path / "torn", fragmented_hour())
        assert (tmp_path / "torn").read_bytes() == raw


def test_second_watch_on_one_file_is_refused_and_a_report_is_not(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "s")
    for time, document in fragmented_hour():
        journal.observe(observe_documents([("k", document)], "k", time=time), time)
    with pytest.raises(AuditError, match="another `compass shadow` is writing to it"):
        Journal(tmp_path / "s")
    assert compare(Journal.read(tmp_path / "s")).earlier
    journal.close()
    Journal(tmp_path / "s").close()


def test_look_that_the_disk_has_no_room_for_is_left_out_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = fragmented_hour()
    seen(tmp_path / "s", looks[:3])
    before = (tmp_path / "s").read_bytes()
    journal = Journal(tmp_path / "s")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(AuditError, match="can't be written: No space left on device"):
            journal.observe(observe_documents([("k", looks[6][1])], "k", time=looks[6][0]), looks[6][0])
    assert (tmp_path / "s").read_bytes() == before
    journal.observe(observe_documents([("k", looks[6][1])], "k", time=looks[6][0]), looks[6][0])
    journal.close()
    assert Journal.read(tmp_path / "s").times == [time for time, _ in (*looks[:3], looks[6])]
