"""Schedulers by name, their parameters, and those that other packages bring."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import StrEnum
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
from typer.testing import CliRunner

from compass_abs.cli.main import app
from compass_abs.model import ClusterState, CompassError, Job
from compass_abs.schedulers import registry
from compass_abs.schedulers.base import Scheduler, Situation
from compass_abs.schedulers.best_fit import BestFit
from compass_abs.schedulers.parameters import ParameterError, Within, parameters_of
from compass_abs.schedulers.registry import (
    BrokenSchedulerError,
    UnknownSchedulerError,
    available,
    describe,
    make_scheduler,
    names,
    parse_choice,
    scheduler_class,
)
from compass_abs.topology import PRESETS, DomainState

PAGE = Path(__file__).parents[2] / "docs" / "write-a-scheduler.md"


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Demanding(BestFit):
    """Takes one parameter of each kind."""

    name: ClassVar[str] = "demanding"

    def __init__(
        self,
        state: ClusterState,
        must: int,
        *,
        share: Annotated[float, Within("a share", least=0, most=1)] = 0.5,
        positive: Annotated[float, Within("seconds", above=0)] = 1.0,
        colour: Colour = Colour.RED,
        shape: Literal["round", "square"] = "round",
        limit: int | None = None,
        strict: bool = False,
    ) -> None:
        super().__init__(state)
        self.given = (must, share, positive, colour, shape, limit, strict)


@pytest.fixture
def demanding(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Registers `demanding` as another package would."""
    point = EntryPoint("demanding", f"{__name__}:Demanding", registry.ENTRY_POINT_GROUP)
    with_points(monkeypatch, [point])
    yield
    forget()


def with_points(monkeypatch: pytest.MonkeyPatch, points: list[EntryPoint]) -> None:
    monkeypatch.setattr(registry, "_registered_elsewhere", lambda: points)
    forget()


def forget() -> None:
    registry._entries.cache_clear()
    registry._by_any_name.cache_clear()


def test_every_listed_scheduler_is_made_says_what_it_does_and_admits_a_job() -> None:
    for listing in available():
        assert not listing.problem
        assert listing.summary.endswith(".")
        assert len(listing.summary) < 130
        scheduler = make_scheduler(listing.name, DomainState(2, PRESETS["dgx2"]))
        assert scheduler.name == listing.name or registry.find(listing.name).preset
        assert scheduler.admit(Job("x", 1, 1), Situation()).admitted
        for parameter in listing.parameters:
            assert parameter.meaning
            assert not parameter.required


def test_every_scheduler_names_its_source() -> None:
    for name in names():
        assert describe(name).source


def test_aliases_make_the_same_scheduler() -> None:
    assert scheduler_class("best-fit") is scheduler_class("gfs")
    assert scheduler_class("random-fit") is scheduler_class("random")


def test_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UnknownSchedulerError, match="did you mean 'fgd'"):
        make_scheduler("fdg", ClusterState(1))
    with pytest.raises(UnknownSchedulerError, match=r"known: .*cafgd"):
        make_scheduler("zzzzzz", ClusterState(1))


def test_unknown_parameter_is_refused_with_those_there_are() -> None:
    with pytest.raises(ParameterError, match=r"'fft' has no parameter 'perod'; it has: period"):
        make_scheduler("fft", ClusterState(1), perod=3)
    with pytest.raises(ParameterError, match="it has: none"):
        make_scheduler("gfs", ClusterState(1), period=3)


@pytest.mark.parametrize(
    ("parameters", "complaint"),
    [
        ({"must": "x"}, "must is 'x', expected a whole number"),
        ({"must": 1.5}, "must is 1.5, expected a whole number"),
        ({"must": True}, "must is True, expected a whole number"),
        ({}, "needs must: a whole number"),
        ({"must": 1, "share": 1.1}, "share is 1.1, expected a number from 0 to 1"),
        ({"must": 1, "share": "nan"}, "share is 'nan', expected a number"),
        ({"must": 1, "positive": 0}, "positive is 0, expected a number above 0"),
        ({"must": 1, "colour": "green"}, "colour is 'green', expected one of red, blue"),
        ({"must": 1, "shape": "oval"}, "shape is 'oval', expected one of round, square"),
        ({"must": 1, "limit": "many"}, "limit is 'many', expected a whole number, or none"),
        ({"must": 1, "strict": 1}, "strict is 1, expected true or false"),
    ],
)
@pytest.mark.usefixtures("demanding")
def test_bad_value_is_refused_naming_parameter_value_and_what_was_expected(
    parameters: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ParameterError, match=re.escape(complaint)):
        make_scheduler("demanding", ClusterState(1), **parameters)


@pytest.mark.usefixtures("demanding")
def test_values_written_as_text_mean_what_they_mean_in_python() -> None:
    name, text = parse_choice("demanding:must=3,share=0.25,positive=2,colour=blue,shape=square,limit=none,strict=true")
    made = make_scheduler(name, ClusterState(1), **text)
    assert isinstance(made, Demanding)
    assert made.given == (3, 0.25, 2.0, Colour.BLUE, "square", None, True)
    assert type(made.given[2]) is float


def test_choice_without_an_equals_sign_is_refused() -> None:
    with pytest.raises(ParameterError, match="'600' isn't name=value"):
        parse_choice("fft:600")


@pytest.mark.usefixtures("demanding")
def test_foreign_scheduler_is_listed_with_its_parameters() -> None:
    listing = describe("demanding")
    assert listing.package == "?"
    assert [parameter.name for parameter in listing.parameters] == [
        "must", "share", "positive", "colour", "shape", "limit", "strict",
    ]  # fmt: skip


def test_foreign_scheduler_never_replaces_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    with_points(monkeypatch, [EntryPoint("gfs", f"{__name__}:Demanding", registry.ENTRY_POINT_GROUP)])
    assert scheduler_class("gfs") is BestFit
    forget()


def test_broken_foreign_scheduler_is_listed_with_its_problem_and_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        EntryPoint("gone", "no_such_package.x:Y", registry.ENTRY_POINT_GROUP),
        EntryPoint("none", "json:JSONEncoder", registry.ENTRY_POINT_GROUP),
    ]
    with_points(monkeypatch, points)
    problems = {listing.name: listing.problem for listing in available()}
    assert "can't be imported" in problems["gone"]
    assert "no subclass" in problems["none"]
    assert not problems["gfs"]
    with pytest.raises(BrokenSchedulerError, match="gone"):
        make_scheduler("gone", ClusterState(1))
    forget()


def test_registry_imports_no_scheduler_and_no_third_party_package() -> None:
    code = (
        "import sys; from compass_abs.schedulers import registry; registry.names();"
        "ours = [m for m in sys.modules if m.startswith('compass_abs.schedulers.')];"
        "print(sorted(ours + [m for m in ('numpy', 'highspy') if m in sys.modules]))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == str(
        ["compass_abs.schedulers.base", "compass_abs.schedulers.parameters", "compass_abs.schedulers.registry"]
    )


def test_listing_every_scheduler_imports_neither_numpy_nor_highs() -> None:
    code = (
        "import sys; from compass_abs.schedulers.registry import available; available();"
        "print([m for m in ('numpy', 'highspy', 'torch', 'polars') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "[]"


# ---- the command


def test_schedulers_command_lists_them_all_as_text_and_as_json() -> None:
    text = CliRunner().invoke(app, ["schedulers"]).output
    listed = json.loads(CliRunner().invoke(app, ["schedulers", "--json"]).output)["schedulers"]
    assert [each["name"] for each in listed] == [listing.name for listing in available()]
    for each in listed:
        assert each["name"] in text
    fft = next(each for each in listed if each["name"] == "fft")
    assert fft["parameters"][0]["default"] == 300.0


def test_schedulers_command_with_names_shows_these_only() -> None:
    listed = json.loads(CliRunner().invoke(app, ["schedulers", "best-fit", "drr", "--json"]).output)["schedulers"]
    assert [each["name"] for each in listed] == ["gfs", "drr"]


# ---- the page


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_scheduler_of_the_page_has_thirty_lines_or_so_and_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = block("python")
    assert sum(bool(line.strip()) for line in code.splitlines()) <= 30
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text("")
    (tmp_path / "my_package" / "roomy_small.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    named = re.search(r'(\S+) = "(my_package\S+)"', block("toml"))
    assert named is not None
    with_points(monkeypatch, [EntryPoint(named[1], named[2], registry.ENTRY_POINT_GROUP)])
    assert describe("roomy-small").parameters[0].meaning == "largest small instance"
    scheduler = make_scheduler("roomy-small", ClusterState(3), small="2")
    assert scheduler.admit(Job("a", 1, 6), Situation()).nodes == (0,)
    assert scheduler.admit(Job("b", 2, 1), Situation()).nodes == (2, 1)
    assert scheduler.admit(Job("c", 1, 4), Situation()).nodes == (1,)
    assert not scheduler.admit(Job("d", 2, 5), Situation()).admitted
    scheduler.check_invariants()
    with pytest.raises(CompassError, match="small is 'x'"):
        make_scheduler("roomy-small", ClusterState(3), small="x")
    forget()


def test_parameters_of_a_constructor_without_annotations_are_text() -> None:
    class Plain(Scheduler):
        def __init__(self, state, word="x"):  # type: ignore[no-untyped-def]
            super().__init__(state)

    (parameter,) = parameters_of(Plain)
    assert (parameter.name, parameter.kind, parameter.default) == ("word", str, "x")


def test_installed_package_of_the_page_is_used_by_the_command(tmp_path: Path) -> None:
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text("")
    (tmp_path / "my_package" / "roomy_small.py").write_text(block("python"))
    info = tmp_path / "roomy-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: roomy\nVersion: 1.0\n")
    named = re.search(r'\S+ = "my_package\S+"', block("toml"))
    assert named is not None
    (info / "entry_points.txt").write_text(f"[{registry.ENTRY_POINT_GROUP}]\n{named[0].replace(chr(34), '')}\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "compass_abs", "schedulers", "roomy-small", "--json"]
    out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    (listed,) = json.loads(out)["schedulers"]
    assert listed["package"] == "roomy"
    assert listed["parameters"][0]["default"] == 2
