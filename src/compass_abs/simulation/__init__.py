"""Traces replayed event by event, with the paper's metrics."""

from compass_abs.simulation.costs import Cost, PaperCost, StrictCost, make_cost
from compass_abs.simulation.driver import CHECKPOINT_PERIOD, Checks, Simulation, StuckError, simulate
from compass_abs.simulation.node_changes import NodeChange, read_node_changes
from compass_abs.simulation.observer import Observer
from compass_abs.simulation.summary import Summary

__all__ = [
    "CHECKPOINT_PERIOD",
    "Checks",
    "Cost",
    "NodeChange",
    "Observer",
    "PaperCost",
    "Simulation",
    "StrictCost",
    "StuckError",
    "Summary",
    "make_cost",
    "read_node_changes",
    "simulate",
]
