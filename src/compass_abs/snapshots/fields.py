"""Values of a snapshot's fields, checked; each takes where it stands, to say so when it is wrong."""

import json
import re

from compass_abs.model import NodeStatus
from compass_abs.snapshots.rows import SnapshotError

#: More digits than anything counted here has, and few enough for the number to be named in a message.
_DIGITS = re.compile(r"-?[0-9]{1,40}")
#: What would garble a terminal, or can't be written anywhere: control characters and halves of surrogate pairs.
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
#: How much of a value a message shows.
_SHOWN = 60
_TRUE = ("true", "yes", "1")
_FALSE = ("false", "no", "0", "")


def shown(value: object) -> str:
    """A value as a message shows it, in one line of bearable length."""
    line = json.dumps(value) if isinstance(value, list | dict) or value is None else repr(value)
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 3]}..."


def whole_number(value: object, where: str, name: str, least: int) -> int:
    """A whole number, written as such."""
    number: object = value
    if isinstance(value, str):
        number = int(value) if _DIGITS.fullmatch(value.strip()) else None
    if type(number) is not int or number < least:
        raise SnapshotError(f"{where}: {name} is {shown(value)}, expected a whole number ≥ {least}")
    return number


def any_whole_number(value: object, where: str, name: str) -> int:
    """A whole number of either sign."""
    if type(value) is not int:
        raise SnapshotError(f"{where}: {name} is {shown(value)}, expected a whole number")
    return value


def seconds(value: object, where: str, name: str) -> float:
    """A time in seconds, not negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise SnapshotError(f"{where}: {name} is {shown(value)}, expected a number of seconds ≥ 0")
    return float(value)


def text(value: object, where: str, name: str) -> str:
    """Text; a number will do."""
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise SnapshotError(f"{where}: {name} is {shown(value)}, expected text")
    stripped = str(value).strip()
    if _UNPRINTABLE.search(stripped):
        raise SnapshotError(f"{where}: {name} is {shown(value)}, expected text without control characters")
    return stripped


def truth(value: object, where: str, name: str) -> bool:
    """True or false."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in _TRUE + _FALSE:
        return value.strip().lower() in _TRUE
    raise SnapshotError(f"{where}: {name} is {shown(value)}, expected true or false")


def node_status(value: object, where: str) -> NodeStatus:
    """Whether the node is up; empty means it is."""
    word = text(value, where, "status").lower() or NodeStatus.UP.value
    if word not in list(NodeStatus):
        raise SnapshotError(f"{where}: status is {shown(value)}, expected one of {', '.join(NodeStatus)}")
    return NodeStatus(word)
