"""Asks a running cluster, read-only, by its own command line tools."""

import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

from compass_abs.audit.kubernetes import KubernetesOptions
from compass_abs.audit.observation import AuditError, Observation
from compass_abs.audit.reading import decoded, documents_of, observe_documents

#: Slurm's commands wait for a minute for a controller that doesn't answer; kubectl is told not to wait longer.
PATIENCE = 120


def ask_kubernetes(
    context: str | None = None, options: KubernetesOptions | None = None, time: float | None = None
) -> Observation:
    """Nodes and pods of all namespaces, by `kubectl get`."""
    chosen = [f"--context={context}"] if context else []
    documents: list[tuple[str, Any]] = []
    # Two questions, not one: kubectl asks for lists in pieces of 500, and each answer is parsed and let go.
    for what in (["nodes"], ["pods", "--all-namespaces"]):
        command = ["kubectl", *chosen, "get", *what, "--output=json", f"--request-timeout={PATIENCE - 20}s"]
        documents += [(f"kubectl get {what[0]}", found) for found in _documents(command)]
    return observe_documents(documents, f"Kubernetes {context}" if context else "Kubernetes", options, time)


def ask_slurm(time: float | None = None) -> Observation:
    """Nodes and jobs, by `scontrol show node`, or `sinfo` where that speaks no JSON (22.05), and `squeue`."""
    try:
        nodes = _documents(["scontrol", "show", "node", "--json"])
    except AuditError:
        nodes = _documents(["sinfo", "--all", "--json"])
    jobs = _documents(["squeue", "--all", "--json"])  # those of hidden partitions hold GPUs, too
    return observe_documents([("slurm", found) for found in (*nodes, *jobs)], "Slurm", time=time)


def _documents(command: Sequence[str]) -> list[Any]:
    name = command[0]
    if shutil.which(name) is None:
        raise AuditError(f"{name} is not installed here, or not on the PATH; or give its output as a file instead")
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise AuditError(f"{' '.join(command)}: no answer within {PATIENCE} s") from None
    except OSError as error:
        raise AuditError(f"{name} can't be run: {error.strerror}") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        last = said[-1] if said else f"exit code {done.returncode}"
        raise AuditError(f"{' '.join(command)}: {last}")
    found = documents_of(decoded(done.stdout, " ".join(command)), " ".join(command))
    if not found:
        raise AuditError(f"{' '.join(command)}: printed nothing")
    return found
