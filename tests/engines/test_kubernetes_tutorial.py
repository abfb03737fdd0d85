"""The tutorial of docs/kubernetes.md, every command of it, as users run it."""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.engines.kubernetes_cluster import binaries, skip_without_kubernetes

pytestmark = pytest.mark.engine

ROOT = Path(__file__).parents[2]


def test_every_command_of_the_tutorial_works() -> None:
    skip_without_kubernetes()
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    section = page.split("## From nothing", 1)[1].split("\n## ", 1)[0]
    blocks = re.findall(r"```bash\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 5
    with tempfile.TemporaryDirectory(prefix="ck-") as folder:
        script = "".join(blocks).replace("/tmp/compass-k8s", f"{folder}/c")
        script = script.replace("$PWD/.venv/bin", str(Path(sys.executable).parent))
        script = script.replace("$HOME/.cache/compass-abs/kubernetes/1.20.2/bin", str(binaries()))
        # A controller and a cluster of another test may run at the same time; kubectl keeps what it found of those.
        script = script.replace("serve-kubernetes", "serve-kubernetes --port 17078")
        environment = dict(
            os.environ, K8S=f"{folder}/c", PORT="28600", COMPASS_URL="http://127.0.0.1:17078", HOME=folder,
            COMPASS_CACHE=str(binaries().parents[2]), NO_COLOR="1", COLUMNS="200",
        )  # fmt: skip
        try:
            done = subprocess.run(
                ["bash", "-ec", script], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240,
                check=False,
            )  # fmt: skip
        finally:
            subprocess.run([ROOT / "deploy/test-clusters/k8s-down.sh", f"{folder}/c"], check=False, timeout=60)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    placed = re.findall(r"^gang-\w+ +\d/1 +\w+ .* (n\d) ", done.stdout, re.MULTILINE)
    assert len(placed) == 2, output
    assert len(set(placed)) == 1, output
    assert re.search(r"on \S+ with GPUs (0,1,2,3|4,5,6,7)", output), output
    assert re.search(r"WaitingForCapacity.*32 GPUs wanted, 24 free, 8 short", output), output
    assert len(re.findall(r"^\S*(?:gang|wide)\S* +done", output, re.MULTILINE)) == 2, output
    assert "is gone" in output
