"""Held processes: called off, re-formed in place, and successors that are started ahead."""

import os
import signal
from collections.abc import Callable

import pytest

from compass_abs.training import contract
from compass_abs.training.contract import Directive, DirectiveKind, ProcessState, RequestKind
from tests.training.conftest import Gang, until
from tests.training.test_workloads import undisturbed

Make = Callable[..., Gang]


def hold(job: Gang) -> str:
    """The request that holds the gang, once all have acknowledged."""
    name = f"hold-{job.generation}"
    job.ask(RequestKind.HOLD, name)
    job.wait_state(ProcessState.HELD)
    assert all(job.answer(rank).stays for rank in range(job.ranks))
    return name


def move(job: Gang, mover: int) -> None:
    """Moves one rank of a held gang; the others rejoin in place."""
    request = f"hold-{job.generation}"
    old = job.control
    contract.post_directive(old, mover, Directive(request, DirectiveKind.STOP))
    assert job.processes.pop(mover).wait(30) == 0
    job.next_generation()
    for rank in job.processes:
        directive = Directive(request, DirectiveKind.REJOIN, job.generation, str(job.control), "127.0.0.1", job.port)
        contract.post_directive(old, rank, directive)
    job.fork(mover)


@pytest.mark.parametrize("mover", [0, 1])
def test_rejoin_of_two_keeps_the_other_process_and_repeats_every_loss(gang: Make, mover: int) -> None:
    reference = undisturbed(gang, "gpt2", 40, ranks=2)
    job = gang("gpt2", steps=40, ranks=2, pace=0.01)
    job.start()
    job.wait_lines(4)
    stayer = job.processes[1 - mover].pid
    held_at = job.answer().step if hold(job) and job.answer() else 0
    assert job.lines() == held_at  # nobody trains on
    move(job, mover)
    job.wait_state(ProcessState.RUNNING)
    assert job.progress(1 - mover).pid == stayer
    assert [job.progress(rank).resumed_at for rank in range(2)] == [held_at, held_at]
    assert job.progress(mover).resumed_from
    assert not job.progress(1 - mover).resumed_from  # it had its state in memory
    assert job.join() == [0, 0], job.output()
    assert [job.losses(r) for r in range(2)] == [reference.losses(r) for r in range(2)]


@pytest.mark.slow
def test_rejoin_of_three_twice_repeats_every_loss(gang: Make) -> None:
    reference = undisturbed(gang, "resnet", 60, ranks=3)
    job = gang("resnet", steps=60, ranks=3, pace=0.01)
    job.start()
    job.wait_lines(4)
    for mover in (0, 2):
        hold(job)
        move(job, mover)
        job.wait_state(ProcessState.RUNNING)
    assert sorted(job.join()) == [0, 0, 0], job.output()
    assert [job.losses(r) for r in range(3)] == [reference.losses(r) for r in range(3)]


def test_held_gang_resumed_trains_on_where_it_was(gang: Make) -> None:
    reference = undisturbed(gang, "clip", 30, ranks=2)
    job = gang("clip", steps=30, ranks=2, pace=0.01)
    job.start()
    job.wait_lines(4)
    request = hold(job)
    for rank in range(2):
        contract.post_directive(job.control, rank, Directive("another request", DirectiveKind.STOP))
    assert job.processes[0].wait(0.1) is None  # it was not meant for this hold
    for rank in range(2):
        contract.post_directive(job.control, rank, Directive(request, DirectiveKind.RESUME))
    assert job.join() == [0, 0], job.output()
    assert job.losses() == reference.losses()


def test_held_process_terminated_leaves_with_its_checkpoint_saved(gang: Make) -> None:
    job = gang("vit", steps=1000, pace=0.01)
    job.start()
    job.wait_lines(2)
    hold(job)
    os.kill(job.processes[0].pid, signal.SIGTERM)
    assert job.join() == [0]
    assert job.progress().state is ProcessState.STOPPED
    assert job.progress().step == job.answer().step


def test_reform_request_stops_the_movers_and_holds_the_rest(gang: Make) -> None:
    job = gang("vit", steps=1000, ranks=2, pace=0.01)
    job.start()
    job.wait_lines(2)
    job.ask(RequestKind.REFORM, "reform", movers=(1,))
    assert job.processes.pop(1).wait(30) == 0
    until(lambda: job.progress(0).state is ProcessState.HELD, "the stayer")
    assert (job.answer(0).stays, job.answer(1).stays) == (True, False)


def test_successor_started_ahead_waits_for_go_and_then_takes_over(gang: Make) -> None:
    reference = undisturbed(gang, "gpt2", 30, ranks=2)
    job = gang("gpt2", steps=30, ranks=2, pace=0.01)
    job.start()
    job.wait_lines(4)
    old_control, old = job.control, dict(job.processes)
    job.start(COMPASS_HOLD="1")
    job.wait_state(ProcessState.WAITING)
    contract.post_request(old_control, contract.Request("go", RequestKind.STOP))
    assert [process.wait(30) for process in old.values()] == [0, 0]
    contract.post_go(job.control)
    assert job.join() == [0, 0], job.output()
    assert job.losses() == reference.losses()


def test_rejoin_of_an_older_generation_is_refused(gang: Make) -> None:
    job = gang("vit", steps=1000, pace=0.01)
    job.start()
    job.wait_lines(2)
    request = hold(job)
    stale = Directive(request, DirectiveKind.REJOIN, job.generation, str(job.control), "127.0.0.1", job.port)
    contract.post_directive(job.control, 0, stale)
    assert job.join() == [2]
    assert "not newer" in job.output()
