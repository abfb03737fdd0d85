"""DeepFM (Guo et al. 2017): click prediction; full has 26 tables of a million rows, of which a step touches few."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Config:
    """How large."""

    fields: int
    buckets: int
    numbers: int
    width: int
    hidden: tuple[int, ...]
    batch: int


SIZES = {
    "tiny": Config(4, 2000, 3, 4, (16, 16), 16),
    "full": Config(26, 1_000_000, 13, 16, (400, 400, 400), 4096),
}


class Model(nn.Module):
    """Hashed categories, numbers and clicks in, the loss out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        rows = config.fields * config.buckets
        self.embedding = nn.Embedding(rows, config.width)
        self.weight = nn.Embedding(rows, 1)
        self.numbers = nn.Linear(config.numbers, config.width)
        layers: list[nn.Module] = []
        inputs = (config.fields + 1) * config.width
        for width in config.hidden:
            layers += [nn.Linear(inputs, width), nn.ReLU(), nn.Dropout(0.1)]
            inputs = width
        self.deep = nn.Sequential(*layers, nn.Linear(inputs, 1))
        self.register_buffer("offsets", torch.arange(config.fields) * config.buckets, persistent=False)
        nn.init.normal_(self.embedding.weight, std=0.01)
        nn.init.zeros_(self.weight.weight)

    def forward(self, categories: Tensor, numbers: Tensor, clicks: Tensor) -> Tensor:
        """The mean cross-entropy of first-order, pairwise and deep parts together."""
        rows = categories + self.offsets
        vectors = torch.cat([self.embedding(rows), self.numbers(numbers).unsqueeze(1)], 1)
        pairs = (vectors.sum(1).square() - vectors.square().sum(1)).sum(1) / 2
        logits = self.weight(rows).sum((1, 2)) + pairs + self.deep(vectors.flatten(1)).squeeze(1)
        return functional.binary_cross_entropy_with_logits(logits, clicks)


def batch(config: Config, size: int, generator: Generator) -> tuple[Tensor, ...]:
    """Few categories are frequent and most are rare, as in real logs; parity of the first decides the click."""
    device = generator.device
    share = torch.rand(size, config.fields, generator=generator, device=device)
    categories = (share**4 * config.buckets).long()
    numbers = torch.randn(size, config.numbers, generator=generator, device=device)
    return categories, numbers, (categories[:, 0] % 2).float()
