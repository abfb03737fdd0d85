"""`compass logs -f`: everything once, across migrations, through a controller that is away for a while."""

from collections.abc import Iterator
from typing import Any

import pytest

from compass_abs.cli import following
from compass_abs.controller.client import ControllerAwayError, ControllerError
from compass_abs.model import NodeStatus
from tests.journeys.world import World


class Story:
    """A controller that answers what a script says; each question takes the script one further."""

    def __init__(self, *script: Any) -> None:
        self._script: Iterator[Any] = iter(script)
        self._logs: dict[int, bytes] = {}
        self._latest = 1
        self._over = False

    def get(self, path: str) -> dict[str, Any]:
        event = next(self._script, "over")
        if event == "away":
            raise ControllerAwayError("nobody answers")
        if event == "over":
            self._over = True
        elif event is not None:
            self._latest = event[0]
            self._logs[event[0]] = self._logs.get(event[0], b"") + event[1]
        return {"ended": 1.0 if self._over else None}

    def log(self, job: str, *, instance: int, generation: int, offset: int, limit: int) -> tuple[bytes, int]:
        wanted = generation or self._latest
        if wanted not in self._logs:
            raise ControllerError("it has no log")
        return self._logs[wanted][offset:][:limit], wanted


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following.time, "sleep", lambda seconds: None)


def told(*script: Any) -> str:
    return "".join(following.followed(Story(*script), "job", 0))  # type: ignore[arg-type]


def test_log_goes_on_in_the_next_generation_and_nothing_is_lost_or_repeated() -> None:
    assert told(None, None, (1, b"one\n"), (1, b"two\n"), (2, b"three\n"), None, (2, b"four\n")) == (
        "one\ntwo\nthree\nfour\n"
    )


def test_last_words_of_a_generation_are_printed_before_the_next_ones() -> None:
    script = ((1, b"one\n"), (1, b"last"), (2, b"first\n"))
    assert told(*script) == "one\nlastfirst\n"


def test_character_that_arrives_in_two_pieces_stays_one() -> None:
    word = "größer ≥ €\n".encode()
    assert told(*((1, word[at : at + 1]) for at in range(len(word)))) == "größer ≥ €\n"


def test_controller_that_is_away_for_a_while_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert told((1, b"one\n"), (1, b"two\n"), "away", "away", (1, b"three\n")) == "one\ntwo\nthree\n"
    assert capsys.readouterr().err.count("does not answer") == 1


def test_controller_that_was_never_there_is_an_error() -> None:
    with pytest.raises(ControllerAwayError):
        told("away")


def test_long_log_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "_PIECE", 10)
    text = "".join(f"{number}\n" for number in range(500))
    assert told(None, (1, text.encode())) == text


def test_log_of_an_instance_that_stays_begins_where_it_began() -> None:
    world = World(steps=200)
    job = world.submit(2, 6)
    world.run(4)
    entry = world.controller.book.jobs[job]
    moves, stays = (0, 1) if entry.nodes[0] == "n0" else (1, 0)
    for node in ("n0", "n2"):
        world.command("set_node", node, NodeStatus.DRAINING)
        world.run_until(lambda node=node: node not in entry.nodes and entry.migration is None)
        world.command("set_node", node, NodeStatus.UP)
    assert len(entry.past) == 2
    assert [entry.log_begins(stays, generation) for generation in (1, 2, 3)] == [1, 1, 1]
    assert [entry.log_begins(moves, generation) for generation in (1, 2, 3)] == [1, 2, 3]
