"""DRR's policy: what ships, what it sees, and how it learns."""

import json
from pathlib import Path
from random import Random

import pytest

from compass_abs.experiments import drr_training
from compass_abs.experiments.drr_learning import Experience, Improver, backward, fresh, imitate, probabilities
from compass_abs.experiments.drr_training import Schedule, agreement, ajcts, episodes_of, is_better, observe, train
from compass_abs.model import ClusterState, CompassError, Job
from compass_abs.schedulers.base import Situation
from compass_abs.schedulers.drr import DefragmentingRescheduler
from compass_abs.schedulers.drr_policy import (
    CLASSES,
    FEATURES,
    SEEDS,
    BestFitPolicy,
    NetworkPolicy,
    View,
    load,
    save,
    shipped,
    shipped_policy,
)
from compass_abs.schedulers.histogram import Hypothetical
from compass_abs.simulation import simulate
from compass_abs.traces import cluster_size, day, read_trace
from compass_abs.traces.synthesis import synthesize
from compass_abs.traces.workloads import workload
from tests.schedulers.random_states import SIZES, random_state

TINY = Schedule(
    training_days=3,
    validation_days=1,
    confirmation_days=1,
    imitated_decisions=2000,
    updates=2,
    decisions_per_update=256,
    validate_every=1,
)


def view_of(state: ClusterState, job: Job) -> View:
    return View(state, state.histogram(), job, 0.0, 3, [0, 1, 2, 0, 0, 0, 0, 0, 1], [0, 5, 0, 0, 0, 0, 0, 0, 5])


def test_view_has_as_many_finite_features_as_the_network_expects() -> None:
    draw = Random(1)
    for _ in range(200):
        state = random_state(draw, 8)
        features = view_of(state, Job("x", draw.choice((1, 4)), draw.choice(SIZES))).features()
        assert len(features) == FEATURES
        assert all(abs(value) < 20 for value in features)
        assert sum(features[:CLASSES]) == pytest.approx(1)
        assert sum(features[CLASSES : CLASSES + 8]) == 1


@pytest.mark.parametrize("seed", SEEDS)
def test_shipped_policy_chooses_only_what_exists_and_suffices(seed: int) -> None:
    draw, policy = Random(2), shipped_policy(seed)
    for _ in range(500):
        state = random_state(draw, 6)
        job = Job("x", 1, draw.choice(SIZES))
        if state.room(job.gpus):
            free = policy.choose(view_of(state, job))
            assert free >= job.gpus
            assert state.by_free[free]


@pytest.mark.parametrize("seed", SEEDS)
def test_record_of_the_shipped_seed_says_it_imitated_and_never_got_worse(seed: int) -> None:
    record = json.loads(shipped(seed).with_name("training.json").read_text())
    entry = next(entry for entry in record["seeds"] if entry["seed"] == seed)
    assert entry["agreement"] >= 0.99
    assert entry["final_ajct"] <= entry["imitation_ajct"]
    assert entry["confirmed_final_ajct"] <= entry["confirmed_imitation_ajct"]
    assert entry["final_ajct"] <= entry["best_fit_ajct"]
    # What reinforcement came to is said, also where it isn't what ships.
    assert entry["tried_ajct"] <= entry["final_ajct"]
    assert (entry["kept_update"] == 0) == (entry["confirmed_final_ajct"] == entry["confirmed_imitation_ajct"])


def test_shipped_policies_on_days_of_another_seed_agree_with_best_fit_on_99_of_100_decisions() -> None:
    # Neither these days nor their seed were used in training.
    days = synthesize(workload("venus"), 14, seed=77)
    seen = observe(episodes_of(days, 14), BestFitPolicy(), 8000)
    for seed in SEEDS:
        policy = shipped_policy(seed)
        assert isinstance(policy, NetworkPolicy)
        assert agreement(policy.actor, seen) >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_shipped_policy_measured_again_has_the_recorded_validation_ajct(seed: int) -> None:
    record = json.loads(shipped(seed).with_name("training.json").read_text())
    entry = next(entry for entry in record["seeds"] if entry["seed"] == seed)
    schedule = Schedule()
    trace = drr_training.training_days(record["model"], schedule)
    first = schedule.training_days
    validation = episodes_of(trace, first + schedule.validation_days)[first:]
    again = ajcts(validation, shipped_policy(seed))
    assert sum(again) / len(again) == pytest.approx(entry["final_ajct"], rel=1e-6)
    best_fit = ajcts(validation, BestFitPolicy())
    assert sum(again) <= sum(best_fit)


@pytest.mark.parametrize("seed", SEEDS)
def test_shipped_drr_on_real_days_is_no_slower_than_best_fit(seed: int, traces: Path) -> None:
    log = next((traces / "venus").rglob("cluster_log.csv"), None)
    if log is None:
        pytest.skip("no Venus trace")
    venus = read_trace(log)
    learned = fitted = 0.0
    for number in (30, 67, 92, 113, 140):
        jobs = day(venus, number).jobs
        nodes = cluster_size(jobs, 0.9)
        learned += simulate(jobs, DefragmentingRescheduler(ClusterState(nodes), seed=seed)).ajct
        from compass_abs.schedulers.best_fit import BestFit

        fitted += simulate(jobs, BestFit(ClusterState(nodes))).ajct
    assert learned <= fitted


def test_best_fit_policy_places_as_best_fit_does() -> None:
    from compass_abs.schedulers.best_fit import BestFit

    draw = Random(3)
    for _ in range(300):
        state = random_state(draw, 8)
        job = Job("x", draw.choice((1, 2, 5)), draw.choice(SIZES))
        learned = DefragmentingRescheduler(state, policy="best-fit").admit(job, Situation())
        if learned.admitted:
            state.release("x")
        assert learned.nodes == BestFit(state).admit(job, Situation()).nodes


def test_gradients_by_hand_agree_with_finite_differences() -> None:
    import numpy as np

    draw = np.random.default_rng(1)
    network = fresh(draw, CLASSES)
    x = draw.normal(size=(7, FEATURES))
    wanted = draw.normal(size=(7, CLASSES))
    found = backward(network, x, wanted)
    for (weights, bias), (by_weights, by_bias) in zip(network.layers, found, strict=True):
        for array, gradient, where in ((weights, by_weights, (2, 3)), (bias, by_bias, (1,))):
            kept = array[where]
            array[where] = kept + 1e-6
            above = float((network.forward(x) * wanted).sum())
            array[where] = kept - 1e-6
            below = float((network.forward(x) * wanted).sum())
            array[where] = kept
            assert gradient[where] == pytest.approx((above - below) / 2e-6, rel=1e-4, abs=1e-8)


def test_probabilities_of_the_forbidden_are_zero() -> None:
    import numpy as np

    p = probabilities(np.zeros((1, 3)), np.array([[True, False, True]]))
    assert p.tolist() == [[0.5, 0.0, 0.5]]


def test_training_with_one_seed_twice_gives_the_same_weights_and_record(tmp_path: Path) -> None:
    trace = drr_training.training_days("venus", TINY)
    outcomes = []
    for run in range(2):
        network, outcome = train(trace, 1, TINY, lambda text: None)
        save(network, tmp_path / f"{run}.npz")
        outcomes.append(outcome)
    assert outcomes[0] == outcomes[1]
    assert (tmp_path / "0.npz").read_bytes() == (tmp_path / "1.npz").read_bytes()
    assert outcomes[0].final_ajct <= outcomes[0].imitation_ajct


def test_reinforcement_turns_an_actor_that_was_sure_of_best_fit_to_what_is_rewarded() -> None:
    import numpy as np

    draw = np.random.default_rng(3)
    actor = fresh(draw, CLASSES)
    x = draw.normal(size=(1000, FEATURES))
    allowed = np.zeros((1000, CLASSES), dtype=bool)
    allowed[:, [2, 5]] = True
    lesson = Experience(x.tolist(), allowed.tolist(), [2] * 1000, [2] * 1000)
    imitate(actor, lesson, draw, epochs=80)
    assert probabilities(actor.forward(x), allowed)[:, 2].mean() > 0.9
    improver = Improver(actor, draw)
    for update in range(1, 61):
        p = probabilities(actor.forward(x), allowed)
        drawn = np.where(draw.random(1000) < p[:, 2], 2, 5)
        # The looser class is the better one, and what best fit would do is not.
        tried = Experience(x.tolist(), allowed.tolist(), drawn.tolist(), [2] * 1000)
        tried.likelihoods = p[np.arange(1000), drawn].tolist()
        tried.rewards = (drawn == 5).astype(float).tolist()
        tried.ends = list(range(1000))
        improver.improve(tried, update / 60)
    assert probabilities(actor.forward(x), allowed)[:, 5].mean() > 0.9
    assert agreement(actor, lesson) < 0.1


def test_training_keeps_a_better_policy_only_when_further_days_confirm_it(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, heard = drr_training.training_days("venus", TINY), []
    # On the validation day every policy is better than the one before; on the confirmation day as the case has it.
    for confirmed, kept in ((9.0, 2), (11.0, 0)):
        answers = iter([[10.0], [10.0], [9.5], [9.0], [10.0], [confirmed]])
        monkeypatch.setattr(drr_training, "ajcts", lambda episodes, policy, answers=answers: next(answers))
        _, outcome = train(trace, 1, TINY, heard.append)
        assert outcome.kept_update == kept
        assert outcome.final_ajct == (9.0 if kept else 10.0)
        assert outcome.confirmed_final_ajct == (9.0 if kept else 10.0)
        assert (outcome.tried_update, outcome.tried_ajct, outcome.confirmed_tried_ajct) == (2, 9.0, confirmed)
    assert sum("isn't confirmed" in text for text in heard) == 1


def test_imitation_on_a_few_days_already_agrees_with_best_fit_on_others() -> None:
    import numpy as np

    episodes = episodes_of(drr_training.training_days("venus", Schedule()), 14)
    draw = np.random.default_rng(5)
    actor = fresh(draw, CLASSES)
    others = observe(episodes[12:], BestFitPolicy(), 5000)
    before = agreement(actor, others)
    imitate(actor, observe(episodes[:12], BestFitPolicy(), 12_000), draw, epochs=4)
    assert before < 0.9
    assert agreement(actor, others) >= 0.97


def test_better_needs_both_means() -> None:
    assert is_better([9.0, 9.0], [10.0, 10.0])
    assert not is_better([10.0, 10.0], [10.0, 10.0])
    # Half the days get much worse, but a single long one hides it in the mean.
    assert not is_better([90.0, 2.0], [100.0, 1.0])


def test_weights_survive_being_saved(tmp_path: Path) -> None:
    policy = shipped_policy(1)
    save(policy.actor, tmp_path / "again.npz")
    state = ClusterState(3)
    scheduler = DefragmentingRescheduler(state, policy=str(tmp_path / "again.npz"))
    assert isinstance(scheduler.policy, NetworkPolicy)
    assert scheduler.admit(Job("x", 2, 3), Situation()).admitted


def test_missing_or_foreign_weights_are_refused_with_the_command_that_makes_them(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("no weights")
    for path in (tmp_path / "text.npz", tmp_path / "none.npz"):
        with pytest.raises(CompassError, match="compass train-drr"):
            load(path)


def test_drr_on_nodes_of_another_size_says_what_to_do() -> None:
    with pytest.raises(CompassError, match="policy=best-fit"):
        DefragmentingRescheduler(ClusterState(2, 4))
    assert DefragmentingRescheduler(ClusterState(2, 4), policy="best-fit").admit(Job("x", 1, 4), Situation()).admitted


def test_hypothetical_placements_leave_the_state_as_it_was() -> None:
    state = ClusterState(3)
    after = Hypothetical(state)
    assert [after.take(8, 3), after.take(5, 3), after.take(8, 3)] == [0, 0, 1]
    assert after.histogram[2] == after.histogram[5] == after.histogram[8] == 1
    assert state.empty_nodes == 3
