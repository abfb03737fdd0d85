"""What the planner is asked and what it answers, as values."""

from dataclasses import dataclass, field
from enum import StrEnum

from compass_abs.model import Migration


@dataclass(frozen=True, slots=True)
class Room:
    """Space for `instances` new instances of `gpus` GPUs each, all at once."""

    instances: int
    gpus: int


@dataclass(frozen=True, slots=True)
class EmptyNodes:
    """At least this many nodes that hold nothing."""

    count: int


@dataclass(frozen=True, slots=True)
class Drain:
    """Nothing left on these nodes (by index), whatever their status, and nothing new on them."""

    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tidy:
    """At most this many partial and used nodes; None leaves that number alone."""

    partial: int | None = None
    used: int | None = None


Request = Room | EmptyNodes | Drain | Tidy


@dataclass(frozen=True, slots=True)
class Limits:
    """What a plan may not exceed."""

    #: Most instances that may move; None for any number.
    moves: int | None = None
    #: Branch-and-bound nodes after which the exact program settles for its best plan and its bound. A number of
    #: nodes, not of seconds, so that every machine finds the same plan. 0 leaves the exact program out.
    branches: int = 20_000


class Effort(StrEnum):
    """How hard to look for the cheapest plan. All three find a plan whenever one exists."""

    FAST = "fast"
    """The constructive search; the exact program only where the search finds nothing."""
    BALANCED = "balanced"
    """The search, then the exact program wherever a bound doesn't show that the search was optimal already."""
    EXACT = "exact"
    """The exact program."""


@dataclass(frozen=True, slots=True)
class Wave:
    """Moves that may run at the same time."""

    moves: tuple[Migration, ...]
    #: True when every one has to leave before any can arrive: no node has space for even one of them.
    together: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """Moves, wave by wave, after which the request is met."""

    waves: tuple[Wave, ...]
    #: Node of each instance of a `Room` request.
    nodes: tuple[int, ...]
    #: What the moved jobs are charged, scratch moves left out.
    cost: float
    #: No plan costs less than this.
    bound: float
    #: Moves beyond those that the program chose, because space was too tight to go straight there.
    scratch: int = 0

    @property
    def moves(self) -> tuple[Migration, ...]:
        """Every move in an order in which each one fits."""
        return tuple(move for wave in self.waves for move in wave.moves)

    @property
    def proven(self) -> bool:
        """True when no plan is cheaper."""
        return self.cost <= self.bound + 1e-6 * max(1.0, abs(self.bound))

    @property
    def jobs(self) -> tuple[str, ...]:
        """Jobs that this plan pauses, in the order in which it does."""
        return tuple(dict.fromkeys(move.instance.job_id for move in self.moves))


class Obstacle(StrEnum):
    """Why there is no plan."""

    CAPACITY = "capacity"
    """Fewer free GPUs than wanted."""
    PACKING = "packing"
    """Enough free GPUs, but no packing of everything exists, even with every job movable."""
    PINNED = "pinned"
    """A packing exists, but not with the jobs that may not move where they are."""
    BUDGET = "budget"
    """A plan exists, but not with so few moves."""
    EFFORT = "effort"
    """The exact program gave up at its limit of branches without a plan or a proof."""


@dataclass(frozen=True, slots=True)
class Impossible:
    """There is no plan, and why."""

    obstacle: Obstacle
    detail: str
    #: GPUs wanted and free, nodes needed and available, moves needed and allowed: whatever the obstacle counts.
    numbers: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.detail
