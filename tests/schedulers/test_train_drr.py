"""`compass train-drr` from the command line."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from compass_abs.cli.main import app
from compass_abs.model import ClusterState, CompassError, Job
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.drr_policy import shipped
from compass_abs.schedulers.registry import make_scheduler


@pytest.mark.slow
def test_train_drr_writes_weights_that_a_scheduler_reads_and_a_record(tmp_path: Path) -> None:
    arguments = ["train-drr", "--out", str(tmp_path), "--seed", "2", "--updates", "0"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "seed 2: agreement" in result.output
    record = json.loads((tmp_path / "training.json").read_text())
    assert record["seeds"][0]["agreement"] >= 0.99
    # The first stage again, of a seed that ships what it imitated: processors may differ in the last digits.
    kept = json.loads(shipped(2).with_name("training.json").read_text())["seeds"][1]
    assert kept["kept_update"] == 0
    for name in ("agreement", "imitation_ajct", "best_fit_ajct"):
        assert record["seeds"][0][name] == pytest.approx(kept[name], rel=1e-3)
    scheduler = make_scheduler("drr", ClusterState(2), policy=str(tmp_path / "seed2.npz"))
    assert scheduler.admit(Job("x", 1, 3), Situation()).admitted


def test_train_drr_never_replaces_weights_unasked(tmp_path: Path) -> None:
    (tmp_path / "seed1.npz").write_text("precious")
    result = CliRunner().invoke(app, ["train-drr", "--out", str(tmp_path), "--seed", "1"])
    assert isinstance(result.exception, CompassError)
    assert "--force" in str(result.exception)
    assert (tmp_path / "seed1.npz").read_text() == "precious"


@pytest.mark.parametrize("arguments", [("--seed", "-1"), ("--updates", "-1")])
def test_train_drr_with_a_negative_number_is_refused(tmp_path: Path, arguments: tuple[str, str]) -> None:
    result = CliRunner().invoke(app, ["train-drr", "--out", str(tmp_path / "new"), *arguments])
    assert result.exit_code == 2
    assert not (tmp_path / "new").exists()


def test_train_drr_with_an_unknown_model_names_those_there_are(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["train-drr", "--out", str(tmp_path / "new"), "--model", "nope"])
    assert isinstance(result.exception, CompassError)
    assert "venus" in str(result.exception)
    assert not (tmp_path / "new").exists()
