"""How fragmented a cluster is, and how much of that is the scheduler's doing. Standard library only at import time."""

from compass_abs.fragmentation.appendix import inherent_heuristic
from compass_abs.fragmentation.demand import DemandError, slot_width, total_gpus, wcc_holds, wcc_margin
from compass_abs.fragmentation.exact import inherent, minimum_used
from compass_abs.fragmentation.gangs import largest_gang, largest_gang_repacked
from compass_abs.fragmentation.integer_program import SolverError
from compass_abs.fragmentation.measures import (
    avoidable_partial_nodes,
    avoidable_used_nodes,
    gross,
    inherent_share,
    sif,
)
from compass_abs.fragmentation.packing import Packing, Pattern, patterns_within
from compass_abs.fragmentation.pinned import (
    HeldNodes,
    Reclaimable,
    fewest_partial_around,
    held_nodes,
    largest_gang_around,
    reclaimable,
)
from compass_abs.fragmentation.published import fgd, fgd_node_table, free_on_partial_ratio, unusable_free_ratio
from compass_abs.fragmentation.survey import LargestGang, Survey, survey
from compass_abs.fragmentation.witness import witness

__all__ = [
    "DemandError",
    "HeldNodes",
    "LargestGang",
    "Packing",
    "Pattern",
    "Reclaimable",
    "SolverError",
    "Survey",
    "avoidable_partial_nodes",
    "avoidable_used_nodes",
    "fewest_partial_around",
    "fgd",
    "fgd_node_table",
    "free_on_partial_ratio",
    "gross",
    "held_nodes",
    "inherent",
    "inherent_heuristic",
    "inherent_share",
    "largest_gang",
    "largest_gang_around",
    "largest_gang_repacked",
    "minimum_used",
    "patterns_within",
    "reclaimable",
    "sif",
    "slot_width",
    "survey",
    "total_gpus",
    "unusable_free_ratio",
    "wcc_holds",
    "wcc_margin",
    "witness",
]
