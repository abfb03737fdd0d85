"""Acme `trace_seren.csv` and `trace_kalos.csv` (Shanghai AI Lab, NSDI '24), and the converted Kalos file."""

from collections.abc import Sequence

from compass_abs.traces.errors import BadValueError
from compass_abs.traces.gathering import Clock, JobRow, LeftOut, RowOrder
from compass_abs.traces.tables import TableFormat
from compass_abs.traces.values import MOST_SECONDS, count, moment, name, seconds


def _parse(values: Sequence[str], capacity: int) -> JobRow | LeftOut:
    job_id, node_num, gpu_num, submit_time, duration, _ = values
    gpus = count(gpu_num, "gpu_num", lowest=0)
    submitted = moment(submit_time, "submit_time")
    if not gpus:
        return LeftOut.NO_GPU
    if not duration:
        return LeftOut.UNFINISHED
    service = seconds(duration, "duration")
    nodes = count(node_num, "node_num")
    each, rest = divmod(gpus, nodes)
    if rest:
        return LeftOut.UNEQUAL
    if each > capacity:
        return LeftOut.TOO_LARGE
    if not service:
        return LeftOut.NEVER_RAN
    return JobRow(name(job_id, "job_id"), nodes, each, submitted, service)


def _parse_converted(values: Sequence[str], capacity: int) -> JobRow | LeftOut:
    job_id, arrival_time, num_iteration, iteration_time, gpu_workers, gpu_per_worker = values
    each = count(gpu_per_worker, "gpu_per_worker")
    instances = count(gpu_workers, "gpu_workers")
    submitted = seconds(arrival_time, "arrival_time")
    # The conversion wrote durations as iterations of a fixed length.
    service = seconds(num_iteration, "num_iteration") * seconds(iteration_time, "iteration_computing_time")
    if service > MOST_SECONDS:
        raise BadValueError("num_iteration", num_iteration, "a run of less than a century")
    if each > capacity:
        return LeftOut.TOO_LARGE
    if not service:
        return LeftOut.NEVER_RAN
    return JobRow(name(job_id, "job_id"), instances, each, submitted, service)


ACME = TableFormat(
    name="acme",
    title="an Acme trace_seren.csv or trace_kalos.csv",
    columns=("job_id", "node_num", "gpu_num", "submit_time", "duration", "gpu_time"),
    parse=_parse,
    clock=Clock.DATES,
    order=RowOrder.ANY,
)
ACME_CONVERTED = TableFormat(
    name="acme-converted",
    title="the converted Kalos file",
    columns=(
        "job_id",
        "arrival_time",
        "num_iteration",
        "iteration_computing_time",
        "gpu_workers",
        "gpu_per_worker",
    ),
    parse=_parse_converted,
    clock=Clock.RELATIVE,
    order=RowOrder.BY_TIME,
)
