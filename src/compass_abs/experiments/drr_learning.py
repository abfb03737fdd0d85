"""How DRR's policy learns: gradients by hand, imitation by cross-entropy, improvement by PPO. Needs numpy only."""

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from compass_abs.schedulers.drr_policy import CLASSES, FEATURES, HIDDEN, Network

Array = NDArray[np.float64]
Gradients = list[tuple[Array, Array]]

_FORBIDDEN = -1e9
_CLIP = 0.2
_EPOCHS = 4
_BATCH = 256
_DISCOUNT, _TRACE = 0.99, 0.95


def fresh(draw: np.random.Generator, outputs: int) -> Network:
    """A network with random weights; a small last layer, so that it begins without an opinion."""
    sizes = (FEATURES, HIDDEN, HIDDEN, outputs)
    layers = []
    for k, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        scale = 0.01 if k == len(sizes) - 2 else 1.0
        layers.append((draw.normal(0.0, scale / np.sqrt(fan_in), (fan_in, fan_out)), np.zeros(fan_out)))
    return Network(layers)


def copy(network: Network) -> Network:
    """A network of its own with the same weights."""
    return Network([(w.copy(), b.copy()) for w, b in network.layers])


def backward(network: Network, x: Array, gradient: Array) -> Gradients:
    """The gradient of the weights, given that of the output for a batch."""
    activations = [x]
    for w, b in network.layers[:-1]:
        activations.append(np.tanh(activations[-1] @ w + b))
    found: Gradients = []
    for k in range(len(network.layers) - 1, -1, -1):
        found.append((activations[k].T @ gradient, gradient.sum(axis=0)))
        if k:
            gradient = (gradient @ network.layers[k][0].T) * (1.0 - activations[k] ** 2)
    return found[::-1]


class Adam:
    """Adam, with its usual constants."""

    def __init__(self, network: Network, rate: float) -> None:
        self._network = network
        self._rate = rate
        self._step = 0
        self._first = [np.zeros_like(a) for pair in network.layers for a in pair]
        self._second = [np.zeros_like(a) for pair in network.layers for a in pair]

    def step(self, gradients: Gradients) -> None:
        """Changes the network's weights in place."""
        self._step += 1
        weights = [a for pair in self._network.layers for a in pair]
        flat = [a for pair in gradients for a in pair]
        for weight, gradient, first, second in zip(weights, flat, self._first, self._second, strict=True):
            first += 0.1 * (gradient - first)
            second += 0.001 * (gradient**2 - second)
            unbiased = first / (1 - 0.9**self._step)
            weight -= self._rate * unbiased / (np.sqrt(second / (1 - 0.999**self._step)) + 1e-8)


def probabilities(scores: Array, allowed: NDArray[np.bool_]) -> Array:
    """Softmax over what is allowed."""
    masked = np.where(allowed, scores, _FORBIDDEN)
    exponentials = np.exp(masked - masked.max(axis=-1, keepdims=True))
    result: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return result


@dataclass(slots=True)
class Experience:
    """Decisions in the order in which they were made."""

    features: list[list[float]] = field(default_factory=list)
    allowed: list[list[bool]] = field(default_factory=list)
    actions: list[int] = field(default_factory=list)
    #: What best fit would have done.
    tightest: list[int] = field(default_factory=list)
    likelihoods: list[float] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    #: Decisions after which an episode ended.
    ends: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.actions)


def imitate(actor: Network, experience: Experience, draw: np.random.Generator, epochs: int = 3) -> None:
    """Stage 1: cross-entropy against best fit's choices (Adam 1e-3, batches of 256)."""
    x, allowed, labels = np.array(experience.features), np.array(experience.allowed), np.array(experience.tightest)
    optimiser = Adam(actor, 1e-3)
    for _ in range(epochs):
        for batch in _batches(len(labels), draw):
            p = probabilities(actor.forward(x[batch]), allowed[batch])
            optimiser.step(backward(actor, x[batch], (p - np.eye(CLASSES)[labels[batch]]) / len(batch)))


def agreement(actor: Network, experience: Experience) -> float:
    """The share of decisions on which the actor's most likely choice is best fit's."""
    scores = np.where(np.array(experience.allowed), actor.forward(np.array(experience.features)), _FORBIDDEN)
    return float((scores.argmax(axis=1) == np.array(experience.tightest)).mean())


def soften(actor: Network, share: float) -> None:
    """Shrinks the differences between the actor's scores to this share: the same preferences, held less firmly."""
    for array in actor.layers[-1]:
        array *= share


class Improver:
    """Stage 2: PPO with a decaying pull to best fit and a decaying entropy bonus."""

    def __init__(self, actor: Network, draw: np.random.Generator) -> None:
        self.actor = actor
        self.critic = fresh(draw, 1)
        self._draw = draw
        self._actor_step = Adam(actor, 3e-4)
        self._critic_step = Adam(self.critic, 1e-3)

    def improve(self, experience: Experience, progress: float) -> None:
        """One PPO update; `progress` runs from 0 to 1 over the whole training."""
        x, allowed = np.array(experience.features), np.array(experience.allowed)
        actions, tightest = np.array(experience.actions), np.array(experience.tightest)
        before = np.array(experience.likelihoods)
        values = self.critic.forward(x)[:, 0]
        advantages = _advantages(np.array(experience.rewards), values, experience.ends)
        returns = advantages + values
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        imitation = 0.1 * (1 - progress)
        entropy_bonus = 0.04 * 0.1**progress
        one_hot = np.eye(CLASSES)
        for _ in range(_EPOCHS):
            for batch in _batches(len(actions), self._draw):
                p = probabilities(self.actor.forward(x[batch]), allowed[batch])
                chosen, advantage = actions[batch], advantages[batch]
                ratio = p[np.arange(len(batch)), chosen] / before[batch]
                stale = ((advantage > 0) & (ratio > 1 + _CLIP)) | ((advantage < 0) & (ratio < 1 - _CLIP))
                pull = np.where(stale, 0.0, ratio * advantage)[:, None]
                logs = np.log(np.maximum(p, 1e-12))
                entropy = -(p * logs).sum(axis=1, keepdims=True)
                gradient = -pull * (one_hot[chosen] - p)
                gradient += entropy_bonus * p * (logs + entropy)
                gradient += imitation * (p - one_hot[tightest[batch]])
                self._actor_step.step(backward(self.actor, x[batch], gradient / len(batch)))
                error = self.critic.forward(x[batch])[:, 0] - returns[batch]
                self._critic_step.step(backward(self.critic, x[batch], error[:, None] / len(batch)))


def _advantages(rewards: Array, values: Array, ends: list[int]) -> Array:
    """Generalised advantage estimates; nothing is carried over the end of an episode."""
    last = np.zeros(len(rewards), dtype=bool)
    last[ends] = True
    found = np.zeros(len(rewards))
    running = 0.0
    for k in range(len(rewards) - 1, -1, -1):
        ahead = 0.0 if last[k] or k + 1 == len(rewards) else values[k + 1]
        carried = 0.0 if last[k] else running
        running = rewards[k] + _DISCOUNT * ahead - values[k] + _DISCOUNT * _TRACE * carried
        found[k] = running
    return found


def _batches(count: int, draw: np.random.Generator) -> list[NDArray[np.int64]]:
    order = draw.permutation(count)
    return [order[k : k + _BATCH] for k in range(0, count, _BATCH)]
