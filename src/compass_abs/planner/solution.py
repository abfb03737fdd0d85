"""What the search and the exact program find: which options to take, and which holes receive what."""

from dataclasses import dataclass

from compass_abs.planner.patterns import Counts


@dataclass(frozen=True, slots=True)
class Solution:
    """Evictions by class and option, receipts by free GPUs, and how good that is."""

    #: (class, option, how many nodes of the class take it)
    evictions: tuple[tuple[int, int, int], ...]
    #: (free GPUs of the node after any eviction from it, what it receives, how many such nodes)
    receipts: tuple[tuple[int, Counts, int], ...]
    cost: float
    bound: float


@dataclass(frozen=True, slots=True)
class Infeasible:
    """Proven: nothing meets the request. When not `proven`, nothing was found in time."""

    proven: bool = True
