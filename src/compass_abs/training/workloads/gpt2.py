"""GPT-2 (Radford et al. 2019): language modelling; full is the small model of 124 M parameters."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from compass_abs.training.workloads.blocks import Block, initialise


@dataclass(frozen=True)
class Config:
    """How large."""

    vocabulary: int
    context: int
    width: int
    depth: int
    heads: int
    batch: int


SIZES = {"tiny": Config(97, 16, 32, 2, 2, 4), "full": Config(50_257, 1024, 768, 12, 12, 8)}


class Model(nn.Module):
    """Tokens in, the loss of predicting each next one out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.token = nn.Embedding(config.vocabulary, config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(Block(config.width, config.heads, causal=True) for _ in range(config.depth)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocabulary, bias=False)
        self.apply(initialise)
        self.head.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """The mean cross-entropy."""
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        x = self.token(inputs) + self.position(torch.arange(inputs.shape[1], device=tokens.device))
        logits = self.head(self.norm(self.blocks(self.drop(x))))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def batch(config: Config, size: int, generator: Generator) -> tuple[Tensor, ...]:
    """Arithmetic progressions modulo the vocabulary: predictable after two tokens."""
    start, step = torch.randint(config.vocabulary, (2, size, 1), generator=generator, device=generator.device)
    return ((start + step * torch.arange(config.context + 1, device=generator.device)) % config.vocabulary,)
