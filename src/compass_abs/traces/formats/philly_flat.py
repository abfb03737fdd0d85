"""Philly as a flat CSV of total GPUs and durations, the shape in which simulators pass it around."""

from collections.abc import Sequence

from compass_abs.traces.formats.splitting import equal_instances
from compass_abs.traces.gathering import Clock, JobRow, LeftOut, RowOrder
from compass_abs.traces.tables import TableFormat
from compass_abs.traces.values import count, name, seconds


def _parse(values: Sequence[str], capacity: int) -> JobRow | LeftOut:
    job_id, arrival, size, duration = values
    split = equal_instances(count(size, "size"), capacity)
    submitted = seconds(arrival, "arrival time (sec)")
    service = seconds(duration, "duration (sec)")
    if isinstance(split, LeftOut):
        return split
    if not service:
        return LeftOut.NEVER_RAN
    return JobRow(name(job_id, "#job id"), *split, submitted, service)


PHILLY_FLAT = TableFormat(
    name="philly-flat",
    title="the flat Philly CSV",
    columns=("#job id", "arrival time (sec)", "size", "duration (sec)"),
    parse=_parse,
    clock=Clock.RELATIVE,
    order=RowOrder.BY_TIME,
)
