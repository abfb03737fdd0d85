"""The checkpoint contract as an engine uses it, where it and the processes see the same files.

Local processes, Slurm with a shared file system, Kubernetes with a shared volume: all the same.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from compass_abs.engines.protocol import (
    JOB_ID_PATTERN,
    Acknowledgement,
    AfterCheckpoint,
    CheckpointRequest,
    EngineRefusalError,
    Progress,
    Rendezvous,
    RunId,
    StartOrder,
)
from compass_abs.training import contract

_JOB_ID = re.compile(JOB_ID_PATTERN)
#: What an instance inherits of the controller's own environment: nothing that could be a secret.
INHERITED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH")


def checked_job_id(job_id: str) -> str:
    """The job id, fit to be part of a path."""
    if not _JOB_ID.fullmatch(job_id):
        raise EngineRefusalError(f"job id {job_id!r} is not of the form {JOB_ID_PATTERN}")
    return job_id


def instance_environment(
    order: StartOrder,
    *,
    control_dir: str,
    checkpoint_dir: str,
    inherited: Mapping[str, str],
    visible_devices: str | None,
) -> dict[str, str]:
    """Everything an instance finds in its environment: torchrun's variables, ours, and the user's."""
    run, meeting = order.run, order.rendezvous
    world = len(order.nodes)
    environment = {name: inherited[name] for name in INHERITED if name in inherited}
    environment.setdefault("OMP_NUM_THREADS", "1")
    environment["PYTHONUNBUFFERED"] = "1"
    environment.update(order.workload.environment)
    environment |= {
        "RANK": str(run.number),
        "WORLD_SIZE": str(world),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
        "NODE_RANK": str(run.number),
        "MASTER_ADDR": meeting.address,
        "MASTER_PORT": str(meeting.port),
        "COMPASS_JOB_ID": run.job_id,
        "COMPASS_INSTANCE": str(run.number),
        "COMPASS_INSTANCES": str(world),
        "COMPASS_GENERATION": str(run.generation),
        "COMPASS_GPUS": str(order.gpus),
        "COMPASS_NODE": order.node,
        "COMPASS_NODES": ",".join(order.nodes),
        "COMPASS_CONTROL_DIR": control_dir,
        "COMPASS_CHECKPOINT_DIR": checkpoint_dir,
        "COMPASS_RESUME_FROM": order.resume_from,
    }
    if visible_devices is not None:
        environment["CUDA_VISIBLE_DEVICES"] = visible_devices
    return environment


def read_progress(control_dir: Path, number: int) -> Progress | None:
    """How far an instance says it is; None when it says nothing, or nothing that can be understood."""
    try:
        said = contract.read_progress(control_dir, number)
    except (contract.ContractError, OSError):
        return None
    if said is None:
        return None
    # Between its start and its first step a process knows where it began, but has not done anything.
    step = max(said.step, said.resumed_at, 0)
    return Progress(
        step=step,
        time=said.time,
        resumed_at=said.resumed_at,
        checkpoint=said.checkpoint,
        checkpoint_step=said.checkpoint_step,
        total=said.total,
        loss=said.loss,
    )


def finished(control_dir: Path, number: int) -> bool:
    """True when an instance said that it has done all its steps, or left by request: for ends nobody saw."""
    try:
        said = contract.read_progress(control_dir, number)
    except (contract.ContractError, OSError):
        return False
    return said is not None and said.state is contract.ProcessState.FINISHED


def read_acknowledgement(control_dir: Path, number: int) -> Acknowledgement | None:
    """An instance's latest answer; None when there is none that can be understood."""
    answer = _answer(control_dir, number)
    if answer is None:
        return None
    return Acknowledgement(answer.request, answer.step, answer.path, answer.error, answer.stays, answer.lost_seconds)


def _answer(control_dir: Path, number: int) -> contract.Acknowledgement | None:
    try:
        return contract.read_acknowledgement(control_dir, number)
    except (contract.ContractError, OSError):
        return None


def held_by(control_dir: Path, number: int) -> str:
    """Id of the request for which an instance holds, or has let go; empty when it trains on."""
    answer = _answer(control_dir, number)
    if answer is None or answer.error or not answer.path:
        return ""
    told = contract.read_json(control_dir / contract.directive_file(number))
    return "" if told is not None and told.get("request") == answer.request else answer.request


def last_request(control_dir: Path) -> str:
    """Id of the latest request to a gang; empty when there was none."""
    try:
        request = contract.read_request(control_dir)
    except (contract.ContractError, OSError):
        return ""
    return request.id if request is not None else ""


def post_request(control_dir: Path, request: CheckpointRequest) -> None:
    """Asks a gang. Every instance's call writes the same."""
    kind = contract.RequestKind.HOLD if request.then is AfterCheckpoint.HOLD else contract.RequestKind.CHECKPOINT
    if last_request(control_dir) != request.id:
        contract.post_request(control_dir, contract.Request(request.id, kind))


def post_resume(control_dir: Path, run: RunId) -> None:
    """Lets an instance that holds, or is about to, train on."""
    request = last_request(control_dir)
    if request:
        directive = contract.Directive(request, contract.DirectiveKind.RESUME)
        contract.post_directive(control_dir, run.number, directive)


def post_stop(control_dir: Path, number: int, request: str) -> None:
    """Lets an instance that holds for this request go."""
    contract.post_directive(control_dir, number, contract.Directive(request, contract.DirectiveKind.STOP))


def post_rejoin(old_control_dir: Path, request: str, run: RunId, control_dir: Path, rendezvous: Rendezvous) -> None:
    """Makes an instance that holds for this request one of the next generation."""
    directive = contract.Directive(
        request,
        contract.DirectiveKind.REJOIN,
        run.generation,
        str(control_dir),
        rendezvous.address,
        rendezvous.port,
    )
    contract.post_directive(old_control_dir, run.number, directive)
