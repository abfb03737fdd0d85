"""Every workload trains, and a migrated run equals an undisturbed one to the last bit."""

import os
import signal
from collections.abc import Callable
from importlib import import_module

import pytest

from compass_abs.training.contract import ProcessState, RequestKind
from compass_abs.training.workloads import WORKLOADS
from tests.training.conftest import Gang

Make = Callable[..., Gang]


def undisturbed(gang: Make, workload: str, steps: int, ranks: int = 1) -> Gang:
    job = gang(workload, steps=steps, ranks=ranks)
    job.start()
    assert job.join() == [0] * ranks, job.output()
    return job


@pytest.mark.parametrize("workload", WORKLOADS)
def test_workload_stopped_and_restarted_twice_repeats_every_loss(gang: Make, workload: str) -> None:
    reference = undisturbed(gang, workload, 30)
    job = gang(workload, steps=30, pace=0.01)
    for at in (3, 12):
        job.start()
        job.wait_lines(at)
        assert job.stop() == [0], job.output()
        assert 0 < job.answer().step < 30
        assert job.progress().state is ProcessState.STOPPED
    job.start()
    assert job.join() == [0], job.output()
    assert job.progress().state is ProcessState.FINISHED
    assert job.losses() == reference.losses()
    assert len(set(job.losses())) == 30


@pytest.mark.parametrize(
    ("workload", "millions"),
    # ResNet-50, ViT-B/16, BERT-base, GPT-2 small and CLIP ViT-B/32 as published; DeepFM with 26 million rows of 17.
    [("resnet", 25.6), ("vit", 86.6), ("bert", 109.5), ("gpt2", 124.4), ("deepfm", 442.5), ("clip", 151.3)],
)
def test_full_size_has_the_parameters_of_the_published_model(workload: str, millions: float) -> None:
    torch = pytest.importorskip("torch")
    module = import_module(f"compass_abs.training.workloads.{workload}")
    with torch.device("meta"):
        model = module.Model(module.SIZES["full"])
    assert sum(each.numel() for each in model.parameters()) / 1e6 == pytest.approx(millions, abs=0.05)


@pytest.mark.parametrize("workload", ["gpt2", "deepfm"])
def test_gang_of_two_interrupted_at_one_rank_repeats_every_loss_of_both(gang: Make, workload: str) -> None:
    reference = undisturbed(gang, workload, 30, ranks=2)
    job = gang(workload, steps=30, ranks=2, pace=0.01)
    job.start()
    job.wait_lines(5)
    os.kill(job.processes[1].pid, signal.SIGTERM)  # only one of them is told: both stop at the same step
    assert job.join() == [0, 0], job.output()
    assert job.answer(0).step == job.answer(1).step == job.lines()
    job.start()
    assert job.join() == [0, 0], job.output()
    for rank in range(2):
        assert job.losses(rank) == reference.losses(rank)
    assert reference.losses(0) != reference.losses(1)


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["resnet", "bert"])
def test_gang_of_three_restarted_repeats_every_loss(gang: Make, workload: str) -> None:
    """From three ranks on the order of a sum matters; see `exact_ddp`."""
    reference = undisturbed(gang, workload, 30, ranks=3)
    job = gang(workload, steps=30, ranks=3, pace=0.01)
    job.start()
    job.wait_lines(5)
    assert job.stop() == [0, 0, 0]
    job.start()
    assert job.join() == [0, 0, 0]
    assert [job.losses(r) for r in range(3)] == [reference.losses(r) for r in range(3)]


@pytest.mark.parametrize("saving", ["blocking", "background"])
def test_killed_gang_repeats_from_its_periodic_checkpoint(gang: Make, saving: str) -> None:
    reference = undisturbed(gang, "deepfm", 30, ranks=2)
    job = gang("deepfm", steps=30, ranks=2, pace=0.01, extra=("--save-every", "4", "--saving", saving))
    job.start()
    job.wait_lines(14)
    for process in job.processes.values():
        os.kill(process.pid, signal.SIGKILL)
    assert job.join() == [-9, -9]
    reached = job.lines()
    job.start()
    assert job.join() == [0, 0], job.output()
    assert 4 <= job.progress().resumed_at <= reached
    assert job.progress().resumed_at % 4 == 0
    by_step: dict[str, set[str]] = {}
    for line in job.losses():
        by_step.setdefault(line.split()[0], set()).add(line)
    assert sorted(set.union(*by_step.values())) == sorted(reference.losses())


def test_requested_checkpoint_of_embeddings_after_a_snapshot_writes_only_changes(gang: Make) -> None:
    reference = undisturbed(gang, "deepfm", 40)
    job = gang("deepfm", steps=40, pace=0.02, extra=("--save-every", "10", "--saving", "background", "--batch", "16"))
    job.start()
    job.wait_lines(13)
    assert job.stop() == [0], job.output()
    sizes = sorted(path.stat().st_size for path in job.checkpoints.glob("*.bin"))
    assert len(sizes) == 2
    assert sizes[0] < 0.6 * sizes[1]
    job.start()
    assert job.join() == [0], job.output()
    assert job.losses() == reference.losses()


def test_checkpoint_without_stop_leaves_the_run_undisturbed(gang: Make) -> None:
    reference = undisturbed(gang, "vit", 30)
    job = gang("vit", steps=30, pace=0.01)
    job.start()
    job.wait_lines(5)
    job.ask(RequestKind.CHECKPOINT)
    assert job.join() == [0], job.output()
    assert 0 < job.answer().step <= 30
    assert not job.answer().stays
    assert job.losses() == reference.losses()
