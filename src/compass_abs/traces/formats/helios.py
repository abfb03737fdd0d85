"""Helios `cluster_log.csv` (Venus, Saturn, Earth, Uranus): SenseTime, SC '21."""

from collections.abc import Sequence

from compass_abs.traces.formats.splitting import equal_instances
from compass_abs.traces.gathering import Clock, JobRow, LeftOut, RowOrder
from compass_abs.traces.tables import TableFormat
from compass_abs.traces.values import count, moment, name, seconds


def _parse(values: Sequence[str], capacity: int) -> JobRow | LeftOut:
    job_id, gpu_num, submit_time, duration = values
    split = equal_instances(count(gpu_num, "gpu_num", lowest=0), capacity)
    submitted = moment(submit_time, "submit_time")
    service = seconds(duration, "duration")
    if isinstance(split, LeftOut):
        return split
    if not service:
        return LeftOut.NEVER_RAN
    return JobRow(name(job_id, "job_id"), *split, submitted, service)


HELIOS = TableFormat(
    name="helios",
    title="a Helios cluster_log.csv",
    columns=("job_id", "gpu_num", "submit_time", "duration"),
    parse=_parse,
    clock=Clock.DATES,
    order=RowOrder.BY_TIME,
)
