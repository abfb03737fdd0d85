"""What `compass serve` refuses before anything is started."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from compass_abs.cli.main import app
from compass_abs.controller.journal import JournalLockedError, SqliteJournal
from compass_abs.controller.reconcile import Config
from compass_abs.controller.server import Settings, serve, served
from compass_abs.engines.protocol import Engine
from compass_abs.model import CompassError
from tests.controller.running import LivingEngine


class ClosedEngine(LivingEngine):
    """Counts how often it was closed."""

    closed = 0

    def close(self) -> None:
        self.closed += 1
        super().close()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (Config(queue="nope"), "there is no queue 'nope'"),
        (Config(scheduler="nope"), "there is no scheduler 'nope'"),
        (Config(scheduler="compass-jit", parameters={"bogus": 3}), "has no parameter 'bogus'"),
    ],
)
def test_configuration_that_makes_no_sense_is_refused_before_anything_begins(
    tmp_path: Path, config: Config, message: str
) -> None:
    engine = ClosedEngine()
    with pytest.raises(CompassError, match=message), served(Settings(tmp_path, port=0, config=config), engine):
        pass
    assert engine.closed == 1
    assert list(tmp_path.iterdir()) == []


def test_state_that_can_be_no_folder_is_refused_with_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for state in (file, file / "below"):
        with pytest.raises(CompassError, match=f"state folder '{state}'.*--state"):
            serve(Settings(state, port=0), ClosedEngine)


def test_second_controller_is_refused_before_its_engine_touches_anything(tmp_path: Path) -> None:
    def opened() -> Engine:
        raise AssertionError("the engine of a running controller was disturbed")

    with SqliteJournal(tmp_path / "journal.sqlite"), pytest.raises(JournalLockedError):
        serve(Settings(tmp_path, port=0), opened)


def test_engine_that_is_served_is_closed_once(tmp_path: Path) -> None:
    engine = ClosedEngine()
    with served(Settings(tmp_path, port=0), engine):
        assert engine.closed == 0
    assert engine.closed == 1


def test_nodes_of_a_size_that_nothing_fits_are_named(tmp_path: Path) -> None:
    engine = ClosedEngine(gpus=5)
    with (
        pytest.raises(CompassError, match=r"no node with 1, 2, 4, 8, 16 GPUs.*n0 has 5"),
        served(Settings(tmp_path, port=0), engine),
    ):
        pass
    result = CliRunner().invoke(app, ["serve", "--gpus", "5", "--state", str(tmp_path / "other")])
    assert "--gpus is 5, expected one of: 1, 2, 4, 8, 16" in str(result.exception)
