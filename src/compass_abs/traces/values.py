"""Single values of a trace file: checked, converted, or refused with what was expected."""

import math
from datetime import datetime, timedelta

from compass_abs.traces.errors import BadValueError

#: The largest cluster in print has some 100,000 GPUs; ten times that is a typing error.
MOST_GPUS = 1_000_000
#: A century: past it a duration or a time is a typing error, and a float no longer holds microseconds.
MOST_SECONDS = 3_155_760_000.0

_EPOCH = datetime(1970, 1, 1)


def number(text: str, column: str, expected: str = "a number") -> float:
    """A finite number."""
    try:
        value = float(text)
    except ValueError:
        raise BadValueError(column, text, expected) from None
    if not math.isfinite(value) or "_" in text:
        raise BadValueError(column, text, expected)
    return value


def count(text: str, column: str, lowest: int = 1) -> int:
    """A whole number of GPUs or instances; `8.0` counts as whole."""
    expected = f"a whole number ≥ {lowest}"
    value = number(text, column, expected)
    if value != int(value) or value < lowest:
        raise BadValueError(column, text, expected)
    if value > MOST_GPUS:
        raise BadValueError(column, text, f"at most {MOST_GPUS:,}")
    return int(value)


def seconds(text: str, column: str) -> float:
    """A length of time, in seconds, zero or more."""
    value = number(text, column, "a number of seconds ≥ 0")
    if value < 0:
        raise BadValueError(column, text, "a number of seconds ≥ 0")
    if value > MOST_SECONDS:
        raise BadValueError(column, text, f"at most {MOST_SECONDS:,.0f} s (a century)")
    return value


def moment(text: str, column: str) -> float:
    """A date and time as printed, whatever its time zone, in seconds since 1970 on the same clock."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise BadValueError(column, text, "a date and time such as 2020-06-17 21:00:00") from None
    if parsed.tzinfo is not None:
        parsed = parsed.replace(tzinfo=None)
    value = (parsed - _EPOCH).total_seconds()
    if not 0 <= value <= MOST_SECONDS:
        raise BadValueError(column, text, "a date between 1970 and 2070")
    return value


def instant(seconds_since_1970: float) -> datetime:
    """The inverse of `moment`."""
    return _EPOCH + timedelta(seconds=seconds_since_1970)


def name(text: str, column: str) -> str:
    """A name: not blank, and free of bytes that are not text."""
    stripped = text.strip()
    if not stripped or "\ufffd" in stripped or "\0" in stripped:
        raise BadValueError(column, text, "a name in UTF-8")
    return stripped
