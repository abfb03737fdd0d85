"""What a scheduler's constructor accepts: read from its signature, checked before it is called."""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from compass_abs.model import CompassError


class ParameterError(CompassError):
    """A parameter that a scheduler doesn't have, or a value that it doesn't take."""


@dataclass(frozen=True, slots=True)
class Within:
    """Says in an `Annotated` what a number means and between which bounds it lies."""

    meaning: str
    least: float = -math.inf
    most: float = math.inf
    #: Must be more than this.
    above: float = -math.inf

    @property
    def in_words(self) -> str:
        """The bounds, to follow `a number`."""
        if self.least > -math.inf and self.most < math.inf:
            return f" from {self.least:g} to {self.most:g}"
        parts = [
            f" above {self.above:g}" if self.above > -math.inf else "",
            f" ≥ {self.least:g}" if self.least > -math.inf else "",
            f" ≤ {self.most:g}" if self.most < math.inf else "",
        ]
        return " and".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class Parameter:
    """One keyword of a scheduler's constructor."""

    name: str
    #: int, float, bool, str or an Enum.
    kind: type
    default: Any
    meaning: str = ""
    optional: bool = False
    choices: tuple[Any, ...] = ()
    bounds: Within | None = None
    required: bool = False

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        if self.choices:
            text = "one of " + ", ".join(str(choice) for choice in self.choices)
        else:
            text = {
                int: "a whole number",
                float: "a number",
                bool: "true or false",
                str: "text",
            }.get(self.kind, self.kind.__name__)
        if self.bounds is not None:
            text += self.bounds.in_words
        return f"{text}, or none" if self.optional else text

    def check(self, owner: str, value: object) -> Any:
        """The value, as its type; text is parsed, so that the command line and a file can say the same."""
        if self.optional and (value is None or value in ("none", "None", "")):
            return None
        parsed = self._parse(value)
        bounds = self.bounds
        wrong = parsed is None or (self.choices and parsed not in self.choices)
        if not wrong and bounds is not None:
            wrong = not (bounds.least <= parsed <= bounds.most and parsed > bounds.above)
        if wrong:
            raise ParameterError(f"scheduler {owner!r}: {self.name} is {value!r}, expected {self.expected}")
        return parsed

    def _parse(self, value: object) -> Any:
        if issubclass(self.kind, Enum):
            return next((member for member in self.kind if value in (member, member.value, member.name)), None)
        if self.kind is bool:
            if isinstance(value, str):
                return {"true": True, "yes": True, "false": False, "no": False}.get(value.lower())
            return value if isinstance(value, bool) else None
        if self.kind in (int, float):
            if isinstance(value, bool) or not isinstance(value, (int, float, str)):
                return None
            try:
                number = float(value) if self.kind is float else int(value) if isinstance(value, str) else value
            except ValueError:
                return None
            if self.kind is int and not isinstance(number, int):
                return None
            return None if number != number else number
        return value if isinstance(value, str) else None


def parameters_of(constructor: Callable[..., object]) -> tuple[Parameter, ...]:
    """The keywords of a constructor after `state`, with types, bounds, defaults and meanings from its annotations."""
    function = constructor.__init__ if inspect.isclass(constructor) else constructor
    hints = get_type_hints(function, include_extras=True)
    found = []
    for name, parameter in list(inspect.signature(constructor).parameters.items())[1:]:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            continue
        found.append(_parameter(name, hints.get(name, str), parameter.default))
    return tuple(found)


def _parameter(name: str, hint: Any, default: Any) -> Parameter:
    meaning, bounds = "", None
    if get_origin(hint) is Annotated:
        hint, *notes = get_args(hint)
        for note in notes:
            if isinstance(note, Within):
                meaning, bounds = note.meaning, note
            elif isinstance(note, str):
                meaning = note
    optional = False
    if get_origin(hint) in (Union, UnionType):
        members = [member for member in get_args(hint) if member is not NoneType]
        optional = len(members) < len(get_args(hint))
        hint = members[0]
    choices: tuple[Any, ...] = ()
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        hint = type(choices[0])
    kind = hint if isinstance(hint, type) else str
    if issubclass(kind, Enum):
        choices = tuple(kind)
    required = default is inspect.Parameter.empty
    return Parameter(name, kind, None if required else default, meaning, optional, choices, bounds, required)


def checked(owner: str, known: tuple[Parameter, ...], given: Mapping[str, object]) -> dict[str, Any]:
    """The given parameters, each as its type; raises on one that is unknown, missing, or takes no such value."""
    by_name = {parameter.name: parameter for parameter in known}
    # The command line writes dashes where Python writes underscores.
    values = {name.replace("-", "_"): value for name, value in given.items()}
    for name in values:
        if name not in by_name:
            accepted = ", ".join(by_name) or "none"
            raise ParameterError(f"scheduler {owner!r} has no parameter {name!r}; it has: {accepted}")
    for parameter in known:
        if parameter.required and parameter.name not in values:
            raise ParameterError(f"scheduler {owner!r} needs {parameter.name}: {parameter.expected}")
    return {name: by_name[name].check(owner, value) for name, value in values.items()}
