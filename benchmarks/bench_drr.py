"""What DRR's policy could learn beyond best fit: how often there is a choice, what others choose, what training tried.

On the 100 synthetic days of `compass train-drr`, N(0.9), with DRR's rescheduling.
"""

from collections.abc import Callable
from statistics import mean, stdev

import numpy as np

from compass_abs.experiments.drr_learning import agreement, probabilities
from compass_abs.experiments.drr_training import Schedule, ajcts, episodes_of, observe, training_days
from compass_abs.schedulers.drr_policy import SEEDS, BestFitPolicy, View, shipped_policy


class Preference:
    """Takes the class that a rule puts first, given the free GPUs before and after; the smaller on ties."""

    def __init__(self, rule: Callable[[int, int], object]) -> None:
        self._rule = rule

    def choose(self, view: View) -> int:
        """The number of free GPUs of the node to take."""
        classes = [free for free, allowed in enumerate(view.allowed()) if allowed]
        return min(classes, key=lambda free: (self._rule(free, free - view.gpus), free))


#: None opens an empty node while a partial one would do, but for the last.
OTHERS = {
    "leaves an even number": Preference(lambda free, left: (free == 8, left % 2)),
    "leaves 0, 2 or 4": Preference(lambda free, left: (free == 8, left not in (0, 2, 4))),
    "loosest partial node": Preference(lambda free, left: (free == 8, -free)),
    "loosest node": Preference(lambda free, left: -free),
}


def main() -> None:
    """Prints both tables."""
    schedule = Schedule()
    count = schedule.training_days + schedule.validation_days + schedule.confirmation_days
    days = episodes_of(training_days("venus", schedule), count)
    seen = observe(days[schedule.training_days :], BestFitPolicy(), 40_000)
    features, allowed, tightest = np.array(seen.features), np.array(seen.allowed), np.array(seen.tightest)
    choice = allowed.sum(axis=1) > 1
    print(f"{len(seen):,} decisions of best fit on {count - schedule.training_days} days not trained on;", end=" ")
    print(f"more than one class on {choice.mean():.1%}")
    for seed in SEEDS:
        actor = shipped_policy(seed).actor
        p = probabilities(actor.forward(features[choice]), allowed[choice])
        sure = p[np.arange(len(p)), tightest[choice]].mean()
        print(f"  seed {seed}: best fit's choice on {agreement(actor, seen):.2%}; drawn, {sure:.2%} where there is one")
    print(f"AJCT to best fit's, {count} days: mean of ratios ± standard error, days better and worse")
    fitted = ajcts(days, BestFitPolicy())
    policies = {f"shipped, seed {seed}": shipped_policy(seed) for seed in SEEDS} | OTHERS
    for name, policy in policies.items():
        ratios = [a / b for a, b in zip(ajcts(days, policy), fitted, strict=True)]
        better, worse = sum(r < 1 for r in ratios), sum(r > 1 for r in ratios)
        print(f"  {name:24}{mean(ratios):.4f} ± {stdev(ratios) / count**0.5:.4f}{better:6}{worse:6}", flush=True)


if __name__ == "__main__":
    main()
