"""`compass explain`: why a job can't start on a cluster, and the cheapest moves that would let it."""

import json
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from compass_abs.planner.explain import Explanation

_COLOURS = {"fits": "green", "fragmentation": "yellow", "capacity": "red", "policy": "magenta"}


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("explain")(explain)


def explain(
    snapshot: str = typer.Argument("-", help="JSON or CSV (docs/snapshots.md); - for standard input.", metavar="FILE"),
    gpus: int = typer.Option(..., "--gpus", "-g", min=1, help="GPUs of each instance."),
    instances: int = typer.Option(1, "--instances", "-w", min=1, help="Instances, which start all or not at all."),
    pool: str = typer.Option("", help="The pool to start in; every pool without it."),
    objective: str = typer.Option("disruption", help="moves: fewest moves. disruption: fewest GPU-seconds paused."),
    pause: float = typer.Option(8.0, min=0.0, help="Seconds that a move pauses a job, where the snapshot says none."),
    max_moves: int | None = typer.Option(None, min=0, help="A budget of moves."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
) -> None:
    """Say why a job can't start: capacity, fragmentation or policy, with the exact plan that would make room."""
    from compass_abs.planner.allowance import Allowance
    from compass_abs.planner.explain import Answer, Explanation
    from compass_abs.planner.explain import explain as ask
    from compass_abs.planner.ledger import Ledger
    from compass_abs.planner.policy import Policy
    from compass_abs.planner.request import Room
    from compass_abs.snapshots import load_snapshot

    pools, room = load_snapshot(snapshot), Room(instances, gpus)
    policy = Policy.from_mapping({"objective": objective, "pause": pause})
    allowance = Allowance(policy, Ledger(), 0.0, {}, {})
    if pool and pool not in pools:
        text = f"pool: there is no pool {pool!r}; there are: {', '.join(pools)}"
        answers = [Explanation(pool, Answer.POLICY, text, room, {"wanted": instances * gpus})]
    else:
        answers = []
        for name, state in pools.items():
            if pool in ("", name) and gpus > state.capacity:
                text = f"pool: an instance of {gpus} GPUs doesn't fit its nodes of {state.capacity}; use smaller ones"
                answers.append(Explanation(name, Answer.POLICY, text, room, {"wanted": instances * gpus}))
            elif pool in ("", name):
                answers.append(ask(state, room, allowance, pause, max_moves))
    if as_json:
        typer.echo(json.dumps({"pools": [each.as_dict() for each in answers]}, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for number, each in enumerate(answers):
        if number:
            console.print()
        _show(console, each)


def _show(console: "Console", answer: "Explanation") -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    job, verdict = answer.job, str(answer.answer)
    console.print(
        Text.assemble(
            (f"{job.instances} × {job.gpus} GPUs", "bold"),
            " in pool ",
            (answer.pool, "bold cyan"),
            ": ",
            (verdict, f"bold {_COLOURS[verdict]}"),
            f" ({answer.text})",
        )
    )
    if "free" in answer.numbers:
        numbers = answer.numbers
        console.print(
            Text(
                f"{numbers['wanted']} GPUs wanted, {numbers['free']} free; {numbers['fits_now']} of {job.instances} "
                "instances fit without a move",
                style="dim",
            )
        )
    plan = answer.plan
    if plan is None:
        return
    if plan.moves:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
        for header in ("wave", "job", "instance", "GPUs", "from", "to"):
            table.add_column(header, justify="right" if header in ("wave", "instance", "GPUs") else "left")
        for number, wave in enumerate(plan.waves, 1):
            for move in wave.moves:
                label = f"{number} (all leave, then all arrive)" if wave.together else str(number)
                where = (answer.names[move.source], answer.names[move.target])
                table.add_row(label, Text(move.instance.job_id), str(move.instance.number), str(move.gpus), *where)
        console.print(table)
        certainty = "no plan is cheaper" if plan.proven else "a cheaper plan is not ruled out"
        console.print(
            f"{len(plan.moves)} moves of {len(plan.jobs)} jobs, {answer.disruption:,.0f} GPU-seconds; {certainty}"
        )
    console.print(Text(f"then starts on: {' '.join(answer.names[node] for node in plan.nodes)}"))
