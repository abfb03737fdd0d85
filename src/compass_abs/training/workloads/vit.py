"""ViT (Dosovitskiy et al. 2021): image classification; full is ViT-B/16."""

from dataclasses import dataclass

from torch import Generator, Tensor, nn
from torch.nn import functional

from compass_abs.training.workloads import resnet
from compass_abs.training.workloads.blocks import Block, Patches, initialise


@dataclass(frozen=True)
class Config(resnet.Config):
    """How large."""

    patch: int
    depth: int
    heads: int


SIZES = {"tiny": Config((), 32, 16, 10, 8, 4, 2, 2), "full": Config((), 768, 224, 1000, 64, 16, 12, 12)}


class Model(nn.Module):
    """Images and labels in, the loss out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.patches = Patches(config.image, config.patch, config.width)
        self.blocks = nn.Sequential(*(Block(config.width, config.heads) for _ in range(config.depth)))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.classes)
        self.apply(initialise)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy."""
        return functional.cross_entropy(self.head(self.norm(self.blocks(self.patches(images)))[:, 0]), labels)


def batch(config: Config, size: int, generator: Generator) -> tuple[Tensor, ...]:
    """The same images as ResNet's."""
    return resnet.batch(config, size, generator)
