"""Each knob of a policy: what it protects, what it allows, and what a refusal says of it."""

import random

import pytest

from compass_abs.model import ClusterState, Instance, Job, Verdict
from compass_abs.planner import Plan, Room, plan
from compass_abs.planner.allowance import Allowance
from compass_abs.planner.ledger import Ledger
from compass_abs.planner.policy import Policy, PolicyError
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.jit import CompassJit
from compass_abs.schedulers.registry import make_scheduler
from tests.planner.oracles import random_state
from tests.schedulers.test_jit import blocked


def test_budget_exhausted_refuses_with_policy_and_the_time_it_ends() -> None:
    scheduler, situation = blocked(4, 4, 4, 4, moves_per_hour=1)
    situation.now = 100.0
    assert scheduler.admit(Job("first", 1, 8), situation).admitted
    situation.now = 200.0
    reason = scheduler.admit(Job("second", 1, 8), situation).reason
    assert reason is not None
    assert reason.verdict is Verdict.POLICY
    assert "1 of 1 moves an hour made" in reason.detail
    assert reason.until == 3700.0
    situation.now = reason.until
    assert scheduler.admit(Job("second", 1, 8), situation).admitted


def test_moves_in_flight_exhausted_waits_until_they_have_landed() -> None:
    scheduler, situation = blocked(4, 4, 4, 4, moves_in_flight=1, pause=30.0)
    assert scheduler.admit(Job("first", 1, 8), situation).admitted
    reason = scheduler.admit(Job("second", 1, 8), situation).reason
    assert reason is not None
    assert (reason.verdict, reason.until) == (Verdict.POLICY, 30.0)
    situation.now = 30.0
    assert scheduler.admit(Job("second", 1, 8), situation).admitted


def test_moves_per_job_exhausted_moves_the_other_one() -> None:
    scheduler, situation = blocked(4, 4, 8, moves_per_job=1)
    first = scheduler.admit(Job("first", 1, 8), situation)
    moved = first.before[0].instance.job_id
    scheduler.finish("first", situation)
    scheduler.finish("j2", situation)
    other = "j0" if moved == "j1" else "j1"
    state = scheduler.state
    # Apart again, so that one of the two has to move once more.
    empty = state.by_free[8].first()
    state.move(Instance(other, 0), empty)
    second = scheduler.admit(Job("second", 2, 8), situation)
    assert [move.instance.job_id for move in second.before] == [other]


def test_cooldown_protects_who_just_started_and_says_until_when() -> None:
    scheduler, situation = blocked(4, 4, cooldown=60.0)
    situation.now, situation.progress = 100.0, {"j0": 90.0, "j1": 95.0}
    reason = scheduler.admit(Job("new", 1, 8), situation).reason
    assert reason is not None
    assert (reason.verdict, reason.until) == (Verdict.POLICY, 150.0)
    situation.now = 150.0
    decision = scheduler.admit(Job("new", 1, 8), situation)
    assert [move.instance.job_id for move in decision.before] == ["j0"]


def test_last_minutes_protect_a_job_that_is_about_to_end() -> None:
    scheduler, situation = blocked(4, 4, spare_last=60.0)
    situation.ends = {"j0": 30.0, "j1": 1000.0}
    decision = scheduler.admit(Job("new", 1, 8), situation)
    assert [move.instance.job_id for move in decision.before] == ["j1"]


def test_priority_moves_the_less_important_job() -> None:
    for important in ("j0", "j1"):
        state = ClusterState(2)
        for index in (0, 1):
            name = f"j{index}"
            state.place(Job(name, 1, 4, priority=2 if name == important else 0), [index])
        decision = CompassJit(state).admit(Job("new", 1, 8), Situation())
        assert [move.instance.job_id for move in decision.before] == ["j1" if important == "j0" else "j0"]


def test_deadline_job_moves_only_if_it_still_meets_it() -> None:
    for end, moves in ((900.0, True), (995.0, False), (None, False)):
        state = ClusterState(2)
        state.place(Job("slo", 1, 4, deadline=1000.0), [0])
        state.place(Job("fixed", 1, 4, movable=False), [1])
        situation = Situation()
        situation.ends = {} if end is None else {"slo": end}
        decision = CompassJit(state).admit(Job("new", 1, 8), situation)
        assert decision.admitted == moves
        if not moves:
            assert decision.reason is not None
            assert decision.reason.verdict is Verdict.POLICY


def test_value_threshold_waits_when_the_room_comes_by_itself() -> None:
    scheduler, situation = blocked(4, 4, value=3.0)
    # 4 GPUs × 8 s of disruption against 8 GPUs × 10 s of waiting.
    situation.ends = {"j0": 10.0, "j1": 5000.0}
    reason = scheduler.admit(Job("new", 1, 8), situation).reason
    assert reason is not None
    assert (reason.verdict, reason.until) == (Verdict.POLICY, 10.0)
    situation.ends["j0"] = 4000.0
    assert scheduler.admit(Job("new", 1, 8), situation).admitted


def test_window_closed_refuses_until_it_opens() -> None:
    scheduler, situation = blocked(4, 4, windows="22:00-06:00")
    situation.now = 12 * 3600.0
    reason = scheduler.admit(Job("new", 1, 8), situation).reason
    assert reason is not None
    assert (reason.verdict, reason.until) == (Verdict.POLICY, 22 * 3600.0)
    situation.now = 86_400.0 + 5 * 3600.0
    assert scheduler.admit(Job("new", 1, 8), situation).admitted


def test_pinned_job_in_the_way_is_policy() -> None:
    state = ClusterState(2)
    for index in (0, 1):
        state.place(Job(f"j{index}", 1, 4, movable=False), [index])
    reason = CompassJit(state).admit(Job("new", 1, 8), Situation()).reason
    assert reason is not None
    assert reason.verdict is Verdict.POLICY
    assert "pinned" in reason.detail


@pytest.mark.parametrize(
    ("knobs", "why"),
    [
        ({"moves_per_job": 0}, "1 for its budget of moves"),
        ({"cooldown": 60.0}, "1 for its cooldown"),
        ({"spare_last": 60.0}, "1 for its last minutes"),
        ({}, "1 for its deadline"),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_protected_job_in_the_way_verdict_counts_what_protects_it(knobs: dict[str, object], why: str) -> None:
    state = ClusterState(2)
    state.place(Job("fixed", 1, 4, movable=False), [0])
    state.place(Job("other", 1, 4, deadline=None if knobs else 1.0), [1])
    situation = Situation()
    situation.progress, situation.ends = {"other": 0.0}, {"other": 50.0}
    reason = CompassJit(state, **knobs).admit(Job("new", 1, 8), situation).reason  # type: ignore[arg-type]
    assert reason is not None
    assert reason.verdict is Verdict.POLICY
    assert reason.detail.startswith("pinned: ")
    assert reason.detail.endswith(f"1 pinned, {why}")
    state.release("fixed")
    state.place(Job("late", 1, 4, deadline=1.0), [0])
    reason = CompassJit(state, **knobs).admit(Job("new", 1, 8), situation).reason  # type: ignore[arg-type]
    assert reason is not None
    assert reason.detail.startswith("protected: ")


def test_disruption_objective_moves_small_jobs_where_fewest_moves_takes_one_large() -> None:
    def moved(objective: str) -> list[int]:
        state = ClusterState(4)
        for name, gpus, node in (("a", 1, 0), ("b", 1, 0), ("c", 4, 1), ("d", 4, 2), ("e", 8, 3)):
            state.place(Job(name, 1, gpus), [node])
        scheduler = make_scheduler("compass-jit", state, objective=objective)
        return sorted(move.gpus for move in scheduler.admit(Job("new", 1, 8), Situation()).before)

    assert moved("moves") == [4]
    assert moved("lightest") == [4]
    assert moved("disruption") == [1, 1]


def test_lightest_objective_moves_the_smaller_of_two_where_one_move_suffices() -> None:
    for small in (0, 1):
        state = ClusterState(3)
        # Emptying either of the first two nodes takes one move into the third.
        state.place(Job("a", 1, 3), [small])
        state.place(Job("b", 1, 5), [1 - small])
        state.place(Job("c", 1, 3), [2])
        scheduler = make_scheduler("compass-jit", state, objective="lightest")
        decision = scheduler.admit(Job("new", 1, 8), Situation())
        assert [move.gpus for move in decision.before] == [3]


def test_lightest_objective_never_takes_more_moves_than_the_fewest() -> None:
    chance, compared = random.Random(23), 0
    while compared < 60:
        state = random_state(chance, chance.choice((6, 20)))
        room = Room(chance.choice((1, 2)), chance.choice((8, 8, 6, 4)))
        policy = Policy.from_mapping({"objective": "lightest"})
        fewest, lightest = plan(state, room), plan(state, room, Allowance(policy, Ledger(), 0.0, {}, {}))
        if isinstance(fewest, Plan) and isinstance(lightest, Plan) and fewest.moves:
            assert len(lightest.moves) - lightest.scratch == fewest.cost
            assert lightest.proven
            compared += 1


@pytest.mark.parametrize(
    ("knobs", "message"),
    [
        ({"tidyness": "peak"}, "there is no knob 'tidyness'"),
        ({"tidiness": "sometimes"}, "expected one of never, peak, always"),
        ({"pause": -1}, "pause is -1"),
        ({"pause": "soon"}, "expected a number"),
        ({"moves_per_hour": 1.5}, "expected a whole number"),
        ({"windows": "22-6"}, "no time of day"),
        ({"windows": 7}, "windows is 7"),
        ({"windows": "24:30-6:00"}, "'24:30' is no time of day"),
        ({"windows": "10:00-10:00"}, "is never open; 00:00-24:00 is the whole day"),
        ({"priority_factor": 0.5}, "from 1 to 1000"),
    ],
)
def test_policy_mistake_names_the_knob_and_the_remedy(knobs: dict[str, object], message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        Policy.from_mapping(knobs)


def test_policy_from_text_and_from_numbers_is_the_same() -> None:
    text = Policy.from_mapping({"moves-per-hour": "10", "pause": "4", "effort": "exact", "moves_per_job": "none"})
    number = Policy.from_mapping({"moves_per_hour": 10, "pause": 4.0, "effort": "exact"})
    assert text == number
