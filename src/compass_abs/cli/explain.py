"""`compass explain`: why a job doesn't start, and the cheapest moves that would let it: live, or on a snapshot."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from compass_abs.planner.explain import Explanation

_COLOURS = {"fits": "green", "fragmentation": "yellow", "capacity": "red", "policy": "magenta"}
_WHAT = typer.Argument(
    "-",
    metavar="JOB|FILE",
    help="A job's id at the running controller; or, with --gpus, a snapshot in JSON or CSV (- for standard input).",
)


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("explain")(explain)


def explain(
    what: str = _WHAT,
    gpus: int | None = typer.Option(None, "--gpus", "-g", min=1, help="GPUs of each instance of a job in mind."),
    instances: int = typer.Option(1, "--instances", "-w", min=1, help="Instances, which start all or not at all."),
    pool: str = typer.Option("", help="The pool to start in; every pool without it."),
    objective: str = typer.Option(
        "disruption",
        help="disruption: fewest GPU-seconds paused; moves; lightest: few moves, then GPUs.",
    ),
    pause: float = typer.Option(8.0, min=0.0, help="Seconds that a move pauses a job, where the snapshot says none."),
    max_moves: int | None = typer.Option(None, min=0, help="A budget of moves."),
    url: str | None = typer.Option(None, "--url", help="The controller; COMPASS_URL without it.", show_default=False),
    as_json: bool = typer.Option(False, "--json", help="Print JSON instead of a table."),
) -> None:
    """Say why a job doesn't start: capacity, fragmentation or policy, with the exact plan that would make room.

    `compass explain my-job-1` asks the running controller, `compass explain cluster.json --gpus 4` a snapshot.
    """
    if gpus is None:
        _explain_live(what, url, as_json)
        return
    answers = [each.as_dict() for each in _ask_snapshot(what, pool, instances, gpus, objective, pause, max_moves)]
    if as_json:
        typer.echo(json.dumps({"pools": answers}, indent=2, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False)
    for number, each in enumerate(answers):
        if number:
            console.print()
        _show(console, each)


def _explain_live(job: str, url: str | None, as_json: bool) -> None:
    from compass_abs.controller.client import Client, path_of_job
    from compass_abs.model import CompassError

    if job == "-" or Path(job).is_file():
        raise CompassError(f"explain {job}: --gpus is missing: the size of the instances that you have in mind")
    with Client(url) as client:
        found = client.get(path_of_job(job, "explain"))
    if as_json:
        typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(
        Text.assemble((job, "bold"), f" is {found['phase']}" + (f": {found['text']}" if found["text"] else ""))
    )
    if "now" in found:
        _show(console, found["now"])


def _ask_snapshot(
    snapshot: str, pool: str, instances: int, gpus: int, objective: str, pause: float, max_moves: int | None
) -> "list[Explanation]":
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
        return [Explanation(pool, Answer.POLICY, text, room, {"wanted": instances * gpus})]
    answers = []
    for name, state in pools.items():
        if pool in ("", name) and gpus > state.capacity:
            text = f"pool: an instance of {gpus} GPUs doesn't fit its nodes of {state.capacity}; use smaller ones"
            answers.append(Explanation(name, Answer.POLICY, text, room, {"wanted": instances * gpus}))
        elif pool in ("", name):
            answers.append(ask(state, room, allowance, pause, max_moves))
    return answers


def _show(console: "Console", answer: dict[str, Any]) -> None:
    """One pool's explanation, as `Explanation.as_dict` gives it."""
    from rich.text import Text

    job, verdict = answer["job"], answer["verdict"]
    console.print(
        Text.assemble(
            (f"{job['instances']} × {job['gpus']} GPUs", "bold"),
            " in pool ",
            (answer["pool"] or "default", "bold cyan"),
            ": ",
            (verdict, f"bold {_COLOURS[verdict]}"),
            f" ({answer['text']})",
        )
    )
    if "free" in answer:
        numbers = f"{answer['wanted']} GPUs wanted, {answer['free']} free; {answer['fits_now']} of {job['instances']}"
        console.print(Text(f"{numbers} instances fit without a move", style="dim"))
    plan = answer.get("plan")
    if plan is None:
        return
    if plan["waves"]:
        _show_waves(console, plan)
    console.print(Text(f"then starts on: {' '.join(plan['nodes'])}"))


def _show_waves(console: "Console", plan: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in ("wave", "job", "instance", "GPUs", "from", "to"):
        table.add_column(header, justify="right" if header in ("wave", "instance", "GPUs") else "left")
    for number, wave in enumerate(plan["waves"], 1):
        for move in wave["moves"]:
            label = f"{number} (all leave, then all arrive)" if wave["together"] else str(number)
            words = (move["job"], str(move["instance"]), str(move["gpus"]), move["from"], move["to"])
            table.add_row(label, *map(Text, words))
    console.print(table)
    certainty = "no plan is cheaper" if plan["optimal"] else "a cheaper plan is not ruled out"
    jobs, seconds = len(plan["jobs"]), plan["gpu_seconds"]
    console.print(f"{plan['moves']} moves of {jobs} jobs, {seconds:,.0f} GPU-seconds; {certainty}")
