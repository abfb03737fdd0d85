"""The command line of the workloads."""

import argparse
import sys
from pathlib import Path

from compass_abs.model import CompassError
from compass_abs.training.session import leave
from compass_abs.training.workloads import SIZES, WORKLOADS


def main() -> None:
    """Parses, then trains."""
    parser = argparse.ArgumentParser(prog="python -m compass_abs.training.workloads", description=__doc__)
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, help="samples per rank and step (default: by size)")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--log", type=Path, help="appends `step loss` a step, the loss as a hexadecimal float")
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="sleeps this long after each step")
    parser.add_argument("--save-every", type=int, metavar="STEPS", help="periodic checkpoints")
    parser.add_argument("--saving", choices=("blocking", "background"), default="blocking")
    arguments = parser.parse_args()
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
