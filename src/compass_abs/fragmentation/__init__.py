"""How fragmented a cluster is, and how much of that is the scheduler's doing. Standard library only at import time."""

from compass_abs.fragmentation.demand import DemandError, slot_width, total_gpus, wcc_holds, wcc_margin
from compass_abs.fragmentation.exact import inherent, minimum_used
from compass_abs.fragmentation.packing import Packing, Pattern, patterns_within

__all__ = [
    "DemandError",
    "Packing",
    "Pattern",
    "inherent",
    "minimum_used",
    "patterns_within",
    "slot_width",
    "total_gpus",
    "wcc_holds",
    "wcc_margin",
]
