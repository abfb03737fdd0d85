"""Values as they come in JSON from other people's programs: checked, with the place and the value in the message."""

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from compass_abs.audit.observation import AuditError

#: Amounts with a unit, and what a unit stands for in thousandths.
_QUANTITY = re.compile(r"(\d{1,12})(m|k|M|G|Ki|Mi|Gi)", re.A)
_UNITS = {"m": 1, "k": 10**6, "M": 10**9, "G": 10**12, "Ki": 1024_000, "Mi": 1024**2 * 1000, "Gi": 1024**3 * 1000}


def mapping(value: object, where: str) -> Mapping[str, Any]:
    """A JSON object; null is an empty one, as the writers of these formats mean it."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise AuditError(f"{where} is {shown(value)}, expected an object")
    return value


def items(value: object, where: str) -> list[Any]:
    """A JSON list; null is an empty one."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise AuditError(f"{where} is {shown(value)}, expected a list")
    return value


def text(value: object, where: str) -> str:
    """Text; null is empty."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise AuditError(f"{where} is {shown(value)}, expected text")
    return value


def moment(value: object, where: str) -> float | None:
    """Seconds since 1970 of a time such as 2026-11-18T22:00:00Z; None for null."""
    if value is None or value == "":
        return None
    try:
        parsed = datetime.fromisoformat(text(value, where))
        return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise AuditError(f"{where} is {shown(value)}, expected a time such as 2026-11-18T22:00:00Z") from None


def whole(value: object, where: str) -> int:
    """A whole number ≥ 0, plain or as text."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 9:
        return int(value)
    if type(value) is int and 0 <= value < 10**9:
        return value
    if isinstance(value, float) and math.isfinite(value) and value.is_integer() and 0 <= value < 10**9:
        return int(value)
    raise AuditError(f"{where} is {shown(value)}, expected a whole number")


def quantity(value: object, where: str) -> int:
    """A whole number as Kubernetes writes amounts: 8, "8", "1k", "2Ki", "8000m"."""
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        return whole(value, where)
    amount, rest = divmod(int(match[1]) * _UNITS[match[2]], 1000)
    if rest or amount >= 10**9:
        raise AuditError(f"{where} is {shown(value)}, expected a whole number")
    return amount


def shown(value: object) -> str:
    """A value, short enough for a message."""
    words = repr(value)
    return words if len(words) <= 60 else words[:57] + "..."
