"""Events and series as short byte strings: variable-length integers of differences, in base64."""

from base64 import b64encode
from collections.abc import Sequence

from compass_abs.reporting.comparison import ClusterEvent, Ended, JobView, Moved, ReportError, Started, StepSeries

#: Seconds in a tick: fine enough for the eye, and differences mostly fit two bytes.
TICK = 0.1
#: Kinds of events, in the two low bits.
START, END, MOVE, NODE = range(4)


def _append(out: bytearray, value: int) -> None:
    while value > 127:
        out.append((value & 127) | 128)
        value >>= 7
    out.append(value)


def _append_signed(out: bytearray, value: int) -> None:
    _append(out, value << 1 if value >= 0 else ((-value) << 1) - 1)


def _text(out: bytearray) -> str:
    return b64encode(out).decode("ascii")


def ticks(seconds: float, origin: float) -> int:
    """Whole ticks since the origin."""
    return round((seconds - origin) / TICK)


def encode_jobs(jobs: Sequence[JobView], origin: float) -> str:
    """Instances, GPUs and submission of each job."""
    out, before = bytearray(), 0
    for job in jobs:
        now = ticks(job.submitted, origin)
        _append(out, job.instances)
        _append(out, job.gpus)
        _append_signed(out, now - before)
        before = now
    return _text(out)


def encode_events(events: Sequence[ClusterEvent], origin: float) -> str:
    """Every start, end, move and node change, in order."""
    out, before = bytearray(), 0
    for event in events:
        now = ticks(event.time, origin)
        if now < before:
            raise ReportError(f"events go back in time: {event} comes after {before * TICK + origin:.1f} s")
        _append(out, now - before)
        before = now
        if isinstance(event, Started):
            _append(out, event.job << 2 | START)
            for node in event.nodes:
                _append(out, node)
        elif isinstance(event, Ended):
            _append(out, event.job << 2 | END)
        elif isinstance(event, Moved):
            _append(out, event.job << 2 | MOVE)
            _append(out, event.instance)
            _append(out, event.target)
        else:
            _append(out, event.node << 2 | NODE)
            _append(out, 1 if event.up else 0)
    return _text(out)


def encode_series(series: StepSeries, origin: float, quantum: float) -> str:
    """Steps in multiples of `quantum`; what lasts less than a tick, or changes nothing, is left out."""
    out, points = bytearray(), list[tuple[int, int]]()
    for time, value in zip(series.times, series.values, strict=True):
        point = (ticks(time, origin), round(value / quantum) if value == value else 0)
        if points and points[-1][0] == point[0]:
            points.pop()
        if not points or points[-1][1] != point[1]:
            points.append(point)
    before, level = 0, 0
    for now, value in points:
        _append(out, now - before)
        _append_signed(out, value - level)
        before, level = now, value
    return _text(out)
