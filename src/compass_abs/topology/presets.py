"""Topologies by name, and from a file."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from compass_abs.model import CAPACITIES
from compass_abs.topology.topology import Level, Topology, TopologyError


def _whole(name: str, size: int) -> Level:
    return Level(name, size, size)


#: In order of growth. The paper's panels have 8 GPUs; a tray of a GB200 or GB300 NVL72 has 4.
PRESETS: dict[str, Topology] = {
    topology.name: topology
    for topology in (
        Topology("hgx", 8, (_whole("server", 1),)),
        Topology("dgx2", 8, (_whole("server", 2),)),
        Topology("nvl72-paper", 8, (_whole("rack", 9),)),
        Topology("nvl72", 4, (_whole("rack", 18),), "tray"),
        Topology("nvl72-16", 4, (Level("rack", 18, 16),), "tray"),
        Topology("nvl576", 8, (_whole("domain", 72),)),
        Topology("nvl576-tiered", 8, (_whole("rack", 9), _whole("row", 8))),
    )
}


def find_topology(name: str) -> Topology:
    """The preset of this name, or the topology in this file."""
    if name in PRESETS:
        return PRESETS[name]
    path = Path(name)
    if path.suffix.lower() in (".yaml", ".yml", ".json"):
        return read_topology(path)
    close = get_close_matches(name, PRESETS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(PRESETS)}"
    raise TopologyError(f"there is no topology {name!r}; {hint} (or name a .yaml file, see docs/nvlink-domains.md)")


def read_topology(path: Path) -> Topology:
    """A topology from YAML or JSON: `panel: {name, gpus}` and `levels: [{name, size, usable}]`, smallest first."""
    import yaml

    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except OSError as error:
        raise TopologyError(f"{path}: can't be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise TopologyError(f"{path}: isn't YAML: {str(error).splitlines()[0]}") from error
    table = _table(found, f"{path}", ("name", "panel", "levels"))
    panel = _table(table.get("panel"), f"{path}: panel", ("name", "gpus"))
    rows = table.get("levels")
    if not isinstance(rows, list):
        raise TopologyError(f"{path}: levels is {rows!r}, expected a list of levels, the smallest first")
    levels = []
    for number, row in enumerate(rows, start=1):
        level = _table(row, f"{path}: level {number}", ("name", "size", "usable"))
        size: Any = level.get("size")
        levels.append(Level(str(level.get("name", "")), size, level.get("usable", size)))
    gpus: Any = panel.get("gpus")
    if type(gpus) is int and gpus not in CAPACITIES:
        known = ", ".join(map(str, CAPACITIES))
        raise TopologyError(f"{path}: panel: gpus is {gpus}, expected one of {known}: panels fragment as nodes do")
    return Topology(str(table.get("name", path.stem)), gpus, tuple(levels), str(panel.get("name", "panel")))


def _table(found: object, where: str, known: tuple[str, ...]) -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise TopologyError(f"{where}: is {found!r}, expected a table with {', '.join(known)}")
    for key in found:
        if key not in known:
            raise TopologyError(f"{where}: there is no {key!r}; known: {', '.join(known)}")
    return found
