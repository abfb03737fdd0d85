"""Checkpoints survive what disks and processes do to them."""

import errno
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from compass_abs.model import CompassError
from compass_abs.training import payload, store
from compass_abs.training.store import CheckpointStore, CorruptCheckpointError, FencedError


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith((".", "checkpoint")))


def test_save_then_newest_gives_the_tree_back(tmp_path: Path) -> None:
    checkpoints = CheckpointStore(tmp_path, 3, "job")
    checkpoints.claim()
    manifest = checkpoints.save({"step": 7, "words": ["é", None]}, 7, world_size=2)
    restored = CheckpointStore(tmp_path, 4).newest()
    assert restored is not None
    assert restored.tree == {"step": 7, "words": ["é", None]}
    assert restored.manifest == manifest
    assert (manifest.generation, manifest.step, manifest.world_size, manifest.job_id) == (3, 7, 2, "job")
    assert json.loads((tmp_path / "latest").read_text())["manifest"] == manifest.name


def test_newest_of_an_empty_or_missing_folder_is_none(tmp_path: Path) -> None:
    assert CheckpointStore(tmp_path).newest() is None
    assert CheckpointStore(tmp_path / "missing").newest() is None


def test_newest_prefers_the_generation_over_the_step(tmp_path: Path) -> None:
    for generation, step in ((1, 900), (2, 100)):
        checkpoints = CheckpointStore(tmp_path, generation)
        checkpoints.claim()
        checkpoints.save(step, step)
    restored = CheckpointStore(tmp_path, 3).newest()
    assert restored is not None
    assert restored.tree == 100


@pytest.mark.parametrize("keep", [1, 2, 3])
def test_save_keeps_as_many_as_asked_and_leaves_no_other_files(tmp_path: Path, keep: int) -> None:
    checkpoints = CheckpointStore(tmp_path, 1, keep=keep)
    checkpoints.claim()
    (tmp_path / ".checkpoint-g000001-s000000001.abc.bin.tmp").write_bytes(b"half")  # of a process that was killed
    for step in range(1, 6):
        checkpoints.save(step, step)
    assert [m.step for m in checkpoints.candidates()] == [5, 4, 3][:keep]
    assert len(names(tmp_path)) == 2 * keep


def test_save_of_the_same_step_twice_writes_once(tmp_path: Path) -> None:
    checkpoints = CheckpointStore(tmp_path, 1)
    checkpoints.claim()
    assert checkpoints.save("a", 1) is checkpoints.save("b", 1)


def test_keep_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CompassError, match="keep is 0"):
        CheckpointStore(tmp_path, keep=0)


# ---- damage


def two_saved(folder: Path) -> CheckpointStore:
    checkpoints = CheckpointStore(folder, 1)
    checkpoints.claim()
    checkpoints.save("old", 1)
    checkpoints.save("new", 2)
    return checkpoints


def test_any_damaged_byte_of_the_newest_falls_back_to_the_one_before(tmp_path: Path) -> None:
    checkpoints = two_saved(tmp_path)
    path = tmp_path / checkpoints.candidates()[0].payload
    whole = path.read_bytes()
    for position in range(len(whole)):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        restored = checkpoints.newest()
        assert restored is not None
        assert restored.tree == "old", position
        assert restored.skipped == ("checkpoint-g000001-s000000002.json",)


@pytest.mark.parametrize("size", [0, 1, 23, 24, 30])
def test_truncated_newest_falls_back(tmp_path: Path, size: int) -> None:
    checkpoints = two_saved(tmp_path)
    os.truncate(tmp_path / checkpoints.candidates()[0].payload, size)
    restored = checkpoints.newest()
    assert restored is not None
    assert restored.tree == "old"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"generation": 1}'])
def test_damaged_manifest_falls_back(tmp_path: Path, text: str) -> None:
    checkpoints = two_saved(tmp_path)
    (tmp_path / checkpoints.candidates()[0].name).write_text(text)
    restored = checkpoints.newest()
    assert restored is not None
    assert restored.tree == "old"


def test_all_damaged_is_an_error_and_not_a_fresh_start(tmp_path: Path) -> None:
    checkpoints = two_saved(tmp_path)
    for manifest in checkpoints.candidates():
        (tmp_path / manifest.payload).unlink()
    with pytest.raises(CorruptCheckpointError, match="all 2 checkpoints are damaged"):
        checkpoints.newest()


@pytest.mark.parametrize("payload_name", ["../x.bin", "/etc/passwd", "checkpoint-g000001-s000000002.x/../y.bin", ".."])
def test_manifest_that_points_outside_the_folder_is_refused(tmp_path: Path, payload_name: str) -> None:
    checkpoints = two_saved(tmp_path)
    path = tmp_path / checkpoints.candidates()[0].name
    path.write_text(json.dumps({**json.loads(path.read_text()), "payload": payload_name}))
    with pytest.raises(CorruptCheckpointError, match="no payload of this folder"):
        checkpoints.manifest(path.name)


@pytest.mark.parametrize("name", ["../checkpoint-g000001-s000000002.json", "latest", "fence.json"])
def test_manifest_name_outside_the_pattern_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(CorruptCheckpointError, match="no checkpoint's name"):
        two_saved(tmp_path).manifest(name)


def test_resume_from_is_tried_first_and_damage_falls_back_to_the_newest(tmp_path: Path) -> None:
    checkpoints = two_saved(tmp_path)
    older = checkpoints.candidates()[1]
    first = checkpoints.newest(str(tmp_path / older.name))
    assert first is not None
    assert first.tree == "old"
    (tmp_path / older.payload).write_bytes(b"")
    second = checkpoints.newest(str(tmp_path / older.name))
    assert second is not None
    assert (second.tree, second.skipped) == ("new", (older.name,))


# ---- a full disk


@pytest.mark.parametrize("room", [0, 10, 100])
def test_full_disk_leaves_the_older_checkpoint_and_no_leftovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    checkpoints = CheckpointStore(tmp_path, 1)
    checkpoints.claim()
    checkpoints.save("old", 1)
    before = names(tmp_path)
    real = os.pwrite

    def pwrite(descriptor: int, data: memoryview, offset: int) -> int:
        if offset + len(data) > room:
            real(descriptor, data[: max(0, room - offset)], offset)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data, offset)

    monkeypatch.setattr(payload.os, "pwrite", pwrite)
    with pytest.raises(OSError, match="No space left"):
        checkpoints.save("x" * 1000, 2)
    assert names(tmp_path) == before
    monkeypatch.undo()
    checkpoints.save("new", 3)
    restored = checkpoints.newest()
    assert restored is not None
    assert restored.tree == "new"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_really_full_file_system_leaves_the_older_checkpoint(tmp_path: Path) -> None:
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", tmp_path], capture_output=True)
    if mounted.returncode:
        pytest.skip("no tmpfs may be mounted here")
    try:
        checkpoints = CheckpointStore(tmp_path, 1)
        checkpoints.claim()
        checkpoints.save("old", 1)
        with pytest.raises(OSError, match="No space left"):
            checkpoints.save(os.urandom(1 << 20), 2)
        checkpoints.save("new", 3)
        restored = checkpoints.newest()
        assert restored is not None
        assert restored.tree == "new"
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def test_failure_between_payload_and_manifest_leaves_the_older_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = CheckpointStore(tmp_path, 1)
    checkpoints.claim()
    checkpoints.save("old", 1)
    before = names(tmp_path)

    def fail(*arguments: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(store.json, "dump", fail)
    with pytest.raises(OSError, match="quota"):
        checkpoints.save("new", 2)
    assert names(tmp_path) == before


# ---- kill -9 at any moment

_SAVER = """
import sys
from pathlib import Path
from compass_abs.training.store import CheckpointStore
checkpoints = CheckpointStore(Path(sys.argv[1]), int(sys.argv[2]))
checkpoints.claim()
begin = checkpoints.newest()
step = begin.tree[0] if begin else 0
while True:
    step += 1
    checkpoints.save((step, bytes([step % 256]) * 2_000_000), step)
    print("go", flush=True)
"""


def test_kill_during_save_never_loses_the_last_complete_checkpoint(tmp_path: Path) -> None:
    draw = random.Random(7)
    reached = 0
    for generation in range(1, 9):
        process = subprocess.Popen(
            [sys.executable, "-c", _SAVER, str(tmp_path), str(generation)], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"go\n"
        time.sleep(draw.random() * 0.05)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        restored = CheckpointStore(tmp_path, generation).newest()
        assert restored is not None
        step, content = restored.tree
        assert restored.skipped == ()
        assert content == bytes([step % 256]) * 2_000_000
        assert step > reached
        reached = step


# ---- the fence


def test_older_generation_cannot_claim_or_save_once_a_newer_has_claimed(tmp_path: Path) -> None:
    old, new = CheckpointStore(tmp_path, 1, "job"), CheckpointStore(tmp_path, 2, "job")
    old.claim()
    old.save("old", 1)
    new.claim()
    before = names(tmp_path)
    with pytest.raises(FencedError, match="generation 2 of job 'job' has taken over"):
        old.save("zombie", 50)
    with pytest.raises(FencedError):
        old.claim()
    assert names(tmp_path) == before
    new.save("new", 2)
    restored = CheckpointStore(tmp_path, 3).newest()
    assert restored is not None
    assert restored.tree == "new"


def test_same_generation_may_claim_again(tmp_path: Path) -> None:
    CheckpointStore(tmp_path, 2).claim()
    CheckpointStore(tmp_path, 2).claim()
    assert json.loads((tmp_path / "fence.json").read_text()) == {"generation": 2}
