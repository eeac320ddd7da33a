"""A vision transformer for small images, with two convolutions in front of it.

Two convolutions of stride two make the tokens (Xiao et al. 2021): unlike patches cut out at once,
they let it be trained by plain gradient descent. Units of the feed-forward layers are ReLU, so that
they can be rescaled.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from nonvacuous.models.cnn import image_shape

_HEAD = 32  # channels of one head


class Attention(nn.Module):
    """Every token looks at every token, by several heads."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, tokens: Tensor) -> Tensor:
        """Tokens of the same shape (examples, tokens, width)."""
        examples, length, width = tokens.shape
        query, key, value = (
            layer(tokens).view(examples, length, self.heads, -1).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = scaled_dot_product_attention(query, key, value)
        seen: Tensor = self.output(mixed.transpose(1, 2).reshape(examples, length, width))
        return seen


class EncoderBlock(nn.Module):
    """Attention, then two linear layers; each reads normalized tokens and adds to the stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first_norm, self.attention = nn.LayerNorm(width), Attention(width, heads)
        self.second_norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        tokens = tokens + self.attention(self.first_norm(tokens))
        total: Tensor = tokens + self.down(self.up(self.second_norm(tokens)).relu())
        return total


class SmallViT(nn.Module):
    """Two convolutions, learned positions, ``depth`` blocks, the mean over tokens, linear.

    Of width 128 and depth 4, on inputs of shape (3, 32, 32) and 10 classes, it has 64 tokens and
    615,306 parameters.

    width   channels of a token, 32 for each head (one head where it is no multiple of 32)
    """

    def __init__(
        self, example_shape: Sequence[int], classes: int, *, width: int, depth: int
    ) -> None:
        super().__init__()
        channels, height, across = image_shape("vit", example_shape)
        half = -(-width // 2)
        self.stem = nn.Sequential(
            nn.Conv2d(channels, half, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(half, width, 3, stride=2, padding=1),
        )
        tokens = -(-height // 4) * -(-across // 4)
        self.positions = nn.Parameter(0.02 * torch.randn(tokens, width))
        heads = 1 if width % _HEAD else width // _HEAD
        self.blocks = nn.Sequential(*(EncoderBlock(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        tokens = self.stem(inputs).flatten(2).transpose(1, 2) + self.positions
        scores: Tensor = self.output(self.norm(self.blocks(tokens)).mean(dim=1))
        return scores
