"""The command line as a newcomer meets it: help, mistakes, pipes, colours, completion."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from compass_abs import __version__
from compass_abs.cli.main import EXTRAS, HEADINGS, app, run
from tests.audit.kubectl import fragmented, written

COMPASS = [sys.executable, "-m", "compass_abs"]
ROOT = typer.main.get_command(app)


def commands(command: Any = ROOT, *path: str) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, with its words."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield path, command
        return
    for name, each in inner.items():
        yield from commands(each, *path, name)


ALL = dict(commands())


def said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code and output of a command, in this process."""
    monkeypatch.setattr(sys, "argv", ["compass", *words])
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit) as ended:
        run()
    output = capsys.readouterr()
    code = ended.value.code
    return (code if isinstance(code, int) else int(code is not None)), output.out, output.err


def process(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMPASS, *words], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60, check=False
    )


# ---- help


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_of_a_command_describes_it_and_all_that_it_takes(path: tuple[str, ...]) -> None:
    command = ALL[path]
    assert re.match(r"[A-Z].*\.", command.help or ""), "one sentence says what the command does"
    silent = [parameter.name for parameter in command.params if not getattr(parameter, "help", None)]
    assert silent == []
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    assert [each.name for each in arguments if not re.fullmatch(r"[A-Z]+(\|[A-Z]+)?", each.metavar or "")] == []
    options = [option for parameter in command.params for option in parameter.opts if option.startswith("-")]
    assert [option for option in options if not re.fullmatch(r"--[a-z]+(-[a-z]+)*|-[a-z]", option)] == []


@pytest.mark.parametrize("path", [(), ("trace",), ("experiment",), *ALL], ids=" ".join)
def test_help_is_there_for_both_spellings(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    long, short = (said(monkeypatch, capsys, *path, option) for option in ("--help", "-h"))
    assert long == short
    assert (long[0], long[2]) == (0, "")
    assert re.search("Usage: .*" + " ".join(path), long[1])


def test_every_command_is_under_a_heading_and_no_heading_lists_what_is_not_there() -> None:
    named = [command for those in HEADINGS.values() for command in those]
    assert sorted(named) == sorted({path[0] for path in ALL})


def test_options_that_several_commands_share_are_of_one_kind() -> None:
    kinds: dict[str, set[bool]] = {}
    for command in ALL.values():
        for parameter in command.params:
            for option in parameter.opts:
                if option in ("--json", "--quiet", "--force", "--assume-movable", "--url", "--context"):
                    kinds.setdefault(option, set()).add(bool(parameter.is_flag))
    assert {option: len(kind) for option, kind in kinds.items()} == dict.fromkeys(kinds, 1)
    assert len(kinds) == 6


def test_version_is_the_same_however_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(monkeypatch, capsys, "--version") == (0, f"compass {__version__}\n", "")
    assert process("--version").stdout == f"compass {__version__}\n"


def test_command_line_starts_without_what_its_commands_need() -> None:
    """What is heavy is imported by the command that needs it, so that help and completion come at once."""
    probe = "import sys, compass_abs.cli.main; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    heavy = {"numpy", "polars", "matplotlib", "highspy", "httpx", "starlette", "torch", "ray", "pydantic", "jinja2"}
    assert heavy & set(done.stdout.split()) == set()


@pytest.mark.parametrize(("typed", "offered"), [("compass au", {"audit"}), ("compass trace ", {"list", "synth"})])
def test_shells_complete_commands(typed: str, offered: set[str]) -> None:
    number = str(len(typed.split(" ")) - 1)
    probe = "import sys; sys.argv[0] = 'compass'; from compass_abs.cli.main import run; run()"
    environment = {"_COMPASS_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": number}
    done = subprocess.run(
        [sys.executable, "-c", probe], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert offered <= set(done.stdout.split()), done.stderr


# ---- mistakes


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("audti", "Did you mean 'audit'"),
        ("audit --nosuch", "No such option: --nosuch"),
        ("simulate", "Missing argument"),
        ("sif nosuch.json", "nosuch.json: No such file or directory"),
        ("sif /", "/: Is a directory"),
        ("simulate nosuch", "no such file, and no trace of that name; names are venus"),
        ("simulate demo --scheduler nosuch", "there is no scheduler 'nosuch'; known: "),
        ("simulate demo --scheduler best_fit", "did you mean 'best-fit'"),
        ("simulate demo --scheduler best-fit:x=1", "has no parameter 'x'"),
        ("simulate demo --queue nosuch", "there is no queue 'nosuch'; known: "),
        ("simulate demo --day 99", "has no jobs; days with jobs: 1"),
        ("simulate demo --eta nan", "eta is nan, expected a share"),
        ("simulate demo --cost -1", "expected seconds"),
        ("simulate demo --window 5", "expected FROM:TO"),
        ("simulate demo --topology nosuch", "there is no topology 'nosuch'; known: "),
        ("compare demo --schedulers ,", "--schedulers is empty"),
        ("report /", "is no run directory"),
        ("reproduce nosuch", "there is no study 'nosuch'; known: "),
        ("schedulers nosuch", "there is no scheduler 'nosuch'; known: "),
        ("explain nosuch.json --gpus 4", "nosuch.json: No such file or directory"),
        ("audit --context x", "--context goes with --kubernetes"),
        ("audit --pause inf /", "--pause"),
        ("shadow /nosuch/day", "give --kubernetes, --slurm or --from"),
        ("trace info nosuch", "no such file, and no trace of that name"),
        ("trace fetch nosuch", "no trace is named 'nosuch'; those to fetch are"),
        ("trace convert demo x.xyz", "expected a name that ends in .csv or .parquet"),
        ("trace synth demo -o /nosuch/x.csv", "/nosuch is no folder; make it first"),
        ("train-drr --model nosuch --out nosuch", "model is 'nosuch', expected one of"),
        ("ps --url http://127.0.0.1:1", "start one with `compass serve`"),
        ("explain job --url http://127.0.0.1:1", "start one with `compass serve`"),
        ("submit /nosuch.yaml", "/nosuch.yaml: No such file or directory"),
        ("serve --engine nosuch", "is not one of"),
        ("serve --state nosuch --scheduler nosuch", "there is no scheduler 'nosuch'; known: "),
        ("serve --state nosuch --queue nosuch", "there is no queue 'nosuch'; known: "),
        ("experiment physical --scheduler nosuch --out nosuch", "there is no scheduler 'nosuch'; known: "),
        ("live --scheduler nosuch --port 0", "there is no scheduler 'nosuch'; known: "),
    ],
)
def test_mistake_ends_in_a_plain_line_and_exit_code_2(
    line: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = said(monkeypatch, capsys, *line.split())
    assert code == 2
    assert words in error
    assert "Traceback" not in error
    if error.startswith("compass: "):
        assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("httpx", "ps"),
        ("httpx", "advise"),
        ("structlog", "serve --state nosuch"),
        ("starlette", "serve --state nosuch"),
        ("prometheus_client", "serve --state nosuch"),
    ],
)
def test_package_that_was_not_installed_is_named_with_what_installs_it(
    package: str, line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    probe = f"import sys; sys.modules['{package}'] = None; from compass_abs.cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", probe, *line.split()], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr == f"compass: {package} is not installed: pip install 'compass-abs[live]'\n"


def test_every_package_of_an_extra_is_known_to_the_command_line() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {
        re.split(r"[^\w-]", each)[0].replace("-", "_"): extra
        for extra, those in project["optional-dependencies"].items()
        for each in those
    }
    assert wanted == EXTRAS


@pytest.mark.parametrize("target", ["folder", "folder/none/page.html", "file/page.html"])
def test_page_that_can_not_be_written_is_refused_and_leaves_nothing_behind(
    target: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    cluster = written(tmp_path / "cluster.json", *fragmented())
    before = sorted(tmp_path.rglob("*"))
    code, output, error = said(monkeypatch, capsys, "audit", str(cluster), "--html", str(tmp_path / target))
    assert (code, output) == (2, "")
    assert re.fullmatch(r"compass: \S+: (is a folder|there is no folder).*\n", error)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("words", [["sif"], ["explain", "--gpus", "4"]])
def test_cluster_as_kubectl_prints_it_is_sent_to_the_command_that_reads_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster = written(tmp_path / "cluster.json", *fragmented())
    code, _, error = said(monkeypatch, capsys, *words, str(cluster))
    assert code == 2
    assert "this is what kubectl or Slurm prints; `compass audit` reads it" in error


# ---- pipes and terminals


@pytest.mark.parametrize("words", [["schedulers"], ["schedulers", "--json"], ["--help"], ["trace", "list"]])
def test_reader_that_goes_away_is_no_error_to_speak_of(words: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*COMPASS, *words], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    os.close(write)
    assert done.stderr == ""
    assert done.returncode in (0, 1)


def test_no_color_is_respected(tmp_path: Path) -> None:
    cluster = str(written(tmp_path / "cluster.json", *fragmented()))
    coloured = r"\x1b\[[0-9;]*3[0-7]"
    for words in (["audit", cluster], ["schedulers"], ["nosuch"]):
        bright, plain = process(*words, FORCE_COLOR="1"), process(*words, FORCE_COLOR="1", NO_COLOR="1")
        assert re.search(coloured, bright.stdout + bright.stderr), words
        assert not re.search(coloured, plain.stdout + plain.stderr), words


@pytest.mark.parametrize("words", [["schedulers"], ["trace", "list"], ["audit", "CLUSTER"]])
def test_json_is_json_and_has_no_colours_in_it(words: list[str], tmp_path: Path) -> None:
    cluster = str(written(tmp_path / "cluster.json", *fragmented()))
    words = [cluster if word == "CLUSTER" else word for word in words]
    done = process(*words, "--json", FORCE_COLOR="1")
    assert json.loads(done.stdout)
    assert done.stderr == ""
