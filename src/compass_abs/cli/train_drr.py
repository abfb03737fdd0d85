"""`compass train-drr`: the policy of the DRR baseline, trained again from nothing."""

import json
from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("train-drr")(train_drr)


def train_drr(
    out: Annotated[Path, typer.Option(help="Folder for seedK.npz and training.json; created where absent.")],
    seeds: Annotated[
        list[int] | None, typer.Option("--seed", min=0, help="A seed; repeat for several. [default: 1 2 3]")
    ] = None,
    model: str = typer.Option("venus", help="Model of the synthetic days (compass trace synth lists them)."),
    updates: int = typer.Option(200, min=0, help="PPO updates of 2048 decisions; 0 for imitation alone."),
    force: bool = typer.Option(False, "--force", help="Replace weights that are there already."),
) -> None:
    """Train DRR's placement policy on synthetic days: imitation of best fit, then PPO; minutes a seed.

    The same command makes the weights that ship with the package. Use what it wrote as drr:policy=FOLDER/seed1.npz.
    """
    from compass_abs.experiments.drr_training import Schedule, train, training_days
    from compass_abs.model import CompassError
    from compass_abs.schedulers.drr_policy import SEEDS, save

    seeds = seeds or list(SEEDS)
    present = [path for seed in seeds if (path := out / f"seed{seed}.npz").exists()]
    if present and not force:
        raise CompassError(f"{present[0]} exists; --force replaces it")
    schedule = Schedule(updates=updates)
    trace = training_days(model, schedule)
    out.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for seed in seeds:
        network, outcome = train(trace, seed, schedule, lambda text: typer.echo(text, err=True))
        save(network, out / f"seed{seed}.npz")
        outcomes.append(outcome)
        typer.echo(
            f"seed {seed}: agreement {outcome.agreement:.2%}, AJCT on validation days {outcome.final_ajct:.1f} s "
            f"(best fit {outcome.best_fit_ajct:.1f} s)"
        )
    record = {"model": model, "updates": updates, "seeds": [outcome.as_dict() for outcome in outcomes]}
    (out / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
