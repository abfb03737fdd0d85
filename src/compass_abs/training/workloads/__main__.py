"""The command line of the workloads."""

import argparse
import sys
from pathlib import Path

from compass_abs.model import CompassError
from compass_abs.training.leaving import leave
from compass_abs.training.workloads import SIZES, WORKLOADS


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(prog="python -m compass_abs.training.workloads", description=__doc__)
    options.add_argument("workload", choices=WORKLOADS)
    options.add_argument("--size", choices=SIZES, default="tiny")
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--batch", type=int, help="samples per rank and step (default: by size)")
    options.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    options.add_argument("--log", type=Path, help="appends `step loss` a step, the loss as a hexadecimal float")
    options.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="sleeps this long after each step")
    options.add_argument("--save-every", type=int, metavar="STEPS", help="periodic checkpoints")
    options.add_argument("--saving", choices=("blocking", "background"), default="blocking")
    return options


def main() -> None:
    """Parses, then trains."""
    arguments = parser().parse_args()
    from compass_abs.training.workloads.loop import train

    try:
        train(
            arguments.workload,
            arguments.size,
            steps=arguments.steps,
            seed=arguments.seed,
            batch_size=arguments.batch,
            device=arguments.device,
            log=arguments.log,
            pace=arguments.pace,
            save_every=arguments.save_every,
            saving=arguments.saving,
        )
    except CompassError as error:
        print(f"compass: {error}", file=sys.stderr)
        leave(2)
    leave(0)


if __name__ == "__main__":
    main()
