"""BERT (Devlin et al. 2019): masked language modelling; full is BERT-base at length 128."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from compass_abs.training.workloads import gpt2
from compass_abs.training.workloads.blocks import PostNormBlock, initialise


@dataclass(frozen=True)
class Config(gpt2.Config):
    """How large; sequences of `length` within a context that could hold more."""

    length: int


SIZES = {"tiny": Config(97, 32, 32, 2, 2, 4, 16), "full": Config(30_522, 512, 768, 12, 12, 32, 128)}
MASK = 0


class Model(nn.Module):
    """Masked tokens and the true ones in, the loss of filling them in out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.token = nn.Embedding(config.vocabulary, width)
        self.position = nn.Embedding(config.context, width)
        self.segment = nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.Sequential(*(PostNormBlock(width, config.heads) for _ in range(config.depth)))
        self.transform = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.head = nn.Linear(width, config.vocabulary)
        self.apply(initialise)
        self.head.weight = self.token.weight

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The mean cross-entropy over the masked places."""
        places = torch.arange(tokens.shape[1], device=tokens.device)
        segments = (places >= tokens.shape[1] // 2).long()
        x = self.drop(self.norm(self.token(tokens) + self.position(places) + self.segment(segments)))
        return functional.cross_entropy(self.head(self.transform(self.blocks(x))).flatten(0, 1), targets.flatten())


def batch(config: Config, size: int, generator: Generator) -> tuple[Tensor, ...]:
    """GPT-2's sequences with every seventh token or so masked."""
    (tokens,) = gpt2.batch(config, size, generator)
    tokens = tokens[:, : config.length]
    masked = torch.rand(tokens.shape, generator=generator, device=tokens.device) < 0.15
    # At least one place a sequence, so that the mean is never over nothing.
    masked[:, 0] = True
    return tokens.masked_fill(masked, MASK), tokens.masked_fill(~masked, -100)
