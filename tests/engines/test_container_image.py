"""The recipe of the container image: what it copies is there, and what it installs is what its commands need."""

import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "deploy" / "container" / "Containerfile"
#: Imports everything that the manifests run, with what it imports only when it is used; other packages aren't there.
PROGRAM = """
import importlib, re, sys
from importlib.metadata import packages_distributions

there = set(sys.argv[1:]) | {"compass-abs"}
owners = {
    top: {re.sub("[-_.]+", "-", name).lower() for name in names} for top, names in packages_distributions().items()
}

class Image:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in owners and not owners[top] & there:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Image())
for name in (
    "compass_abs.cli.main",
    "compass_abs.cli.serve_kubernetes",
    "compass_abs.cli.advise",
    "compass_abs.controller.kubernetes_reporter",
    "compass_abs.controller.kubernetes_takeover",
    "compass_abs.controller.server",
    "compass_abs.engines.kubernetes.intake",
    "compass_abs.engines.kubernetes.adviser",
    "compass_abs.planner",
    "compass_abs.schedulers.registry",
    "compass_abs.audit.page",
):
    importlib.import_module(name)
try:
    import pytest
except ModuleNotFoundError:
    sys.exit(0)
sys.exit("nothing was kept away")
"""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_image_has_what_its_commands_import() -> None:
    locked = (ROOT / "requirements" / "image.txt").read_text()
    installed = {canonical(line.partition("==")[0]) for line in locked.splitlines() if "==" in line}
    assert {"httpx", "uvicorn", "typer"} <= installed
    program = [sys.executable, "-c", PROGRAM, *installed]
    done = subprocess.run(program, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_image_copies_what_is_there_and_not_ignored() -> None:
    ignored = [line for line in (RECIPE.parent / f"{RECIPE.name}.dockerignore").read_text().splitlines() if line]
    let_in = [line.removeprefix("!") for line in ignored if line.startswith("!")]
    copies = re.findall(r"^COPY (?!--)(.+)$", RECIPE.read_text(), re.MULTILINE)
    sources = [source for line in copies for source in line.split()[:-1]]
    assert len(sources) >= 5
    for source in sources:
        assert (ROOT / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in let_in), f"{source} is ignored"


def test_manifests_run_as_the_user_of_the_image() -> None:
    (user,) = re.findall(r"^USER (\d+):(\d+)$", RECIPE.read_text(), re.MULTILINE)
    for overlay in ("recommend", "execute"):
        manifest = (ROOT / "deploy" / "kubernetes" / overlay / "deployment.yaml").read_text()
        assert re.findall(r"runAs(?:User|Group): (\d+)", manifest) == list(user)
