"""`compass serve-kubernetes`: the controller on a Kubernetes cluster, as the scheduler of pods that name it."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Adds the command."""
    app.command("serve-kubernetes")(serve_kubernetes)


def serve_kubernetes(
    context: Annotated[str, typer.Option(help="Of the kubeconfig; by default the current one, or the pod's own.")] = "",
    namespace: Annotated[str, typer.Option(help="Of the lease, and of pods of jobs submitted to COMPASS.")] = "",
    scheduler_name: Annotated[str, typer.Option(help="schedulerName of the pods that are ours.")] = "compass-abs",
    resource: Annotated[str, typer.Option(help="What device plugins call GPUs.")] = "nvidia.com/gpu",
    image: Annotated[str, typer.Option(help="For jobs submitted to COMPASS that name none.")] = "",
    volume_claim: Annotated[
        str, typer.Option(help="Claim that holds the state folder, for pods; by default the same path on every node.")
    ] = "",
    pod_template: Annotated[
        Path | None, typer.Option(help="A Pod whose spec is the beginning of those made for submitted jobs.")
    ] = None,
    mode: Annotated[str, typer.Option(help="recommend: show every move, make none. execute: make them.")] = "execute",
    scheduler: Annotated[
        str, typer.Option("--scheduler", "-s", help="As `compass schedulers` lists them.")
    ] = "compass-abs",
    queue: Annotated[str, typer.Option(help="Who is tried next.")] = "fifo",
    state: Annotated[
        Path, typer.Option(help="Folder for journal, logs and checkpoints; all nodes must see it under this path.")
    ] = Path("compass-state"),
    host: Annotated[str, typer.Option(help="Address to listen on; beyond loopback a token is needed.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the API and the dashboard; 0 for any.")] = 7077,
    token_file: Annotated[Path | None, typer.Option(help="File with the token; made anew where there is none.")] = None,
    identity: Annotated[str, typer.Option(help="Who it is; host and process without it.", envvar="COMPASS_ID")] = "",
    alive: Annotated[Path | None, typer.Option(metavar="FILE", help="Touched while all is well, for probes.")] = None,
    log_json: Annotated[bool, typer.Option(help="Log a JSON object a line.")] = False,
) -> None:
    """Run the controller on a Kubernetes cluster: it places, watches and moves gangs of pods that name it.

    Several may run; one leads, by a lease, and the others wait for it to go.
    """
    import signal
    import threading
    from contextlib import closing

    from compass_abs.controller.kubernetes_reporter import Reporter
    from compass_abs.controller.kubernetes_takeover import report, take_over
    from compass_abs.controller.own_jobs import OwnJobs
    from compass_abs.controller.reconcile import Conduct, Config
    from compass_abs.controller.server import Settings, configure_logging, served
    from compass_abs.engines.kubernetes import Client, KubernetesEngine, PodSettings
    from compass_abs.engines.kubernetes.client import Object
    from compass_abs.engines.kubernetes.events import EventWriter, Subject
    from compass_abs.engines.kubernetes.intake import WAITING, Intake
    from compass_abs.engines.kubernetes.lease import Leadership, who_am_i
    from compass_abs.engines.kubernetes.manifest import load_template
    from compass_abs.engines.kubernetes.pods import key_of, metadata
    from compass_abs.engines.kubernetes.recommendations import Board
    from compass_abs.model import CompassError
    from compass_abs.schedulers.registry import parse_choice

    if mode not in tuple(Conduct):
        raise CompassError(f"--mode is {mode!r}, expected one of: {', '.join(Conduct)}")
    name, parameters = parse_choice(scheduler)
    config = Config(scheduler=name, parameters=parameters, queue=queue, conduct=Conduct(mode))
    config.check()
    template = load_template(pod_template) if pod_template else {}
    state, me = state.absolute(), identity or who_am_i()
    settings = Settings(state, host, port, config, token_file, log_json=log_json)
    configure_logging(as_json=log_json)
    over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: over.set())

    def say(text: str) -> None:
        typer.echo(f"compass: {text}", err=True)

    def subject(pod: Object) -> Subject:
        return Subject(*key_of(pod), str(metadata(pod).get("uid", "")))

    client = Client.connect(context or None)
    place = namespace or client.namespace
    with closing(Client.connect(context or None)) as electing:
        leadership = Leadership(electing, place, f"{scheduler_name}-scheduler", me, lost=over.set)
        client.guard = leadership.check
        if not leadership.acquire(over, lambda why: say(f"waits: {why}")):
            return
        pod_settings = PodSettings(place, image, resource, scheduler_name, volume_claim, template)
        taken = take_over(client, leadership, state, pod_settings)
        if taken is not None:
            report(taken, say)
        engine = KubernetesEngine(state / "kubernetes", client, pod_settings)
        # Two writers: each has a thread of its own.
        writer, events = (EventWriter(client, me, component=scheduler_name) for _ in range(2))
        board = Board(client, place, me)

        def tell(pod: Object, reason: str, message: str) -> None:
            if reason != WAITING:  # which the reporter says better
                writer.say(subject(pod), reason, message)

        intake = Intake(engine, tell)

        def waiting() -> dict[str, list[Subject]]:
            return {job: [subject(pod) for pod in members] for job, members in intake.waiting_pods().items()}

        try:
            with (
                served(settings, engine) as (url, service),
                closing(Reporter(service, waiting, events, board)) as reporter,
            ):
                reporter.start()
                say(f"listening on {url}/; places pods of schedulerName {scheduler_name}")
                jobs = OwnJobs(service)
                while not over.is_set():
                    try:
                        intake.look(jobs)
                    except CompassError as error:
                        say(f"pods: {error}")
                    else:
                        if alive is not None:
                            alive.touch()
                    over.wait(1.0)
        finally:
            lost = not leadership.leads
            leadership.release()
    if lost:
        raise typer.Exit(1)
