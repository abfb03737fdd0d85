"""What `compass serve` refuses before anything is started."""

import signal
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import structlog
from typer.testing import CliRunner

from compass_abs.cli.main import app
from compass_abs.controller.client import Client, ControllerError
from compass_abs.controller.journal import JournalError, JournalLockedError, SqliteJournal
from compass_abs.controller.reconcile import Config
from compass_abs.controller.records import Record, Submitted
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


def test_controller_that_fails_ends_the_service_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the disk of the journal is full: whoever watches over the service starts it again."""
    append = SqliteJournal.append

    def full(self: SqliteJournal, records: Sequence[Record]) -> None:
        if any(isinstance(record, Submitted) for record in records):
            raise JournalError("journal can't be written: database or disk is full")
        append(self, records)

    monkeypatch.setattr(SqliteJournal, "append", full)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    def submit() -> None:
        with Client(f"http://127.0.0.1:{port}") as client:
            for _ in range(600):
                try:
                    client.submit_fields({"name": "a", "command": ["x"]})
                except ControllerError as error:
                    if "disk is full" in str(error):
                        return
                time.sleep(0.05)

    user = threading.Thread(target=submit)
    user.start()
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(CompassError, match=r"the controller failed: .*disk is full; started again, it goes on"):
            serve(Settings(tmp_path, port=port), LivingEngine)
    finally:
        signal.signal(signal.SIGTERM, before)
        structlog.reset_defaults()
        user.join(40)
    assert not user.is_alive()


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
