"""ResNet (He et al. 2016): image classification; full is ResNet-50."""

from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Config:
    """How large."""

    blocks: tuple[int, ...]
    width: int
    image: int
    classes: int
    batch: int


SIZES = {"tiny": Config((1, 1), 8, 16, 10, 8), "full": Config((3, 4, 6, 3), 64, 224, 1000, 64)}


class Bottleneck(nn.Module):
    """1×1, 3×3 and 1×1 convolutions around a shortcut."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        same = inputs == outputs and stride == 1
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        """Feature maps in and out."""
        return functional.relu(self.body(x) + self.shortcut(x))


class Model(nn.Module):
    """Images and labels in, the loss out."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        width = config.width
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        stages, inputs = [], width
        for stage, count in enumerate(config.blocks):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                stages.append(Bottleneck(inputs, width << stage, stride))
                inputs = 4 * (width << stage)
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(inputs, config.classes)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        """The mean cross-entropy."""
        return functional.cross_entropy(self.head(self.stages(self.stem(images)).mean((2, 3))), labels)


def batch(config: Config, size: int, generator: Generator) -> tuple[Tensor, ...]:
    """Images whose brightness tells the class, under noise."""
    device = generator.device
    labels = torch.randint(config.classes, (size,), generator=generator, device=device)
    images = torch.randn(size, 3, config.image, config.image, generator=generator, device=device)
    return images + (labels / config.classes).view(-1, 1, 1, 1), labels
