"""The controller is killed at every place where it can be, one after the other, and another one takes over."""

from collections.abc import Callable
from pathlib import Path

import pytest

from compass_abs.controller.book import Book, JobPhase
from compass_abs.controller.journal import JournalError, JournalLockedError, SqliteJournal
from compass_abs.controller.reconcile import Config
from compass_abs.controller.records import Setting, decode, encode
from compass_abs.model import NodeStatus
from tests.journeys.test_migration import QUICK
from tests.journeys.world import World


def quiet_life(world: World) -> list[str]:
    """Three jobs, one of which has to wait."""
    return [world.submit(2, 8), world.submit(1, 8), world.submit(2, 8)]


def migration(world: World) -> list[str]:
    """A gang is moved off a node, and back when that is drained, too."""
    job = world.submit(2, 6)
    world.run(4)
    world.command("set_node", "n0", NodeStatus.DRAINING)
    world.run(4)
    world.command("set_node", "n0", NodeStatus.UP)
    world.command("set_node", "n2", NodeStatus.DRAINING)
    return [job]


def failed_checkpoint(world: World) -> list[str]:
    """A migration that is called off because a disk is full."""
    job = world.submit(2, 6)
    world.run(4)
    world.engine.script.disk_full = 1
    world.command("set_node", "n0", NodeStatus.DRAINING)
    return [job]


def broken_successor(world: World) -> list[str]:
    """A migration whose successor dies."""
    job = world.submit(2, 6)
    world.run(4)
    world.engine.script.die_on_start = 1
    world.command("set_node", "n0", NodeStatus.DRAINING)
    return [job]


def lost_node(world: World) -> list[str]:
    """A node is lost and comes back."""
    job = world.submit(2, 6)
    world.run(4)
    world.engine.lose("n1")
    world.run(3)
    world.engine.bring_back("n1")
    return [job]


STORIES: list[Callable[[World], list[str]]] = [quiet_life, migration, failed_checkpoint, broken_successor, lost_node]


def play(story: Callable[[World], list[str]], blow_at: int | None) -> World:
    world = World(Config(scheduler="best-fit", patience=QUICK), steps=25)
    world.fuse.passed, world.fuse.blow_at = 0, blow_at
    jobs = story(world)
    world.finish()
    assert all(world.phase(job) is JobPhase.DONE for job in jobs), world.story()
    world.run(20)
    assert not world.engine.processes, f"everything is forgotten in the end: {world.story()}"
    return world


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_controller_killed_between_any_two_writes_or_calls_loses_and_doubles_nothing(
    story: Callable[[World], list[str]],
) -> None:
    places = play(story, None).fuse.passed
    assert places > 20
    for place in range(1, places + 1):
        world = play(story, place)
        assert world.restarts == 1, f"nothing was killed at place {place}"


def test_second_controller_on_one_journal_is_refused(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.sqlite")
    with pytest.raises(JournalLockedError, match="another controller"):
        SqliteJournal(tmp_path / "journal.sqlite")
    journal.close()
    SqliteJournal(tmp_path / "journal.sqlite").close()


def test_sqlite_journal_replays_what_a_world_did(tmp_path: Path) -> None:
    world = play(migration, None)
    with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        journal.append(list(world.journal.replay()))
    with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        again = [encode(record) for record in journal.replay()]
    assert again == world.journal.rows
    book = Book()
    for row in again:
        book.apply(decode(row[0], row[2]))
    assert book.jobs == world.controller.book.jobs
    assert book.counts == world.controller.book.counts


def test_journal_refuses_to_have_its_history_changed(tmp_path: Path) -> None:
    with SqliteJournal(tmp_path / "journal.sqlite") as journal:
        journal.append([Setting("migrations", 1.0, "paused")])
        for statement in ("UPDATE journal SET kind = 'x'", "DELETE FROM journal"):
            with pytest.raises(Exception, match="append-only"):
                journal._database.execute(statement)


def test_file_that_is_no_journal_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "journal.sqlite").write_bytes(b"this is not a database" * 100)
    with pytest.raises(JournalError, match=r"journal\.sqlite"):
        SqliteJournal(tmp_path / "journal.sqlite")
