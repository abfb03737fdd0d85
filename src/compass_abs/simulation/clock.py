"""Simulated time: whole microseconds, so that sums of times are exact."""

import math

from compass_abs.model import CompassError

#: Microseconds in a second.
SECOND = 1_000_000


class TimeError(CompassError):
    """A time or a span that isn't a usable number of seconds."""


def microseconds(seconds: float, what: str) -> int:
    """Seconds as whole microseconds; `what` names the value in the error for one that is no finite number."""
    if not math.isfinite(seconds):
        raise TimeError(f"{what} is {seconds!r}, expected a finite number of seconds")
    return round(seconds * SECOND)
