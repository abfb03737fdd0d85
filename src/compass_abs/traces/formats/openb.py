"""Alibaba cluster-trace-gpu-v2023, "openb": `openb_pod_list_*.csv` (FGD, ATC '23). One pod is one job."""

from collections.abc import Sequence

from compass_abs.traces.errors import BadValueError
from compass_abs.traces.gathering import Clock, JobRow, LeftOut, RowOrder
from compass_abs.traces.tables import TableFormat
from compass_abs.traces.values import count, name, seconds

_WHOLE_GPU = 1000


def _parse(values: Sequence[str], capacity: int) -> JobRow | LeftOut:
    pod, num_gpu, gpu_milli, creation_time, deletion_time, scheduled_time = values
    gpus = count(num_gpu, "num_gpu", lowest=0)
    milli = count(gpu_milli, "gpu_milli", lowest=0)
    submitted = seconds(creation_time, "creation_time")
    if not gpus:
        return LeftOut.NO_GPU
    if milli < _WHOLE_GPU:
        return LeftOut.SHARE
    if gpus > capacity:
        return LeftOut.TOO_LARGE
    if not scheduled_time:
        return LeftOut.NEVER_RAN
    if not deletion_time:
        return LeftOut.UNFINISHED
    service = seconds(deletion_time, "deletion_time") - seconds(scheduled_time, "scheduled_time")
    if service < 0:
        raise BadValueError("deletion_time", deletion_time, f"a time after scheduled_time, {scheduled_time}")
    if not service:
        return LeftOut.NEVER_RAN
    return JobRow(name(pod, "name"), 1, gpus, submitted, service)


OPENB = TableFormat(
    name="openb",
    title="an openb_pod_list_*.csv of 2023 with its times",
    columns=("name", "num_gpu", "gpu_milli", "creation_time", "deletion_time", "scheduled_time"),
    parse=_parse,
    clock=Clock.RELATIVE,
    order=RowOrder.ANY,
)
