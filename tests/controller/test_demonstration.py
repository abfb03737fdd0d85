"""Real PyTorch training on the live system: a gang is moved, and its losses stay the same, bit for bit."""

import pytest

from compass_abs.controller.demonstration import DemoJob, demonstrate, live_system
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
