"""Real PyTorch training on the live system: a gang is moved, and its losses stay the same, bit for bit."""

import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from compass_abs.cli.main import EXTRAS, app
from compass_abs.controller.client import ControllerError
from compass_abs.controller.demonstration import DemoJob, demonstrate, live_system, same_losses
from compass_abs.controller.reconcile import Config
from compass_abs.engines.local import Warmth


@pytest.mark.slow
@pytest.mark.parametrize("warmth", [Warmth.STANDBY, Warmth.COLD])
def test_migrated_training_has_the_losses_of_an_undisturbed_run(warmth: Warmth) -> None:
    pytest.importorskip("torch")
    mix = (DemoJob("gpt2", 2, 4, 150), DemoJob("deepfm", 1, 1, 40), DemoJob("resnet", 1, 5, 40))
    with live_system(None, 0, Config(scheduler="compass-abs"), warmth=warmth) as client:
        verdict = demonstrate(client, print, mix)
    assert verdict.good, verdict


def test_system_that_is_thrown_away_takes_its_jobs_along() -> None:
    """As when somebody interrupts `compass live`, or an experiment of hours."""

    def train() -> None:
        with live_system(None, 0, Config(scheduler="best-fit"), nodes=2, warmth=Warmth.COLD) as client:
            for _ in range(2):
                job = client.submit_fields({"name": "a", "command": ["sleep", "60"], "instances": 2})
            while len(runs := client.get(f"/jobs/{job}")["runs"]) < 2 or not all(run["handle"] for run in runs):
                time.sleep(0.02)
            started.extend(int(run["handle"].split()[1]) for run in runs)
            raise KeyboardInterrupt

    started: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        train()
    assert len(started) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in started)


@pytest.mark.parametrize("words", [["live"], ["experiment", "physical", "--jobs", "1"]])
def test_missing_torch_is_told_before_anything_is_brought_up(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="torch") as told:
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert told.value.name in EXTRAS


class Logs:
    """A client that knows logs: of each job, one a generation."""

    def __init__(self, **logs: list[str]) -> None:
        self.logs = logs

    def get(self, path: str) -> dict[str, Any]:
        return {"generation": len(self.logs[path.rpartition("/")[2]])}

    def log(self, job: str, *, instance: int, generation: int, limit: int) -> tuple[bytes, int]:
        text = self.logs[job][generation - 1]
        if not text:
            raise ControllerError("nothing printed yet")
        return text.encode(), generation


FIRST, SECOND = "1 0x1.8p+0\nsaved\n", "2 0x1.4p-1\n"


@pytest.mark.parametrize(
    ("moved", "same"),
    [
        ([FIRST, SECOND], True),
        ([FIRST, FIRST + SECOND], True),
        (["", FIRST + SECOND], True),
        ([FIRST, "2 0x1.4p-2\n"], False),
        ([FIRST, "1 0x1.9p+0\n" + SECOND], False),
        ([FIRST, ""], False),
        (["", ""], False),
    ],
)
def test_losses_are_the_same_only_if_every_step_was_told_and_told_alike(moved: list[str], same: bool) -> None:
    client: Any = Logs(moved=moved, undisturbed=[FIRST + SECOND], silent=[""])
    assert same_losses(client, {"id": "moved", "instances": 1}, "undisturbed", 2) is same
    assert not same_losses(client, {"id": "moved", "instances": 1}, "silent", 2)
