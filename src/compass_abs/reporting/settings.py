"""What was run, in the words of a report."""

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from compass_abs.topology import Topology


def settings_shown(setup: Mapping[str, Any], trace: Mapping[str, Any]) -> dict[str, str]:
    """The settings that all runs share, from the plain values of a setup and of where its jobs come from."""
    found = {
        "jobs": str(trace.get("part", "")),
        "cluster": _cluster(setup),
        "topology": str(setup.get("topology", {}).get("name", "")),
        "queue": str(setup["queue"]),
        "migration": _migration(setup["cost"]),
        "node events": f"{len(setup['node_changes'])}" if setup["node_changes"] else "",
        "source": _where(str(trace.get("source", ""))),
    }
    return {name: value for name, value in found.items() if value}


def _cluster(setup: Mapping[str, Any]) -> str:
    if "topology" in setup:
        return Topology.of(setup["topology"]).described(setup["nodes"])
    return f"{setup['nodes']} nodes of {setup['capacity']} GPUs"


def _where(source: str) -> str:
    """A file and its folder: pages are mailed, and where on a machine that folder lies is nobody's business."""
    return "/".join(PurePath(source).parts[-2:]) if PurePath(source).is_absolute() else source


def _migration(cost: Mapping[str, Any]) -> str:
    """What a move costs, in a phrase."""
    if cost["model"] == "paper":
        return f"delays each gang that moves in an event by {cost['seconds']:g} s"
    if cost["model"] == "strict":
        return (
            f"checkpoint {cost['checkpoint']:g} s, restore {cost['restore']:g} s; "
            "GPUs are free once the checkpoint is taken"
        )
    return ", ".join(f"{name} {value}" for name, value in cost.items())
