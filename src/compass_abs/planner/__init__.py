"""The cheapest moves that make room, empty nodes or tidy up, and the order to carry them out in."""

from compass_abs.planner.costs import FORBIDDEN, Charge, Costs, Disruption, FewestMoves
from compass_abs.planner.plan import RequestError, plan
from compass_abs.planner.request import (
    Drain,
    Effort,
    EmptyNodes,
    Impossible,
    Limits,
    Obstacle,
    Plan,
    Request,
    Room,
    Tidy,
    Wave,
)

__all__ = [
    "FORBIDDEN",
    "Charge",
    "Costs",
    "Disruption",
    "Drain",
    "Effort",
    "EmptyNodes",
    "FewestMoves",
    "Impossible",
    "Limits",
    "Obstacle",
    "Plan",
    "Request",
    "RequestError",
    "Room",
    "Tidy",
    "Wave",
    "plan",
]
