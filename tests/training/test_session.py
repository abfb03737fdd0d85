"""A session in this very process, without torch: what it does with requests, signals and failures."""

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compass_abs.model import CompassError
from compass_abs.training import Saving, Session, Worker, contract, session
from compass_abs.training.contract import (
    Acknowledgement,
    Directive,
    DirectiveKind,
    ProcessState,
    Progress,
    Request,
    RequestKind,
)
from compass_abs.training.store import CheckpointStore, FencedError


class Left(Exception):  # noqa: N818 - stands for os._exit
    """The process would have ended here."""


@pytest.fixture(autouse=True)
def _stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(code: int = 0) -> None:
        raise Left(code)

    # By the module's own name: `compass_abs.training.session` is the class.
    monkeypatch.setattr(sys.modules["compass_abs.training.session"], "leave", leave)


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    (tmp_path / "control").mkdir()
    return Worker(job_id="job", generation=1, control_dir=tmp_path / "control", checkpoint_dir=tmp_path / "saved")


def control(worker: Worker) -> Path:
    assert worker.control_dir is not None
    return worker.control_dir


def ask(worker: Worker, kind: RequestKind, name: str = "r1") -> None:
    contract.post_request(control(worker), Request(name, kind))


def answer(worker: Worker) -> Acknowledgement:
    found = contract.read_acknowledgement(control(worker), 0)
    assert found is not None
    return found


def progress(worker: Worker) -> Progress:
    found = contract.read_progress(control(worker), 0)
    assert found is not None
    return found


def train(worker: Worker, total: int, at: dict[int, Any] | None = None, **options: Any) -> list[int]:
    """The steps done by this session; `at` calls something in the middle of a step."""
    done: list[int] = []
    position = {"next": 0}
    with session(worker=worker, extra={"position": position}, **options) as s:
        for step in s.steps(total):
            if at and step in at:
                at[step]()
            assert position["next"] == step
            position["next"] += 1
            done.append(step)
    return done


def test_session_without_engine_runs_through(tmp_path: Path) -> None:
    assert train(Worker(checkpoint_dir=tmp_path), 5) == [0, 1, 2, 3, 4]
    assert not list(tmp_path.glob("checkpoint*"))


def test_stop_request_saves_and_leaves_and_the_successor_goes_on(worker: Worker) -> None:
    with pytest.raises(Left):
        train(worker, 10, {3: lambda: ask(worker, RequestKind.STOP)})
    acknowledged = answer(worker)
    assert (acknowledged.request, acknowledged.step, acknowledged.error) == ("r1", 4, "")
    assert Path(acknowledged.path).is_file()
    assert set(acknowledged.phases) == {"seen", "agreed", "saved"}
    assert progress(worker).state is ProcessState.STOPPED
    later = Worker(generation=2, checkpoint_dir=worker.checkpoint_dir, resume_from=acknowledged.path)
    assert train(later, 10) == [4, 5, 6, 7, 8, 9]


def test_request_is_seen_although_its_signal_was_lost(worker: Worker) -> None:
    train(worker, 10, {3: lambda: ask(worker, RequestKind.CHECKPOINT)})
    assert answer(worker).step == 4


def test_signal_without_a_request_changes_nothing(worker: Worker) -> None:
    assert len(train(worker, 6, {2: lambda: os.kill(os.getpid(), signal.SIGUSR1)})) == 6
    assert contract.read_acknowledgement(control(worker), 0) is None


def test_request_repeated_is_answered_once_and_a_new_one_again(worker: Worker) -> None:
    steps = {
        2: lambda: ask(worker, RequestKind.CHECKPOINT, "a"),
        4: lambda: ask(worker, RequestKind.CHECKPOINT, "a"),
        6: lambda: steps_seen.append(answer(worker).step),
        7: lambda: ask(worker, RequestKind.CHECKPOINT, "b"),
    }
    steps_seen: list[int] = []
    train(worker, 10, steps)
    assert steps_seen == [3]
    assert (answer(worker).request, answer(worker).step) == ("b", 8)


def test_request_answered_before_a_restart_in_place_is_not_obeyed_again(worker: Worker) -> None:
    with pytest.raises(Left):
        train(worker, 10, {3: lambda: ask(worker, RequestKind.STOP)})
    assert train(worker, 10) == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("text", ["{", "[]", '{"id": "x", "kind": "explode"}', '{"kind": "checkpoint"}', "\x00\xff"])
def test_request_that_makes_no_sense_is_ignored(worker: Worker, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    def write() -> None:
        (control(worker) / "request.json").write_text(text)

    assert len(train(worker, 5, {1: write})) == 5
    assert "ignored" in capsys.readouterr().err


def test_request_that_cannot_be_read_is_ignored(worker: Worker) -> None:
    assert len(train(worker, 5, {1: (control(worker) / "request.json").mkdir})) == 5


def test_control_folder_that_vanished_does_not_stop_training(worker: Worker) -> None:
    assert len(train(worker, 5, {1: lambda: shutil.rmtree(control(worker))})) == 5


def test_acknowledgement_that_cannot_be_written_keeps_the_job_running_until_it_can(worker: Worker) -> None:
    obstacle = control(worker) / "ack-0.json"

    def stop() -> None:
        obstacle.mkdir()
        ask(worker, RequestKind.STOP)

    with pytest.raises(Left):
        train(worker, 10, {2: stop, 5: obstacle.rmdir})
    assert answer(worker).step == 6


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_signal_without_an_engine_saves_and_leaves(tmp_path: Path, number: signal.Signals) -> None:
    with pytest.raises(Left):
        train(Worker(checkpoint_dir=tmp_path), 10, {3: lambda: os.kill(os.getpid(), number)})
    assert train(Worker(checkpoint_dir=tmp_path), 10)[0] == 4


def test_term_under_an_engine_saves_and_leaves(worker: Worker) -> None:
    with pytest.raises(Left):
        train(worker, 10, {3: lambda: os.kill(os.getpid(), signal.SIGTERM)})
    assert answer(worker).request == "signal-TERM"


def test_signals_are_given_back_afterwards(worker: Worker) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)
    train(worker, 2)
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGUSR1)) == before


def test_nudge_signal_can_be_another(worker: Worker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("COMPASS_NUDGE_SIGNAL", "SIGUSR2")
    with pytest.raises(Left):
        train(Worker(checkpoint_dir=tmp_path / "x"), 10, {3: lambda: os.kill(os.getpid(), signal.SIGUSR2)})
    monkeypatch.setenv("COMPASS_NUDGE_SIGNAL", "USR7")
    with pytest.raises(CompassError, match="'USR7', expected a signal"):
        train(worker, 1)


# ---- failures


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def write(*arguments: object) -> str:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("compass_abs.training.store.write_payload", write)
        yield


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("kind", list(RequestKind))
def test_full_disk_is_acknowledged_as_an_error_and_training_goes_on(worker: Worker, kind: RequestKind) -> None:
    assert len(train(worker, 10, {3: lambda: ask(worker, kind)})) == 10
    acknowledged = answer(worker)
    assert "No space left" in acknowledged.error
    assert (acknowledged.path, acknowledged.step, acknowledged.stays) == ("", -1, False)
    assert "No space left" in progress(worker).warning


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("saving", list(Saving))
def test_full_disk_at_periodic_checkpoints_does_not_stop_training(worker: Worker, saving: Saving) -> None:
    assert len(train(worker, 10, every_steps=2, saving=saving)) == 10
    assert "No space left" in progress(worker).warning


def test_state_that_cannot_be_pickled_is_an_error_of_the_checkpoint_only(worker: Worker) -> None:
    with session(worker=worker, extra={"bad": {"f": lambda: 1}}) as s:
        for step in s.steps(5):
            if step == 1:
                ask(worker, RequestKind.CHECKPOINT)
    assert "pickle" in answer(worker).error


@pytest.mark.parametrize("saving", list(Saving))
def test_process_of_an_older_generation_ends_instead_of_saving(worker: Worker, saving: Saving) -> None:
    newer = CheckpointStore(worker.checkpoint_dir, 2)
    with pytest.raises(FencedError):
        train(worker, 10, {3: newer.claim}, every_steps=2, saving=saving)
    assert [m for m in newer.candidates() if m.step > 4] == []
    with pytest.raises(FencedError):
        train(worker, 10)


def test_damaged_newest_checkpoint_is_passed_over_and_named(worker: Worker) -> None:
    train(worker, 6, every_steps=2)
    newest = CheckpointStore(worker.checkpoint_dir).candidates()[0]
    (worker.checkpoint_dir / newest.payload).write_bytes(b"damaged")
    assert train(worker, 6) == [4, 5]
    assert progress(worker).skipped == (newest.name,)
    assert progress(worker).resumed_at == 4


def test_checkpoint_of_another_world_size_is_refused(worker: Worker) -> None:
    checkpoints = CheckpointStore(worker.checkpoint_dir, 1)
    checkpoints.claim()
    checkpoints.save({"step": 3, "ranks": [{}, {}]}, 3)
    with pytest.raises(CompassError, match="is of 2 ranks, but this job has 1"):
        train(worker, 5)


def test_exception_in_the_loop_is_reported_and_raised(worker: Worker) -> None:
    with pytest.raises(ZeroDivisionError):
        train(worker, 5, {2: lambda: 1 // 0})
    assert progress(worker).state is ProcessState.FAILED
    assert "ZeroDivisionError" in progress(worker).warning


def test_ranks_that_do_not_know_each_other_keep_their_own_checkpoints(tmp_path: Path) -> None:
    def alone(rank: int, **options: Any) -> list[int]:
        where = Worker(rank=rank, world_size=2, instance=rank, checkpoint_dir=tmp_path)
        return train(where, 4 + rank, backend="none", **options)

    for rank in range(2):
        alone(rank, every_steps=2 + rank)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank-0", "rank-1"]
    assert alone(1) == [3, 4]


# ---- holding


def directive(worker: Worker, kind: DirectiveKind, **more: Any) -> None:
    contract.post_directive(control(worker), worker.instance, Directive("r1", kind, **more))


def test_held_session_resumes_where_it_was(worker: Worker) -> None:
    def hold() -> None:
        ask(worker, RequestKind.HOLD)
        directive(worker, DirectiveKind.RESUME)

    assert train(worker, 6, {2: hold}) == [0, 1, 2, 3, 4, 5]
    assert answer(worker).stays


def test_held_session_told_to_stop_leaves(worker: Worker) -> None:
    def hold() -> None:
        ask(worker, RequestKind.HOLD)
        directive(worker, DirectiveKind.STOP)

    with pytest.raises(Left):
        train(worker, 6, {2: hold})


def test_rejoined_session_is_of_the_new_generation_and_shuts_the_old_out(worker: Worker, tmp_path: Path) -> None:
    second = tmp_path / "second"
    second.mkdir()

    def hold() -> None:
        ask(worker, RequestKind.HOLD)
        directive(worker, DirectiveKind.REJOIN, generation=2, control_dir=str(second))

    assert train(worker, 6, {2: hold}, every_steps=5) == [0, 1, 2, 3, 4, 5]
    told = contract.read_progress(second, 0)
    assert told is not None
    assert (told.generation, told.resumed_at, told.state) == (2, 3, ProcessState.FINISHED)
    with pytest.raises(FencedError):
        CheckpointStore(worker.checkpoint_dir, 1).claim()


# ---- the loop


def test_hand_written_loop_needs_no_steps(worker: Worker) -> None:
    with session(worker=worker, every_steps=2) as s:
        while s.step < 5:
            if s.should_checkpoint():
                s.checkpoint()
    assert [m.step for m in CheckpointStore(worker.checkpoint_dir).candidates()] == [4, 2]


def test_body_that_ends_its_step_itself_is_not_counted_twice(worker: Worker) -> None:
    with session(worker=worker) as s:
        for _ in s.steps(4):
            s.step_done()
        assert s.step == 4


def test_random_numbers_after_a_restart_are_those_of_the_undisturbed_run(worker: Worker, tmp_path: Path) -> None:
    import random

    def draws(where: Worker, stop_at: int | None) -> list[float]:
        random.seed(5)
        found = []
        try:
            with session(worker=where) as s:
                random.random()  # drawn between the restore and the first step: must not matter
                for step in s.steps(8):
                    found.append(random.random())
                    if step == stop_at:
                        ask(where, RequestKind.STOP)
        except Left:
            pass
        return found

    whole = draws(Worker(checkpoint_dir=tmp_path / "whole"), None)
    first = draws(worker, 3)
    assert first + draws(worker, None) == whole


def test_extra_of_a_useless_type_is_refused(worker: Worker) -> None:
    with pytest.raises(CompassError, match="extra 'n' is int"):
        Session(worker=worker, extra={"n": 3})


def test_importing_the_room_imports_no_torch() -> None:
    import subprocess

    code = "import compass_abs.training, compass_abs.training.wrap, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
