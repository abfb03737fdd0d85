"""Trains DRR's policy from scratch on synthetic days, seeded: imitation of best fit, then improvement by PPO."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from statistics import mean

import numpy as np

from compass_abs.experiments.drr_learning import (
    Experience,
    Improver,
    agreement,
    copy,
    fresh,
    imitate,
    probabilities,
    soften,
)
from compass_abs.model import ClusterState, Job
from compass_abs.schedulers.drr import DefragmentingRescheduler
from compass_abs.schedulers.drr_policy import (
    CLASSES,
    BestFitPolicy,
    Network,
    NetworkPolicy,
    Policy,
    View,
    free_on_partial,
)
from compass_abs.simulation import simulate
from compass_abs.traces import Trace, cluster_size, day
from compass_abs.traces.synthesis import synthesize
from compass_abs.traces.workloads import workload

_ETA = 0.9
_HOUR = 3600.0
# Any number will do, as long as it stays the same.
_TRACE_SEED = 2025


@dataclass(frozen=True, slots=True)
class Schedule:
    """How long the training is; the defaults made the weights that ship."""

    training_days: int = 40
    validation_days: int = 20
    #: Further days on which what was chosen for its validation has to prove itself.
    confirmation_days: int = 40
    imitated_decisions: int = 50_000
    #: How firmly improvement begins to hold what imitation taught. A whole imitation draws best fit's choice 98 times
    #: in 100 where there is another one, and so learns nothing of the others.
    firmness: float = 0.25
    updates: int = 200
    decisions_per_update: int = 2048
    #: Updates between two validations.
    validate_every: int = 10


@dataclass(frozen=True, slots=True)
class Episode:
    """A day's jobs and the cluster that they get."""

    jobs: tuple[Job, ...]
    nodes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a training came to; AJCTs are means over the validation days, in seconds."""

    seed: int
    #: Decisions on which the imitation agrees with best fit, on days that it hasn't seen.
    agreement: float
    best_fit_ajct: float
    imitation_ajct: float
    final_ajct: float
    #: The same on the confirmation days.
    confirmed_imitation_ajct: float
    confirmed_final_ajct: float
    #: The update whose policy was kept; 0 for the imitation itself.
    kept_update: int
    #: The update that did best on the validation days, confirmed or not, and what it came to on both kinds of days.
    tried_update: int
    tried_ajct: float
    confirmed_tried_ajct: float

    def as_dict(self) -> dict[str, float]:
        """Every number by its name."""
        return asdict(self)


def train(trace: Trace, seed: int, schedule: Schedule, report: Callable[[str], None]) -> tuple[Network, Outcome]:
    """The policy of this seed, never worse than the imitation on days that it wasn't trained on, and how it came out.

    The trace's first days are for training, the next for validation, the others for confirmation: of twenty policies
    the best on a few days is so by luck, too, and unconfirmed it may well be worse than the imitation.
    """
    draw = np.random.default_rng(seed)
    episodes = episodes_of(trace, schedule.training_days + schedule.validation_days + schedule.confirmation_days)
    training, others = episodes[: schedule.training_days], episodes[schedule.training_days :]
    validation, confirmation = others[: schedule.validation_days], others[schedule.validation_days :]
    best_fit = ajcts(validation, BestFitPolicy())
    actor = fresh(draw, CLASSES)
    imitate(actor, observe(training, BestFitPolicy(), schedule.imitated_decisions), draw)
    agreed = agreement(actor, observe(validation, BestFitPolicy(), schedule.imitated_decisions))
    imitation, imitated = copy(actor), ajcts(validation, NetworkPolicy(actor))
    report(
        f"seed {seed}: imitation agrees on {agreed:.2%}; AJCT {mean(imitated):.1f} s, best fit {mean(best_fit):.1f} s"
    )
    kept, kept_ajcts, kept_update = imitation, imitated, 0
    soften(actor, schedule.firmness)
    improver = Improver(actor, draw)
    for update in range(1, schedule.updates + 1):
        experience = Experience()
        while len(experience) < schedule.decisions_per_update:
            run(training[int(draw.integers(len(training)))], Explorer(actor, draw, experience))
        improver.improve(experience, update / schedule.updates)
        if update % schedule.validate_every == 0:
            found = ajcts(validation, NetworkPolicy(actor))
            report(f"seed {seed}: update {update}, AJCT {mean(found):.1f} s")
            if is_better(found, kept_ajcts):
                kept, kept_ajcts, kept_update = copy(actor), found, update
    tried, tried_update = kept_ajcts, kept_update
    confirmed_imitation = ajcts(confirmation, NetworkPolicy(imitation))
    confirmed = confirmed_tried = ajcts(confirmation, NetworkPolicy(kept)) if kept_update else confirmed_imitation
    if kept_update and not is_better(confirmed, confirmed_imitation):
        report(
            f"seed {seed}: update {kept_update} isn't confirmed on further days ({mean(confirmed):.1f} s, "
            f"the imitation {mean(confirmed_imitation):.1f} s); the imitation stays"
        )
        kept, kept_ajcts, kept_update, confirmed = imitation, imitated, 0, confirmed_imitation
    return kept, Outcome(
        seed,
        agreed,
        best_fit_ajct=mean(best_fit),
        imitation_ajct=mean(imitated),
        final_ajct=mean(kept_ajcts),
        confirmed_imitation_ajct=mean(confirmed_imitation),
        confirmed_final_ajct=mean(confirmed),
        kept_update=kept_update,
        tried_update=tried_update,
        tried_ajct=mean(tried),
        confirmed_tried_ajct=mean(confirmed_tried),
    )


def is_better(new: Sequence[float], old: Sequence[float]) -> bool:
    """Whether the mean AJCT fell, and the mean of the days' ratios too: one bad day can't hide many good ones."""
    ratio = mean([a / b for a, b in zip(new, old, strict=True)])
    return ratio < 1 and mean(new) < mean(old)


def training_days(model: str, schedule: Schedule) -> Trace:
    """The synthetic days of this model on which to train and validate; the same for every seed of the training."""
    days = schedule.training_days + schedule.validation_days + schedule.confirmation_days
    return synthesize(workload(model), days, _TRACE_SEED)


def episodes_of(trace: Trace, count: int) -> list[Episode]:
    """The trace's first days, each with its cluster of N(0.9) nodes."""
    found = []
    for number in trace.days()[:count]:
        jobs = day(trace, number).jobs
        found.append(Episode(jobs, cluster_size(jobs, _ETA)))
    return found


def run(episode: Episode, policy: Policy) -> float:
    """The day's AJCT with this policy in DRR's place of placement."""
    scheduler = DefragmentingRescheduler(ClusterState(episode.nodes), policy="best-fit")
    scheduler.policy = policy
    ajct = simulate(episode.jobs, scheduler).ajct
    if isinstance(policy, Explorer):
        policy.end()
    return ajct


def ajcts(episodes: Sequence[Episode], policy: Policy) -> list[float]:
    """Each day's AJCT."""
    return [run(episode, policy) for episode in episodes]


def observe(episodes: Sequence[Episode], policy: Policy, decisions: int) -> Experience:
    """What a policy sees and what best fit would do, for at most this many decisions."""
    experience = Experience()
    for episode in episodes:
        if len(experience) >= decisions:
            break
        run(episode, Witness(policy, experience))
    return experience


class Witness:
    """Notes what another policy sees."""

    def __init__(self, policy: Policy, experience: Experience) -> None:
        self._policy = policy
        self._experience = experience

    def choose(self, view: View) -> int:
        """What the other policy chooses."""
        action = self._policy.choose(view)
        note(self._experience, view.features(), view.allowed(), action)
        return action


class Explorer:
    """Draws from the actor's distribution, and notes the rewards.

    A placement is rewarded by what it takes off the fragmentation rate FR, less 0.01·FR an hour until the next one.
    """

    def __init__(self, actor: Network, draw: np.random.Generator, experience: Experience) -> None:
        self._actor = actor
        self._draw = draw
        self._experience = experience
        #: Time and fragmentation rate right after the latest placement.
        self._latest: tuple[float, float] | None = None

    def choose(self, view: View) -> int:
        """A class, drawn."""
        experience = self._experience
        if self._latest is not None:
            since, stranded = self._latest
            experience.rewards[-1] -= 0.01 * stranded * (view.now - since) / _HOUR
        features, allowed = view.features(), view.allowed()
        p = probabilities(self._actor.forward(np.array(features)), np.array(allowed))
        action = int(np.searchsorted(np.cumsum(p), self._draw.random()))
        # Rounding may leave the sum just below what was drawn.
        if action == len(p) or not allowed[action]:
            action = int(p.argmax())
        note(experience, features, allowed, action)
        after = list(view.histogram)
        after[action] -= 1
        after[action - view.gpus] += 1
        stranded = free_on_partial(after)
        experience.likelihoods.append(float(p[action]))
        experience.rewards.append(view.stranded - stranded)
        self._latest = view.now, stranded
        return action

    def end(self) -> None:
        """The episode is over."""
        if self._experience.actions:
            self._experience.ends.append(len(self._experience) - 1)


def note(experience: Experience, features: list[float], allowed: list[bool], action: int) -> None:
    """Adds a decision."""
    experience.features.append(features)
    experience.allowed.append(allowed)
    experience.actions.append(action)
    experience.tightest.append(allowed.index(True))
