"""`compass explain`: the verdict, its numbers, and a plan that really makes room."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from compass_abs.cli.main import app
from compass_abs.model import CompassError, Instance
from compass_abs.snapshots import read_snapshot

SNAPSHOT = "node,capacity,instances\na,8,4:x 2:y\nb,8,4:z\nc,8,1:k 5:m\nd,8,8:big\n"


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    path = tmp_path / "cluster.csv"
    path.write_text(SNAPSHOT)
    return str(path)


def ask(*arguments: str) -> dict[str, object]:
    result = CliRunner().invoke(app, ["explain", *arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0
    pools = json.loads(result.stdout)["pools"]
    assert len(pools) == 1
    return dict(pools[0])


def test_explain_room_as_it_is_names_the_nodes(snapshot: str) -> None:
    answer = ask(snapshot, "-g", "4")
    assert answer["verdict"] == "fits"
    assert answer["plan"]["nodes"] == ["b"]  # type: ignore[index]


def test_explain_scattered_gives_a_plan_that_makes_room(snapshot: str) -> None:
    answer = ask(snapshot, "--gpus", "8")
    assert answer["verdict"] == "fragmentation"
    plan = answer["plan"]
    assert plan["optimal"]  # type: ignore[index]
    state = read_snapshot(SNAPSHOT)["default"]
    for wave in plan["waves"]:  # type: ignore[index]
        for move in wave["moves"]:
            state.move(Instance(move["job"], move["instance"]), state.index_of[move["to"]])
    assert all(state.node(name).free == 8 for name in plan["nodes"])  # type: ignore[index]
    moved = {move["job"]: move["gpus"] for wave in plan["waves"] for move in wave["moves"]}  # type: ignore[index]
    assert plan["gpu_seconds"] == 8 * sum(moved.values())  # type: ignore[index]


def test_explain_too_large_says_how_many_gpus_are_short(snapshot: str) -> None:
    answer = ask(snapshot, "-g", "8", "-w", "2")
    assert answer["verdict"] == "capacity"
    assert answer["short"] == 8 * 2 - 8
    assert "plan" not in answer


def test_explain_budget_shows_the_plan_that_it_forbids(snapshot: str) -> None:
    answer = ask(snapshot, "-g", "8", "--max-moves", "0")
    assert answer["verdict"] == "policy"
    assert "budget" in str(answer["text"])
    assert answer["plan"]["moves"] >= 1  # type: ignore[index]


def test_explain_pinned_names_the_jobs_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "pinned.csv"
    path.write_text("node,capacity,instances\na,8,4:x! 1:y\nb,8,4:z! 1:q\n")
    answer = ask(str(path), "-g", "6")
    assert answer["verdict"] == "policy"
    assert len(answer["plan"]["pinned_jobs_moved"]) == 1  # type: ignore[index]


@pytest.mark.parametrize("arguments", [("-g", "4", "--pool", "nowhere"), ("-g", "16")])
def test_explain_pool_that_is_missing_or_too_small_is_policy(snapshot: str, arguments: tuple[str, ...]) -> None:
    answer = ask(snapshot, *arguments)
    assert answer["verdict"] == "policy"
    assert str(answer["text"]).startswith("pool:")


def test_explain_table_shows_every_move(snapshot: str) -> None:
    result = CliRunner().invoke(app, ["explain", snapshot, "-g", "8"], catch_exceptions=False)
    assert result.exit_code == 0
    assert "fragmentation" in result.stdout
    assert "no plan is cheaper" in result.stdout
    assert "then starts on" in result.stdout


@pytest.mark.parametrize(
    ("objective", "plans"),
    [("moves", ({"c": 5}, {"d": 3})), ("lightest", ({"d": 3},)), ("disruption", ({"a": 1, "b": 1},))],
)
def test_explain_objective_decides_what_is_cheapest(
    tmp_path: Path, objective: str, plans: tuple[dict[str, int], ...]
) -> None:
    path = tmp_path / "cluster.csv"
    path.write_text("node,capacity,instances\nn1,8,1:a 1:b\nn2,8,5:c\nn3,8,3:d\n")
    plan = ask(str(path), "-g", "8", "--objective", objective)["plan"]
    assert {move["job"]: move["gpus"] for wave in plan["waves"] for move in wave["moves"]} in plans  # type: ignore[index]
    assert plan["optimal"]  # type: ignore[index]


def test_explain_unknown_objective_names_those_there_are(snapshot: str) -> None:
    with pytest.raises(CompassError, match="objective is 'cheap', expected one of moves, lightest, disruption"):
        ask(snapshot, "-g", "8", "--objective", "cheap")
