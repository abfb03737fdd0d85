"""The rooms are as docs/architecture.md says: all named, dependencies downward only, a core without packages."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "compass_abs"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
#: Rooms that import nothing but the standard library when they are imported.
CORE = ("model", "topology", "fragmentation", "planner", "schedulers", "queues")
#: Imports every module of the rooms that it is given, and prints what came with them from elsewhere.
PROBE = """
import importlib, pkgutil, sys

before = set(sys.modules)
for room in sys.argv[1:]:
    package = importlib.import_module("compass_abs." + room)
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        importlib.import_module(found.name)
firsts = {name.partition(".")[0] for name in set(sys.modules) - before}
ours = {"compass_abs", *(name for name in firsts if name.endswith("__mypyc"))}
print(*sorted(firsts - ours - set(sys.stdlib_module_names)))
"""


def heights() -> dict[str, int]:
    """Each room's line in the page's list, counted from the bottom; rooms of one line don't know each other."""
    block = re.search(r"Each room imports from the lines below its own.*?```\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    lines = block[1].split("\n")
    return {room: -number for number, line in enumerate(lines) for room in line.split()}


def rooms() -> list[str]:
    return sorted(folder.name for folder in SOURCE.iterdir() if (folder / "__init__.py").exists())


def imports(source: Path) -> Iterator[tuple[str, str, str]]:
    """Room, room that it imports from, and where: at the top of a module, in a function, or for types alone."""
    for path in sorted(source.rglob("*.py")):
        room = path.relative_to(source).parts[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            others = {parts[1]: None for name in names if (parts := name.split("."))[0] == "compass_abs" and parts[1:]}
            for other in others:
                if other not in (room, "__version__"):
                    yield room, other, f"{path.relative_to(source)}:{getattr(node, 'lineno', 0)}"


def upward(source: Path, height: dict[str, int]) -> list[str]:
    """Imports that don't point downward."""
    return [
        f"{where}: {room} imports {other}"
        for room, other, where in imports(source)
        if room in height and other in height and height[other] >= height[room]
    ]


def foreign(*names: str) -> set[str]:
    """Packages from outside that these rooms import when they are imported."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *names], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_every_room_is_on_the_page_and_has_its_place() -> None:
    described = re.findall(r"^\| `(\w+)/` \|", PAGE, re.MULTILINE)
    assert sorted(described) == rooms()
    assert sorted(heights()) == rooms()


def test_imports_point_downward_only() -> None:
    assert upward(SOURCE, heights()) == []


@pytest.mark.parametrize(
    "line",
    [
        "from compass_abs.cli import main",
        "import compass_abs.schedulers",
        "from compass_abs import planner",
        "def late():\n    from compass_abs.queues import make_queue",
        "if TYPE_CHECKING:\n    from compass_abs.simulation import Summary",
    ],
)
def test_import_that_points_upward_is_found_wherever_it_stands(line: str, tmp_path: Path) -> None:
    (tmp_path / "fragmentation").mkdir()
    (tmp_path / "fragmentation" / "demand.py").write_text(f"from compass_abs.model import Job\n{line}\n")
    assert len(upward(tmp_path, heights())) == 1


def test_rooms_that_know_the_model_alone_do_so() -> None:
    words = re.search(r"`traces`, `snapshots` and `training` know `model` alone", PAGE)
    assert words is not None
    alone = {"traces", "snapshots", "training"}
    assert {other for room, other, _ in imports(SOURCE) if room in alone} == {"model"}


def test_core_imports_no_package_when_it_is_imported() -> None:
    sentence = re.search(r"((?:`\w+`(?:,\s| and\s)?)+) import no third-party package", PAGE)
    assert sentence is not None
    assert sorted(re.findall(r"`(\w+)`", sentence[1])) == sorted(CORE)
    assert foreign(*CORE) == set()


def test_probe_finds_packages_where_there_are_some() -> None:
    assert "typer" in foreign("cli")
