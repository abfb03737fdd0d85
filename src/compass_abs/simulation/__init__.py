"""Traces replayed event by event, with the paper's metrics."""

from compass_abs.simulation.bound import bound, has_bound, ratios
from compass_abs.simulation.costs import Cost, PaperCost, StrictCost, make_cost
from compass_abs.simulation.driver import CHECKPOINT_PERIOD, Checks, Simulation, StuckError, simulate
from compass_abs.simulation.level_meter import LevelMeter, LevelSummary
from compass_abs.simulation.node_changes import NodeChange, read_node_changes
from compass_abs.simulation.observer import Observer, Several
from compass_abs.simulation.recorder import Recorder
from compass_abs.simulation.results import Existing, Result, ResultsError, record
from compass_abs.simulation.setup import Setup, replay
from compass_abs.simulation.summary import Summary

__all__ = [
    "CHECKPOINT_PERIOD",
    "Checks",
    "Cost",
    "Existing",
    "LevelMeter",
    "LevelSummary",
    "NodeChange",
    "Observer",
    "PaperCost",
    "Recorder",
    "Result",
    "ResultsError",
    "Setup",
    "Several",
    "Simulation",
    "StrictCost",
    "StuckError",
    "Summary",
    "bound",
    "has_bound",
    "make_cost",
    "ratios",
    "read_node_changes",
    "record",
    "replay",
    "simulate",
]
