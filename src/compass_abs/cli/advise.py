"""`compass advise`: looks at a Kubernetes cluster again and again, and keeps what it would move as objects in it."""

from pathlib import Path
from typing import Annotated

import typer

from compass_abs.cli.audit import AssumeMovable, Every, GpuLabel, GpuResource, Pause, PoolLabel, kubernetes_options


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("advise")(advise)


def advise(
    context: Annotated[str, typer.Option(metavar="NAME", help="Another context than the current one.")] = "",
    namespace: Annotated[str, typer.Option(help="Where the objects are kept; the context's without it.")] = "",
    every: Every = 60.0,
    assume_movable: AssumeMovable = False,
    pause: Pause = 8.0,
    identity: Annotated[str, typer.Option(help="Who it is; host and process without it.", envvar="COMPASS_ID")] = "",
    alive: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Touched after each look that succeeded, for probes.")
    ] = None,
    lease_seconds: Annotated[
        float, typer.Option(min=3.0, help="After so long without a word from one another takes its place.")
    ] = 15.0,
    gpu_resource: GpuResource = None,
    gpu_label: GpuLabel = None,
    pool_label: PoolLabel = None,
) -> None:
    """Keep Recommendations in a Kubernetes cluster: what to move, why, what it costs, what would start.

    Whatever scheduler the cluster has. Moves nothing, and needs no right to.
    """
    import signal
    import threading
    from contextlib import closing

    from compass_abs.audit.audit import AuditOptions, Movability
    from compass_abs.engines.kubernetes.adviser import Adviser
    from compass_abs.engines.kubernetes.client import Client
    from compass_abs.engines.kubernetes.lease import Leadership, Terms, who_am_i
    from compass_abs.engines.kubernetes.recommendations import Board

    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: over.set())
    movability = Movability.ASSUMED if assume_movable else Movability.DECLARED
    me = identity or who_am_i()
    with closing(Client.connect(context or None)) as client, closing(Client.connect(context or None)) as electing:
        place = namespace or client.namespace
        terms = Terms.lasting(lease_seconds)
        leadership = Leadership(electing, place, "compass-abs-adviser", me, terms, lost=over.set)
        client.guard = leadership.check
        if not leadership.acquire(over, lambda why: typer.echo(f"compass: waits: {why}", err=True)):
            return
        options = kubernetes_options(gpu_resource or [], gpu_label or [], pool_label or [])
        adviser = Adviser(client, options, AuditOptions(movability, pause), Board(client, place, me))
        try:
            adviser.run(over, every, alive)
        finally:
            lost = not leadership.leads
            leadership.release()
        if lost:
            typer.echo(f"compass: {me} has lost its lease; another one leads by now", err=True)
            raise typer.Exit(1)
