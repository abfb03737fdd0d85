"""How often the files of an instance are looked at: thousands that pull their images must not keep the engine busy."""

import time
from pathlib import Path

from compass_abs.engines.kubernetes.runs import PodRun
from compass_abs.engines.local.run_files import RunFiles, write_json
from compass_abs.engines.protocol import CheckpointMode, EndCause, RunId


def instance(folder: Path, gang: str = "") -> PodRun:
    found = PodRun(RunId("job", 0, 1), "n1", 8, CheckpointMode.PERIODIC, "USR1", RunFiles(folder), born=1)
    found.control.mkdir(parents=True)
    found.gang = gang
    return found


def test_instance_that_was_just_started_is_looked_at_often_and_one_that_takes_long_is_not(tmp_path: Path) -> None:
    run = instance(tmp_path)
    assert run.expects_news
    run.known_since = time.monotonic() - 60
    assert not run.expects_news
    run.overdue_at = time.monotonic()
    assert run.expects_news, "it is to end, and a move waits for that"


def test_pod_of_a_user_says_by_its_events_that_it_has_started(tmp_path: Path) -> None:
    run = instance(tmp_path, gang="g")
    assert not run.expects_news
    run.overdue_at = time.monotonic()
    assert run.expects_news


def test_end_that_is_written_after_many_looks_is_seen_by_the_next(tmp_path: Path) -> None:
    run = instance(tmp_path)
    for _ in range(3):
        run.refresh()
    assert run.alive
    write_json(run.path("process"), {"gpus": "0,1"})
    write_json(run.files.file(run.run, "verdict"), {"cause": "evicted", "detail": "drained"})
    run.refresh()
    assert run.gpus == (0, 1)
    assert run.end is not None
    assert run.end.cause is EndCause.EVICTED
