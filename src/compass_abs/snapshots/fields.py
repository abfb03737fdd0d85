"""Values of a snapshot's fields, checked; each takes where it stands, to say so when it is wrong."""

import re

from compass_abs.model import NodeStatus
from compass_abs.snapshots.rows import SnapshotError

#: Nine digits are enough for anything that is counted here.
_DIGITS = re.compile(r"-?[0-9]{1,9}")
_TRUE = ("true", "yes", "1")
_FALSE = ("false", "no", "0", "")


def whole_number(value: object, where: str, name: str, least: int) -> int:
    """A whole number, written as such."""
    number: object = value
    if isinstance(value, str):
        number = int(value) if _DIGITS.fullmatch(value.strip()) else None
    if type(number) is not int or number < least:
        raise SnapshotError(f"{where}: {name} is {value!r}, expected a whole number ≥ {least}")
    return number


def any_whole_number(value: object, where: str, name: str) -> int:
    """A whole number of either sign."""
    if type(value) is not int:
        raise SnapshotError(f"{where}: {name} is {value!r}, expected a whole number")
    return value


def seconds(value: object, where: str, name: str) -> float:
    """A time in seconds, not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise SnapshotError(f"{where}: {name} is {value!r}, expected a number of seconds ≥ 0")
    return float(value)


def text(value: object, where: str, name: str) -> str:
    """Text; a number will do."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise SnapshotError(f"{where}: {name} is {value!r}, expected text")
    return str(value).strip()


def truth(value: object, where: str, name: str) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE + _FALSE:
        return value.strip().lower() in _TRUE
    raise SnapshotError(f"{where}: {name} is {value!r}, expected true or false")


def node_status(value: object, where: str) -> NodeStatus:
    """Whether the node is up; empty means it is."""
    word = text(value, where, "status").lower() or NodeStatus.UP.value
    if word not in list(NodeStatus):
        raise SnapshotError(f"{where}: status is {value!r}, expected one of {', '.join(NodeStatus)}")
    return NodeStatus(word)
