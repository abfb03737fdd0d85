"""The transformer block that ViT, BERT, GPT-2 and CLIP share."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class Attention(nn.Module):
    """Multi-head self-attention."""

    def __init__(self, width: int, heads: int, dropout: float, causal: bool) -> None:
        super().__init__()
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Batch × length × width in and out."""
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Pre-norm block, as in GPT-2, ViT and CLIP."""

    def __init__(self, width: int, heads: int, dropout: float = 0.1, *, causal: bool = False) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Batch × length × width in and out."""
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.mlp(self.norm2(x)))


class PostNormBlock(Block):
    """The original order, as in BERT."""

    def forward(self, x: Tensor) -> Tensor:
        """Batch × length × width in and out."""
        x = self.norm1(x + self.drop(self.attention(x)))
        return self.norm2(x + self.drop(self.mlp(x)))


class Patches(nn.Module):
    """An image as a sequence of embedded patches, a class token before them."""

    def __init__(self, image: int, patch: int, width: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)

    def forward(self, images: Tensor) -> Tensor:
        """Batch × 3 × height × width to batch × length × width of the model."""
        x = self.project(images).flatten(2).transpose(1, 2)
        return torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.position


def initialise(module: Any) -> None:
    """Small normal weights and zero biases, for `Module.apply`."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
