"""`compass audit` as users call it."""

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from benchmarks.bench_audit import cluster
from typer.testing import CliRunner

from compass_abs.audit import audit, load_observation
from compass_abs.cli.main import app
from compass_abs.model import CompassError
from tests.audit.kubectl import fragmented, listed, node, pod, written
from tests.reporting.browser import Watched, launched

RUNNER = CliRunner()


def test_table_says_verdict_plan_and_who_waits(tmp_path: Path) -> None:
    done = RUNNER.invoke(app, ["audit", str(written(tmp_path / "c.json", *fragmented()))], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert "2 nodes are partly filled although a packing exists in which they are not" in done.output
    assert re.search(r"team/whole +1 × 8 +fragmentation +fits after 1 move of 1 job +32", done.output)
    assert re.search(r"8-GPU instances +0 +1 +1", done.output)
    assert "1 move of 1 running job would let 1 waiting job start, for 32 GPU-seconds" in done.output
    assert re.search(r"move +GPUs +from +to *\n.*\nteam/half-\d +4 +gpu-\d +gpu-\d", done.output)


def test_json_from_standard_input_names_nodes_of_every_move() -> None:
    done = RUNNER.invoke(app, ["audit", "--json"], input=json.dumps(listed(*fragmented())))
    found = json.loads(done.output)
    (step,) = found["pools"][0]["plan"]["starts"]
    (move,) = step["moves"]
    assert move["job"].startswith("team/half-")
    assert {move["from"], move["to"]} < {"gpu-0", "gpu-1", "gpu-2"}
    assert found["waiting"]["fragmentation"] == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "standard input: is empty"),
        ('{"kind": "List", "items": [', "line 1, column 28: not JSON"),
        ('{"kind": "Service", "apiVersion": "v1"}', "kind is 'Service', expected List, NodeList or PodList"),
        ('{"kind": "Service"}', "kind is 'Service', expected List, NodeList or PodList"),
        ('{"kind": "List", "items": []}', "there is no node in it with nvidia.com/gpu"),
        ('{"kind": "List", "items": 3}', "items is 3, expected a list"),
        ('{"kind": "PodList", "items": [{"metadata": {"name": "a"}, "spec": 3}]}', "spec is 3, expected an object"),
        (json.dumps(listed(node("a"), node("a"))), "node a: is there twice"),
        (json.dumps(listed(node("a"), pod("p", 1) | {"metadata": {}})), "this Pod has no name"),
        ("hello", "there is no column 'node'"),
        ("3", "there is no column 'node'"),
        ('{"jobs": []}', "there are jobs, but no nodes"),
        ("[" * 100_000, "can't be read as JSON|not JSON"),
    ],
)
def test_bad_input_is_refused_in_one_plain_line(text: str, words: str) -> None:
    done = RUNNER.invoke(app, ["audit"], input=text)
    assert isinstance(done.exception, CompassError)  # printed in a line, exit code 2: compass_abs.cli.main.run
    assert re.search(words, str(done.exception)), done.exception
    assert "\n" not in str(done.exception)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--kubernetes", "--slurm"], "one of them"),
        (["--context", "x", "-"], "--context goes with --kubernetes"),
        (["/no/such/file"], "/no/such/file"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(arguments: list[str], words: str) -> None:
    done = RUNNER.invoke(app, ["audit", *arguments], input="{}")
    assert re.search(words, str(done.exception))


def test_slurm_that_is_not_here_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "is not installed here" in str(RUNNER.invoke(app, ["audit", "--slurm"]).exception)


def test_hostile_names_stay_text_on_the_page(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script>"
    objects = fragmented()
    objects[-1]["metadata"]["name"] = evil
    page = tmp_path / "page.html"
    assert RUNNER.invoke(app, ["audit", str(written(tmp_path / "c", *objects)), "--html", str(page)]).exit_code == 0
    assert evil not in page.read_text()
    assert "http://" not in page.read_text().replace("http://www.w3.org", "")


def test_cluster_of_a_thousand_nodes_is_audited_in_seconds(tmp_path: Path) -> None:
    """It takes 1.3 s of CPU time, and one of 5,000 nodes 3 to 4 (make bench ONLY=audit)."""
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps(cluster(1_000, 8_000, 40)))
    start = time.process_time()
    found = audit(load_observation([path]))
    assert time.process_time() - start < 4.0
    assert len(found.verdicts) == 40
    assert sum(pool.survey.nodes for pool in found.pools) == 1_000


@pytest.mark.browser
def test_page_shows_before_and_after_on_a_desk_and_on_a_phone(tmp_path: Path) -> None:
    page_file = tmp_path / "page.html"
    objects = fragmented() + [pod(f"wait-{k}", 8) for k in range(3)]
    RUNNER.invoke(app, ["audit", str(written(tmp_path / "c", *objects)), "--html", str(page_file)])
    with launched() as browser:
        for width in (1280, 390):
            watched = Watched(browser, viewport={"width": width, "height": 900})
            page = watched.open(page_file.as_uri())
            assert watched.requests == [page_file.as_uri()]
            assert not watched.complaints
            assert watched.pixels("#before-0") != watched.pixels("#after-0")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            # No word is broken into a few letters a line.
            height: Any = page.evaluate("document.querySelector('.answer').getBoundingClientRect().height")
            assert height < 30
            assert "3 partly filled" in page.text_content("#facts-before-0")
            assert "1 partly filled" in page.text_content("#facts-after-0")
            assert "1 of those that wait started" in page.text_content("#facts-after-0")
            assert re.search(r"team/half-\d\s*4\s*gpu-\d\s*gpu-\d", page.text_content("details.moves"))
            page.evaluate("document.querySelector('details').open = false; dispatchEvent(new Event('beforeprint'))")
            assert page.evaluate("document.querySelector('details').open"), "what is folded is printed"
