"""CLIP (Radford et al. 2021): images and captions in one space; full is ViT-B/32 with its text tower."""

from dataclasses import dataclass
from math import log

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from compass_abs.training.workloads.blocks import Block, Patches, initialise


@dataclass(frozen=True)
class Config:
    """How large."""

    image: int
    patch: int
    image_width: int
    image_heads: int
    vocabulary: int
    context: int
    text_width: int
    text_heads: int
    depth: int
    shared: int
    batch: int


SIZES = {
    "tiny": Config(16, 8, 32, 2, 97, 8, 16, 2, 2, 16, 8),
    "full": Config(224, 32, 768, 12, 49_408, 77, 512, 8, 12, 512, 128),
}


class Model(nn.Module):
    """Images and captions in, the contrastive loss over this rank's batch out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.patches = Patches(config.image, config.patch, config.image_width)
        self.image_blocks = nn.Sequential(
            *(Block(config.image_width, config.image_heads, 0.0) for _ in range(config.depth))
        )
        self.image_out = nn.Sequential(
            nn.LayerNorm(config.image_width), nn.Linear(config.image_width, config.shared, bias=False)
        )
        self.token = nn.Embedding(config.vocabulary, config.text_width)
        self.position = nn.Parameter(torch.randn(config.context, config.text_width) * 0.01)
        self.text_blocks = nn.Sequential(
            *(Block(config.text_width, config.text_heads, 0.0, causal=True) for _ in range(config.depth))
        )
        self.text_out = nn.Sequential(
            nn.LayerNorm(config.text_width), nn.Linear(config.text_width, config.shared, bias=False)
        )
        self.scale = nn.Parameter(torch.tensor(log(1 / 0.07)))
        self.apply(initialise)

    def forward(self, images: Tensor, captions: Tensor) -> Tensor:
        """The symmetric cross-entropy of finding each other's partner."""
        pictures = functional.normalize(self.image_out(self.image_blocks(self.patches(images))[:, 0]), dim=-1)
        texts = functional.normalize(
            self.text_out(self.text_blocks(self.token(captions) + self.position)[:, -1]), dim=-1
        )
        logits = self.scale.clamp(max=log(100)).exp() * pictures @ texts.T
        partners = torch.arange(len(logits), device=logits.device)
        return (functional.cross_entropy(logits, partners) + functional.cross_entropy(logits.T, partners)) / 2


def batch(config: Config, size: int, generator: Generator) -> tuple[Tensor, ...]:
    """Captions of one repeated word each, and images as bright as their word is far down the vocabulary."""
    device = generator.device
    words = torch.randint(config.vocabulary, (size, 1), generator=generator, device=device)
    images = torch.randn(size, 3, config.image, config.image, generator=generator, device=device)
    return images + (words / config.vocabulary).view(-1, 1, 1, 1), words.expand(-1, config.context).contiguous()
