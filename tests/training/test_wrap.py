"""Programs that know nothing of us, made migratable by signals and their own files."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from compass_abs.training import contract
from compass_abs.training.contract import Directive, DirectiveKind, ProcessState, Request, RequestKind
from tests.training.conftest import until

#: Counts; on USR1 saves and exits, on USR2 saves and goes on; saves every PERIOD steps by itself.
PROGRAM = """
import os, pathlib, signal, sys, time
wanted = []
for name in ("USR1", "USR2"):
    signal.signal(getattr(signal, "SIG" + name), lambda number, frame, name=name: wanted.append(name))
step = int(pathlib.Path(sys.argv[2]).read_text()) if len(sys.argv) > 2 else 0
log = open("log", "a")
period, total = int(os.environ.get("PERIOD", "0")), int(sys.argv[1])
while step < total:
    step += 1
    time.sleep(0.01)
    print(step, file=log, flush=True)
    if wanted or (period and step % period == 0):
        temporary = pathlib.Path(f"tmp-{step}")
        temporary.write_text(str(step))
        temporary.rename(f"step-{step}.ckpt")
        if "USR1" in wanted:
            sys.exit(3 if os.environ.get("RUDE") else 0)
        wanted.clear()
"""


class Job:
    """A wrapped program over several starts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = 0
        self.process: subprocess.Popen[str] | None = None
        (folder / "program.py").write_text(PROGRAM)

    @property
    def control(self) -> Path:
        return self.folder / f"control-{self.generation}"

    def start(self, *options: str, total: int = 10_000, **variables: str) -> None:
        self.generation += 1
        self.control.mkdir()
        environment = {
            **os.environ,
            "COMPASS_CONTROL_DIR": str(self.control),
            "COMPASS_CHECKPOINT_DIR": str(self.folder / "state"),
            "COMPASS_GENERATION": str(self.generation),
            **variables,
        }
        words = ["--checkpoint", "step-*.ckpt", "--resume-argument", "{checkpoint}", "--grace", "20", *options]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "compass_abs.training.wrap", *words, "--", sys.executable, "program.py", str(total)],
            cwd=self.folder,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def steps(self) -> list[int]:
        path = self.folder / "log"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def wait_steps(self, count: int) -> None:
        until(lambda: len(self.steps()) >= count, f"{count} steps")

    def ask(self, kind: RequestKind) -> contract.Acknowledgement:
        name = f"r-{self.generation}-{kind}"
        contract.post_request(self.control, Request(name, kind))

        def answered() -> bool:
            found = contract.read_acknowledgement(self.control, 0)
            return found is not None and found.request == name

        until(answered, "the acknowledgement")
        answer = contract.read_acknowledgement(self.control, 0)
        assert answer is not None
        return answer

    def join(self) -> int:
        assert self.process is not None
        _, self.errors = self.process.communicate(timeout=30)
        return self.process.returncode

    def state(self) -> ProcessState | None:
        progress = contract.read_progress(self.control, 0)
        return None if progress is None else progress.state

    def child(self) -> int:
        assert self.process is not None
        task = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(task.read_text().split()[0])


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path)
    yield made
    if made.process is not None:
        made.process.kill()
        made.process.communicate()


@pytest.mark.parametrize("rude", ["", "1"])
def test_program_that_saves_and_exits_is_judged_by_its_checkpoint(job: Job, rude: str) -> None:
    job.start("--signal", "USR1", RUDE=rude)
    job.wait_steps(5)
    answer = job.ask(RequestKind.STOP)
    assert job.join() == 0
    assert answer.error == ""
    assert answer.path == str(job.folder / f"step-{answer.step}.ckpt")
    assert answer.step == job.steps()[-1]
    assert job.state() is ProcessState.STOPPED
    job.start("--signal", "USR1", total=answer.step + 5, COMPASS_RESUME_FROM=answer.path)
    assert job.join() == 0
    assert job.steps() == list(range(1, answer.step + 6))  # nothing lost, nothing repeated
    assert job.state() is ProcessState.FINISHED


def test_program_that_goes_on_saves_without_stopping(job: Job) -> None:
    job.start("--signal", "USR2", "--goes-on")
    job.wait_steps(5)
    answer = job.ask(RequestKind.CHECKPOINT)
    assert answer.step > 0
    job.wait_steps(answer.step + 5)
    last = job.ask(RequestKind.STOP)
    assert last.step > answer.step
    assert job.join() == 0


def test_program_that_saves_only_when_it_ends_refuses_a_mere_checkpoint(job: Job) -> None:
    job.start("--signal", "USR1")
    job.wait_steps(2)
    answer = job.ask(RequestKind.CHECKPOINT)
    assert "only when it ends" in answer.error
    before = len(job.steps())
    job.wait_steps(before + 3)


def test_program_that_does_not_answer_is_left_running(job: Job) -> None:
    job.start("--signal", "USR1", "--grace", "0.5", "--checkpoint", "elsewhere-*")
    job.wait_steps(2)
    assert "ended with 0 and no new" in job.ask(RequestKind.STOP).error
    job.join()
    job.start("--signal", "URG", "--grace", "0.3")  # ignored by default
    job.wait_steps(len(job.steps()) + 2)
    assert "within 0.3 s" in job.ask(RequestKind.STOP).error
    job.wait_steps(len(job.steps()) + 3)


def test_program_without_cooperation_restarts_from_its_latest_and_the_loss_is_counted(job: Job) -> None:
    job.start("--periodic", PERIOD="10")
    job.wait_steps(25)
    until(lambda: (job.folder / "state" / "alive-0.json").exists(), "a sign of life")
    answer = job.ask(RequestKind.STOP)
    assert job.join() == 0
    reached = job.steps()[-1]
    assert answer.step % 10 == 0
    assert answer.step <= reached
    assert answer.lost_seconds >= 0.009 * (reached - answer.step)
    job.start("--periodic", PERIOD="10", total=reached + 5)
    assert job.join() == 0
    assert job.steps() == [*range(1, reached + 1), *range(answer.step + 1, reached + 6)]
    lost = json.loads((job.folder / "state" / "lost.json").read_text())
    assert lost["restarts"] == 1
    assert lost["seconds"] == pytest.approx(answer.lost_seconds, abs=0.5)


def test_killed_wrapper_takes_its_program_along_and_the_next_start_counts_the_loss(job: Job) -> None:
    job.start("--periodic", PERIOD="10")
    job.wait_steps(12)
    until(lambda: (job.folder / "state" / "alive-0.json").exists(), "a sign of life")
    child = job.child()
    assert job.process is not None
    job.process.kill()
    job.process.communicate()
    until(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text(), "its end")
    job.start("--periodic", PERIOD="10", total=len(job.steps()))
    assert job.join() == 0
    assert json.loads((job.folder / "state" / "lost.json").read_text())["restarts"] == 1


@pytest.mark.parametrize("options", [["--periodic"], ["--signal", "USR2", "--goes-on"], ["--signal", "USR1"]])
def test_held_program_stands_still_until_it_is_resumed(job: Job, options: list[str]) -> None:
    job.start(*options, PERIOD="5")
    job.wait_steps(8)
    request = f"r-1-{RequestKind.HOLD}"
    job.ask(RequestKind.HOLD)
    until(lambda: job.state() is ProcessState.HELD, "the hold")
    held = len(job.steps())
    assert job.process is not None
    with pytest.raises(subprocess.TimeoutExpired):
        job.process.wait(0.2)
    assert len(job.steps()) <= held + 1
    contract.post_directive(job.control, 0, Directive(request, DirectiveKind.RESUME))
    job.wait_steps(held + 5)
    steps = job.steps()
    assert steps == list(range(1, len(steps) + 1))  # nothing was lost by having been held


def test_held_program_told_to_stop_ends(job: Job) -> None:
    job.start("--periodic", PERIOD="5")
    job.wait_steps(8)
    job.ask(RequestKind.HOLD)
    child = job.child()
    contract.post_directive(job.control, 0, Directive(f"r-1-{RequestKind.HOLD}", DirectiveKind.STOP))
    assert job.join() == 0
    assert not Path(f"/proc/{child}").exists()


def test_program_that_fails_passes_its_code_on(job: Job) -> None:
    (job.folder / "program.py").write_text("import sys; sys.exit(41)")
    job.start()
    assert job.join() == 41
    assert job.state() is ProcessState.FAILED


def test_term_of_the_wrapper_stops_the_program_with_its_checkpoint(job: Job) -> None:
    job.start("--signal", "USR1")
    job.wait_steps(3)
    assert job.process is not None
    job.process.send_signal(signal.SIGTERM)
    assert job.join() == 0
    assert (job.folder / f"step-{job.steps()[-1]}.ckpt").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "true"], "--checkpoint is missing"),
        (["--checkpoint", "x", "--signal", "NOPE", "--", "true"], "--signal is 'NOPE'"),
        (["--checkpoint", "x", "--step", "(", "--", "true"], "--step is '('"),
        (["--checkpoint", "x", "--step", "a", "--", "true"], "expected a group"),
        (["--checkpoint", "x", "--", "/no/such/program"], "command '/no/such/program'"),
    ],
)
def test_mistake_in_the_options_is_one_plain_line(tmp_path: Path, words: list[str], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "compass_abs.training.wrap", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
