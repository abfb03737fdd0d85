"""How GPUs, panels, racks and tiers of racks nest; and the cluster state of a pool that is built so."""

from compass_abs.topology.domain_state import DomainState
from compass_abs.topology.presets import PRESETS, find_topology, read_topology
from compass_abs.topology.topology import Demand, Level, Topology, TopologyError

__all__ = [
    "PRESETS",
    "Demand",
    "DomainState",
    "Level",
    "Topology",
    "TopologyError",
    "find_topology",
    "read_topology",
]
