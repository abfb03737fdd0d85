"""Commands to a running controller: submit, ps, describe, logs, cancel, nodes, drain, plan, top."""

import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import typer

_URL = typer.Option(None, "--url", help="The controller; COMPASS_URL without it.", show_default=False)
_JSON = typer.Option(False, "--json", help="Print JSON.")
_NODE = typer.Argument(metavar="NODE", help="A node's name, as `compass nodes` shows it.")
_JOB = typer.Argument(..., metavar="JOB", help="A job's id, as `compass ps` shows it.")
_FILE = typer.Argument(..., metavar="FILE", help="A job file in YAML; - for standard input.")
_JOBS = typer.Argument(..., metavar="JOB", help="Ids of jobs.")
#: Events of a job that `describe` prints, the latest.
_EVENTS_SHOWN = 20
_COLOURS = {
    "queued": "yellow",
    "starting": "cyan",
    "running": "green",
    "migrating": "magenta",
    "clearing": "blue",
    "done": "dim",
    "failed": "red",
    "cancelled": "dim",
}


def register(app: typer.Typer) -> None:
    """Adds the commands."""
    for command in (submit, ps, describe, logs, cancel, nodes, drain, undrain, plan, pause, resume, top):
        app.command(command.__name__)(command)


def submit(
    file: Path = _FILE,
    url: str | None = _URL,
    as_json: bool = _JSON,
) -> None:
    """Submit a job, and print its id."""
    from compass_abs.controller.client import Client
    from compass_abs.controller.job_file import JobSpecError
    from compass_abs.controller.job_spec import parse_job

    source = "standard input" if str(file) == "-" else str(file)
    data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JobSpecError(f"{source}: byte {error.start} is not UTF-8 text; expected YAML") from None
    # Checked here as well, so that a mistake is told with the file's name and line.
    parse_job(text, source)
    with Client(url) as client:
        job = client.submit(text)
    typer.echo(json.dumps({"id": job}) if as_json else job)


def ps(
    phase: str | None = typer.Option(None, help="Only jobs in this phase: queued, running, done, ..."),
    every: bool = typer.Option(False, "--all", "-a", help="Also jobs that are over."),
    url: str | None = _URL,
    as_json: bool = _JSON,
) -> None:
    """List jobs."""
    from compass_abs.controller.client import Client

    with Client(url) as client:
        jobs = client.jobs(phase or ("" if every else "open"))
    if as_json:
        _print_json({"total": len(jobs), "jobs": jobs})
        return
    rows = [
        (
            job["id"],
            job["phase"],
            f"{job['instances']}×{job['gpus']}",
            progress(job),
            ",".join(dict.fromkeys(job["nodes"])) or "-",
            _ago(job["submitted"]),
            _short(job["reason"] or job["name"]),
        )
        for job in jobs
    ]
    _table(("JOB", "PHASE", "GPUS", "STEP", "NODES", "AGE", "NAME / REASON"), rows)


def describe(job: str = _JOB, url: str | None = _URL, as_json: bool = _JSON) -> None:
    """Show everything about a job: where it runs, its checkpoints, migrations by phase, and what happened when."""
    from compass_abs.controller.client import Client, path_of_job

    with Client(url) as client:
        found = client.get(path_of_job(job))
        events = client.get(path_of_job(job, "history"))["events"]
    if as_json:
        _print_json({**found, "events": events})
        return
    echo = typer.echo
    echo(f"{found['id']}  {_clean(found['name'])}  {found['phase']}  {found['instances']} × {found['gpus']} GPUs")
    if found["reason"]:
        echo(f"reason       {_clean(found['reason'])}")
    echo(f"command      {json.dumps(found['spec']['command'], ensure_ascii=False)}")
    repeated = f", {found['lost_seconds']:.0f} s repeated after migrations" if found["lost_seconds"] else ""
    echo(f"progress     {progress(found)}   restarts {found['restarts']}, steps lost {found['lost_steps']}{repeated}")
    for run in found["runs"]:
        where = f"{run['node']} GPU {','.join(map(str, run['gpus'])) or '?'}"
        echo(
            f"instance {run['instance']:<3} {run['phase']:<8} generation {run['generation']}  {where}  {run['handle']}"
        )
    for checkpoint in found["checkpoints"]:
        echo(f"checkpoint   step {checkpoint['step']}  {_clean(checkpoint['path'])}")
    for past in found["history"]:
        seconds = "  ".join(f"{phase} {value:.2f} s" for phase, value in past["seconds"].items())
        moved = f"{','.join(past['sources'])} → {','.join(past['targets'])}"
        echo(
            f"migration    {past['id']} ({past['cause']}) {past['outcome']}: {moved}  {seconds}  {_clean(past['why'])}"
        )
    if len(events) > _EVENTS_SHOWN:
        echo(f"              {len(events) - _EVENTS_SHOWN} earlier events with --json")
    for event in events[-_EVENTS_SHOWN:]:
        when = time.strftime("%m-%d %H:%M:%S", time.localtime(event["time"]))
        echo(f"{when}  {_clean(event['text'])}")


def logs(
    job: str = _JOB,
    instance: int = typer.Option(0, "--instance", "-i", min=0, help="Of a gang; the first is 0."),
    follow: bool = typer.Option(False, "--follow", "-f", help="Go on printing until the job is over."),
    url: str | None = _URL,
) -> None:
    """Print what an instance printed; across migrations with --follow."""
    from compass_abs.cli.following import followed
    from compass_abs.controller.client import Client

    with Client(url) as client:
        if follow:
            for text in followed(client, job, instance):
                typer.echo(text, nl=False)
        else:
            data, _ = client.log(job, instance=instance, offset=-(1 << 20), limit=1 << 20)
            typer.echo(data.decode(errors="replace"), nl=False)


def cancel(jobs: list[str] = _JOBS, url: str | None = _URL, as_json: bool = _JSON) -> None:
    """End jobs."""
    from compass_abs.controller.client import Client, path_of_job

    with Client(url) as client:
        for job in jobs:
            found = client.post(path_of_job(job, "cancel"))
            over = found["ended"] is not None
            _say(found, f"{job}: {found['phase']}" if over else f"{job}: is being ended", as_json)


def nodes(url: str | None = _URL, as_json: bool = _JSON) -> None:
    """List nodes and who is on them."""
    from compass_abs.controller.client import Client

    with Client(url) as client:
        found = client.get("/nodes")
    if as_json:
        _print_json(found)
        return
    rows = [
        (
            node["name"],
            node["status"],
            # Of a lost node nothing is free, and yet nobody may be on it.
            f"{sum(slot['gpus'] for slot in node['slots'])}/{node['gpus']}",
            " ".join(f"{slot['job']}.{slot['instance']}:{slot['gpus']}" for slot in node["slots"]) or "-",
        )
        for node in found["nodes"]
    ]
    _table(("NODE", "STATUS", "USED", "INSTANCES"), rows)


def drain(node: str = _NODE, url: str | None = _URL, as_json: bool = _JSON) -> None:
    """Move everything off a node, and let nothing new onto it."""
    from compass_abs.controller.client import Client, path_of_node

    with Client(url) as client:
        found = client.post(path_of_node(node, "drain"))
    still = ", ".join(found["still_on"])
    _say(found, f"{node}: {found['status']}" + (f"; still on it: {still}" if still else "; empty"), as_json)


def undrain(node: str = _NODE, url: str | None = _URL, as_json: bool = _JSON) -> None:
    """Let a node take part again."""
    from compass_abs.controller.client import Client, path_of_node

    with Client(url) as client:
        found = client.post(path_of_node(node, "undrain"))
    _say(found, f"{node}: {found['status']}", as_json)


def plan(url: str | None = _URL, as_json: bool = _JSON) -> None:
    """Show what is being moved now, and what would be, and why."""
    from compass_abs.controller.client import Client

    with Client(url) as client:
        found = client.get("/plan")
    if as_json:
        _print_json(found)
        return
    if not found["migrates"]:
        typer.echo("migrations are shown, not made")
    rows = [
        (move["job"], move["state"], ",".join(move["from"]), ",".join(move["to"]), move["cause"])
        for move in found["moves"]
    ]
    for proposal in found["proposals"]:
        rows += [
            (move["job"], "proposed", move["from"], move["to"], f"{move['cause']}: {_clean(proposal['why'])}")
            for move in proposal["moves"]
        ]
    if rows:
        _table(("JOB", "STATE", "FROM", "TO", "WHY"), rows)
    else:
        typer.echo("nothing is being moved, and nothing would be")


def pause(url: str | None = _URL, as_json: bool = _JSON) -> None:
    """Let no migration begin."""
    _switch("pause", url, as_json)


def resume(url: str | None = _URL, as_json: bool = _JSON) -> None:
    """Let migrations be made again."""
    _switch("resume", url, as_json)


def _switch(action: str, url: str | None, as_json: bool) -> None:
    from compass_abs.controller.client import Client

    with Client(url) as client:
        found = client.post(f"/migrations/{action}")
    _say(found, f"migrations: {found['migrations']}", as_json)


def top(
    url: str | None = _URL,
    seconds: float = typer.Option(1.0, "--interval", "-n", min=0.2, help="Seconds between two looks."),
) -> None:
    """Watch the cluster in the terminal; q ends it."""
    from compass_abs.cli.terminal_dashboard import TerminalDashboard
    from compass_abs.controller.client import Client

    with Client(url) as client:
        client.get("/overview")
        TerminalDashboard(client, seconds).run()


def _print_json(found: Any) -> None:
    typer.echo(json.dumps(found, indent=2, ensure_ascii=False))


def _say(found: Any, words: str, as_json: bool) -> None:
    if as_json:
        _print_json(found)
    else:
        typer.echo(words)


def progress(job: dict[str, Any]) -> str:
    """Steps done, and of how many where the program tells."""
    return f"{job['step']}/{job['total']}" if job["total"] else str(job["step"] or "-")


def _ago(when: float) -> str:
    seconds = max(0.0, time.time() - when)
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def _short(text: str, most: int = 70) -> str:
    text = _clean(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def _clean(text: str) -> str:
    """Without what a terminal would take for a command."""
    return "".join(c if c.isprintable() else "·" for c in text)


def _table(head: Iterable[str], rows: Sequence[tuple[str, ...]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in head:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell, style=_COLOURS.get(cell, "")) for cell in row))
    Console(highlight=False).print(table)
