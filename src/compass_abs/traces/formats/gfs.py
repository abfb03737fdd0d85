"""Alibaba cluster-trace-v2026-spot-gpu: `job_info_df.csv` with `node_info_df.csv` beside it (GFS, ASPLOS '26)."""

import csv
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from compass_abs.traces.errors import BadValueError, TraceError
from compass_abs.traces.gathering import Clock, JobRow, LeftOut, RowOrder
from compass_abs.traces.tables import TableFormat, open_text
from compass_abs.traces.trace import NodeGroup, Trace
from compass_abs.traces.values import count, name, number, seconds

_NODES = "node_info_df.csv"


def _parse(values: Sequence[str], capacity: int) -> JobRow | LeftOut:
    job_name, gpu_request, worker_num, submit_time, duration = values
    share = number(gpu_request, "gpu_request", "a number of GPUs ≥ 0")
    if share < 0:
        raise BadValueError("gpu_request", gpu_request, "a number of GPUs ≥ 0")
    workers = count(worker_num, "worker_num")
    submitted = seconds(submit_time, "submit_time")
    service = seconds(duration, "duration")
    if share == 0:
        return LeftOut.NO_GPU
    if share != int(share):
        return LeftOut.SHARE
    gpus = count(gpu_request, "gpu_request")
    if gpus > capacity:
        return LeftOut.TOO_LARGE
    if not service:
        return LeftOut.NEVER_RAN
    return JobRow(name(job_name, "job_name"), workers, gpus, submitted, service)


def _with_fleet(trace: Trace, path: Path) -> Trace:
    """The trace with the cluster that the publisher lists beside it."""
    nodes = path.with_name(_NODES)
    return replace(trace, fleet=read_nodes(nodes)) if nodes.is_file() else trace


def read_nodes(path: Path) -> tuple[NodeGroup, ...]:
    """The nodes of `node_info_df.csv` by GPU model and size, the largest group first."""
    groups: dict[tuple[str, int], int] = {}
    with open_text(path) as stream:
        try:
            for line, row in enumerate(csv.DictReader(stream), start=2):
                try:
                    gpus = count(row["gpu_capacity_num"] or "", "gpu_capacity_num", lowest=0)
                    key = (name(row["gpu_model"] or "", "gpu_model"), gpus)
                except BadValueError as error:
                    raise TraceError(f"{path}, line {line}: {error}") from None
                groups[key] = groups.get(key, 0) + 1
        except (KeyError, csv.Error) as error:
            raise TraceError(f"{path}: no list of nodes with gpu_model and gpu_capacity_num ({error})") from None
    return tuple(NodeGroup(*key, n) for key, n in sorted(groups.items(), key=lambda item: (-item[1], item[0])))


GFS = TableFormat(
    name="gfs",
    title="an Alibaba spot-gpu 2026 job_info_df.csv",
    columns=("job_name", "gpu_request", "worker_num", "submit_time", "duration"),
    parse=_parse,
    clock=Clock.RELATIVE,
    order=RowOrder.BY_TIME,
    companion=_with_fleet,
)
