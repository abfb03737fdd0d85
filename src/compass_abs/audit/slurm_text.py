"""The small languages inside Slurm's JSON: host lists, generic resources, task ranges."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from compass_abs.audit.observation import AuditError
from compass_abs.audit.values import shown

#: More hosts or array tasks than any cluster has: a list that names more is a mistake.
MOST = 1_000_000
_SUFFIX = {"": 1, "k": 1024, "m": 1024**2}
_GPU = re.compile(
    r"(?:gres[:/])?gpu(?:[:=](?P<type>[^:=(,\s]+(?=[:=]))?[:=]?(?P<count>\d+)(?P<unit>[kKmM]?))?(?:\(.*\))?", re.A
)


def hosts(names: str, where: str) -> list[str]:
    """The hosts of a list such as `gpu[01-03,7],login1`."""
    found: list[str] = []
    for part in _split(names):
        found.extend(_expand(part, where))
        if len(found) > MOST:
            raise AuditError(f"{where} is {shown(names)}: that is more than {MOST:,} hosts")
    return found


def _split(names: str) -> list[str]:
    """At commas outside brackets."""
    parts, depth, start = [], 0, 0
    for k, sign in enumerate(names):
        depth += (sign in "[(") - (sign in "])")
        if sign == "," and depth == 0:
            parts.append(names[start:k])
            start = k + 1
    parts.append(names[start:])
    return [part.strip() for part in parts if part.strip()]


def _expand(name: str, where: str) -> Iterable[str]:
    match = re.fullmatch(r"([^\[\]]*)\[([^\[\]]*)\](.*)", name, re.S)
    if match is None:
        return [name]
    before, ranges, after = match.groups()
    rests = list(_expand(after, where)) if after else [""]
    found: list[str] = []
    for number in _numbers(ranges, where):
        found.extend(before + number + rest for rest in rests)
        if len(found) > MOST:
            raise AuditError(f"{where} is {shown(name)}: that is more than {MOST:,} hosts")
    return found


def _numbers(ranges: str, where: str) -> Iterable[str]:
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit() and len(last) < 10):
            raise AuditError(f"{where}: {shown(part)} is no range of hosts such as 01-16")
        if int(last) - int(first) >= MOST:
            raise AuditError(f"{where}: {shown(part)} is more than {MOST:,} hosts")
        for number in range(int(first), int(last) + 1):
            yield str(number).zfill(len(first))


def gpus_in(resources: str, where: str) -> dict[str, int]:
    """GPUs by type in `gpu:a100:4(IDX:0-3),gpu:1`, `gres/gpu=8` or `gres:gpu:2`; the type is empty where none is given.

    A `gres/gpu=8` beside a `gres/gpu:a100=8` is the sum of the typed ones, and counts only for what they lack.
    """
    typed: dict[str, int] = {}
    plain = 0
    totals = False
    for part in _split(resources):
        match = _GPU.fullmatch(part)
        if match is None:
            if re.match(r"(gres[:/])?gpu\b", part):
                raise AuditError(f"{where}: {shown(part)} is no number of GPUs such as gpu:a100:8")
            continue
        number = int(match["count"] or 1) if len(match["count"] or "") < 10 else MOST
        count = number * _SUFFIX[(match["unit"] or "").lower()]
        if match["type"]:
            typed[match["type"]] = typed.get(match["type"], 0) + count
        else:
            plain += count
            totals |= "=" in part
    rest = plain - sum(typed.values()) if totals else plain
    if rest > 0:
        typed[""] = rest
    return typed


def slices_in(resources: str) -> bool:
    """Whether these name parts of GPUs: shards, MPS, MIG profiles."""
    return bool(re.search(r"(^|[,/:])(shard|mps)[:=]|gpu:[^:,]*\d+g\.\d+gb", resources))


def tasks_in(ranges: str, where: str) -> tuple[int, bool]:
    """How many tasks `0-9:2,15%4` or `[3-7]` names, and whether the list goes on where Slurm cut it off."""
    cut = "..." in ranges
    count = 0
    for part in ranges.partition("%")[0].replace("...", "").strip("[] ").split(","):
        match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", part.strip(), re.A)
        if match is None:
            if part.strip() and not cut:
                raise AuditError(f"{where}: {shown(part)} is no range of array tasks such as 0-99")
            continue
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        count += max(0, (last - first) // max(1, step) + 1)
    return min(count, MOST), cut


def number(value: object, where: str) -> int | None:
    """A number, plain, as text, or as {"set": true, "number": 5}; None for one that isn't set."""
    if isinstance(value, Mapping):
        return _number_of(value, where)
    if value is None or value == "" or isinstance(value, bool):
        return None
    if isinstance(value, str) and re.fullmatch(r"\d{1,15}", value, re.A):
        return int(value)
    if isinstance(value, str):
        match = re.match(r"(\d{1,9})-\d", value)  # a range of node counts: the least
        return int(match[1]) if match else None
    if isinstance(value, int | float) and abs(value) < 10**15:
        return int(value)
    raise AuditError(f"{where} is {shown(value)}, expected a number")


def _number_of(value: Mapping[str, Any], where: str) -> int | None:
    if value.get("set") is False or value.get("infinite") is True:
        return None
    inner = value.get("number")
    return None if isinstance(inner, Mapping) else number(inner, where)


def words(value: object, where: str) -> list[str]:
    """Words, whether as a list or with commas or plus signs between them; upper case."""
    if value is None:
        return []
    if isinstance(value, str):
        return [word for word in re.split(r"[,+*\s]+", value.upper()) if word]
    if isinstance(value, list):
        return [str(word).upper() for word in value]
    raise AuditError(f"{where} is {shown(value)}, expected words")
