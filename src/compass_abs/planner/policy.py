"""What a cluster's owner allows to be moved, when, and at what price: data, checked when it is read."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from math import inf
from types import UnionType
from typing import Any, get_args, get_type_hints

from compass_abs.model import CompassError
from compass_abs.planner.request import Effort

DAY = 86_400.0


class PolicyError(CompassError):
    """A knob that doesn't exist, or a value that it doesn't take."""


class Objective(StrEnum):
    """What makes one plan cheaper than another."""

    MOVES = "moves"
    """Fewer instances move."""
    LIGHTEST = "lightest"
    """Fewer instances move; of plans with equally many, the one whose instances hold the fewest GPUs."""
    DISRUPTION = "disruption"
    """Fewer GPU-seconds stand still: the GPUs of each gang that moves times its pause."""


class Tidiness(StrEnum):
    """When instances move although nobody would start because of it."""

    NEVER = "never"
    """Only a blocked head of the queue makes anything move."""
    PEAK = "peak"
    """While somebody waits, no partial node is left that moves could avoid."""
    ALWAYS = "always"
    """After every event, no partial node is left that moves could avoid."""


@dataclass(frozen=True, slots=True)
class Window:
    """A time of day, in the clock of the jobs' times, in seconds; over midnight when it closes before it opens."""

    opens: float
    closes: float

    def contains(self, now: float) -> bool:
        """Whether it is open."""
        time = now % DAY
        if self.opens <= self.closes:
            return self.opens <= time < self.closes
        return time >= self.opens or time < self.closes

    def next_opening(self, now: float) -> float:
        """When it opens next."""
        return now + (self.opens - now) % DAY


@dataclass(frozen=True, slots=True)
class Policy:
    """The knobs. With all at their defaults nothing stands between the head of the queue and a plan for it."""

    objective: Objective = Objective.MOVES
    effort: Effort = Effort.BALANCED
    tidiness: Tidiness = Tidiness.NEVER
    #: Seconds that a gang stands still for a move, measured; `Job.pause` overrides it.
    pause: float = 8.0
    #: Each step of priority makes a job this many times as expensive to move.
    priority_factor: float = 4.0
    #: A job that ends within so many seconds isn't moved.
    spare_last: float = 0.0
    #: A job that started, or was moved, less than so many seconds ago isn't moved.
    cooldown: float = 0.0
    #: Instances that may be moving at once, in an hour, and moves of one job; None for any number.
    moves_in_flight: int | None = None
    moves_per_hour: int | None = None
    moves_per_job: int | None = None
    #: GPU-seconds of waiting that a plan must save for each GPU-second that it makes stand still.
    value: float = 0.0
    #: Times at which moves are allowed, as "22:00-06:00 12:00-13:00"; empty for always.
    windows: tuple[Window, ...] = ()

    def __post_init__(self) -> None:
        for name in ("pause", "spare_last", "cooldown", "value"):
            if not 0 <= getattr(self, name) < inf:
                raise PolicyError(f"{name} is {getattr(self, name)!r}, expected a number ≥ 0")
        if not 1 <= self.priority_factor <= 1000:
            raise PolicyError(f"priority_factor is {self.priority_factor!r}, expected a number from 1 to 1000")
        for name in ("moves_in_flight", "moves_per_hour", "moves_per_job"):
            limit = getattr(self, name)
            if limit is not None and limit < 0:
                raise PolicyError(f"{name} is {limit!r}, expected a whole number ≥ 0, or none")

    @classmethod
    def from_mapping(cls, values: Mapping[str, object]) -> "Policy":
        """The policy that a configuration file or a command line describes; raises on what it doesn't understand."""
        hints = get_type_hints(cls)
        known = [field.name for field in fields(cls)]
        read: dict[str, Any] = {}
        for key, value in values.items():
            name = str(key).replace("-", "_")
            if name not in known:
                raise PolicyError(f"there is no knob {key!r}; there are: {', '.join(known)}")
            read[name] = parse_windows(value) if name == "windows" else _read(name, hints[name], value)
        return cls(**read)

    @property
    def is_free(self) -> bool:
        """True when nothing here can stop a plan."""
        limited = (self.moves_in_flight, self.moves_per_hour, self.moves_per_job) != (None, None, None)
        return not (limited or self.windows or self.value or self.cooldown or self.spare_last)


def _read(name: str, hint: Any, value: object) -> Any:
    kinds = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if type(None) in kinds and value in (None, "none", "None", ""):
        return None
    kind = kinds[0]
    if issubclass(kind, StrEnum):
        found = next((member for member in kind if value in (member, member.value)), None)
        if found is None:
            raise PolicyError(f"{name} is {value!r}, expected one of {', '.join(kind)}")
        return found
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise PolicyError(f"{name} is {value!r}, expected a number")
    try:
        number = float(value)
    except ValueError:
        raise PolicyError(f"{name} is {value!r}, expected a number") from None
    if kind is int:
        if not number.is_integer():
            raise PolicyError(f"{name} is {value!r}, expected a whole number")
        return int(number)
    return number


def parse_windows(value: object) -> tuple[Window, ...]:
    """The windows of a text such as "22:00-06:00 12:00-13:00", or of a list of such."""
    if isinstance(value, tuple) and all(isinstance(window, Window) for window in value):
        return value
    if not isinstance(value, (str, list, tuple)):
        raise PolicyError(f"windows is {value!r}, expected a text such as '22:00-06:00'")
    texts = value.split() if isinstance(value, str) else value
    return tuple(_window(text) for text in texts)


def _window(text: object) -> Window:
    opens, dash, closes = str(text).partition("-")
    if not dash:
        raise PolicyError(f"window {text!r}: expected opening and closing time, as in 22:00-06:00")
    window = Window(_time_of_day(text, opens), _time_of_day(text, closes))
    if window.opens == window.closes:
        raise PolicyError(f"window {text!r} is never open; 00:00-24:00 is the whole day")
    return window


def _time_of_day(text: object, clock: str) -> float:
    hours, colon, minutes = clock.partition(":")
    numeric = colon and hours.isdecimal() and minutes.isdecimal() and int(minutes) < 60
    if not numeric or int(hours) * 60 + int(minutes) > 24 * 60:
        raise PolicyError(f"window {text!r}: {clock!r} is no time of day, expected one such as 22:00")
    return int(hours) * 3600.0 + int(minutes) * 60.0
