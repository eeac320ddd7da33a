"""Attention-shaped networks with tiny widths, each with its number of free scales by hand."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.networks.architecture import Architecture, Residual, images, sequences, words


class FeedForward(nn.Module):
    """Linear, activation or gated unit, linear; hidden width 6."""

    def __init__(self, width: int, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.up = nn.Linear(width, 12 if kind in ("glu", "swiglu") else 6)
        self.down = nn.Linear(6, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.up(x)
        if self.kind == "glu":
            x = F.glu(x, dim=-1)
        elif self.kind == "swiglu":
            value, gate = x.split(6, dim=-1)
            x = value * F.silu(gate)
        else:
            x = F.gelu(x) if self.kind == "gelu" else F.relu(x)
        return self.down(x)


class Attention(nn.Module):
    """Two heads of width 4 over nn.MultiheadAttention."""

    def __init__(self, *, need_weights: bool = False) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x, need_weights=self.need_weights)[0]


class Transformer(nn.Module):
    """Pre-norm encoder on words. The stream is pinned by the norms that read it; free are the
    gains 8 + 8, queries 8 (keys follow), values 8, the last gain 8, and 6 in the feed-forward
    layer unless its activation pins them."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 8)
        self.position = nn.Parameter(torch.empty(1, 5, 8))
        self.layers = nn.Sequential(
            Residual(nn.Sequential(nn.LayerNorm(8), Attention())),
            Residual(nn.Sequential(nn.LayerNorm(8), FeedForward(8, kind))),
        )
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.layers(self.table(tokens) + self.position)
        return self.head(self.norm(x).mean(dim=1))


class AttentionOnly(nn.Module):
    """Raw input: queries 8, values 8, and the 8 channels between the two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = Attention(need_weights=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.attention(x).mean(1))


class HandWrittenNorm(nn.Module):
    """Root-mean-square normalization spelled out."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain


class RotaryAttention(nn.Module):
    """Two query heads share one key and value head of width 4, with rotated pairs: the queries
    and keys have 2 free scales (one a pair), the values 4."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(8, 8, bias=False)
        self.key = nn.Linear(8, 4, bias=False)
        self.value = nn.Linear(8, 4, bias=False)
        self.out = nn.Linear(8, 8, bias=False)
        angle = torch.arange(5.0)[:, None] * torch.tensor([1.0, 0.1])
        self.register_buffer("cosine", torch.cat([angle.cos()] * 2, -1))
        self.register_buffer("sine", torch.cat([angle.sin()] * 2, -1))

    def rotated(self, x: Tensor) -> Tensor:
        first, second = x.chunk(2, dim=-1)
        return x * self.cosine + torch.cat([-second, first], dim=-1) * self.sine

    def heads(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], -1, 4).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        query = self.rotated(self.heads(self.query(x)))
        key, value = self.rotated(self.heads(self.key(x))), self.heads(self.value(x))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
        return self.out(mixed.transpose(1, 2).reshape(x.shape))


class Llama(nn.Module):
    """Gains 8 + 8 + 8, queries 2, values 4, the value branch of the gated unit 6."""

    def __init__(self, norm: type[nn.Module]) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 8)
        self.layers = nn.Sequential(
            Residual(nn.Sequential(norm(8), RotaryAttention())),
            Residual(nn.Sequential(norm(8), FeedForward(8, "swiglu"))),
            norm(8),
        )
        self.head = nn.Linear(8, 7, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.table(tokens)))


class VisionTransformer(nn.Module):
    """As the encoder on words, with patches, a class token and ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 4, 4)
        self.token = nn.Parameter(torch.empty(1, 1, 8))
        self.position = nn.Parameter(torch.empty(1, 5, 8))
        self.layers = nn.Sequential(
            Residual(nn.Sequential(nn.LayerNorm(8), Attention())),
            Residual(nn.Sequential(nn.LayerNorm(8), FeedForward(8, "relu"))),
            nn.LayerNorm(8),
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.layers(x)[:, 0])


class Mixer(nn.Module):
    """Token mixing: one scale for the whole norm in front (its channels meet in the biases of the
    mixing layer), hidden 3. Channel mixing: gain 4, hidden 5. Last gain 4."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 4, 4, 4)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(4) for _ in range(3))
        self.tokens = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 4))
        self.channels = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).permute(0, 2, 1)
        x = x + self.tokens(self.norm1(x).permute(0, 2, 1)).permute(0, 2, 1)
        x = x + self.channels(self.norm2(x))
        return self.head(self.norm3(x).mean(1))


class ConvNext(nn.Module):
    """Stream 4 (stem and block write it); the norm's gain 4; hidden 6; the channels 4 between the
    last linear layer and the layer scale."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 2, 2)
        self.depthwise = nn.Conv2d(4, 4, 3, padding=1, groups=4)
        self.norm = nn.LayerNorm(4)
        self.up, self.down = nn.Linear(4, 6), nn.Linear(6, 4)
        self.gamma = nn.Parameter(torch.empty(4))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.gamma * self.down(torch.relu(self.up(y)))
        return self.head((x + y.permute(0, 3, 1, 2)).mean((-2, -1)))


class LinearAttention(nn.Module):
    """No softmax: queries 4, values 4, and one common factor of queries times keys."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(8, 4) for _ in range(3))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        query, key = torch.relu(self.query(x)), torch.relu(self.key(x))
        memory = torch.einsum("bsd,bse->bde", key, self.value(x))
        return self.head(torch.einsum("btd,bde->bte", query, memory).mean(1))


class HeadTensors(nn.Module):
    """Weights with an axis for the heads (2 x 3): queries 6, values 6; output channels 5."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Parameter(torch.empty(2, 3, 8)) for _ in range(3))
        self.out, self.head = nn.Parameter(torch.empty(2, 3, 5)), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            torch.einsum("btc,hdc->bhtd", x, w) for w in (self.query, self.key, self.value)
        )
        weights = torch.softmax(query @ key.transpose(-1, -2), dim=-1)
        return self.head(torch.einsum("bhtd,hde->bte", weights @ value, self.out).mean(1))


class NormalizedQueries(nn.Module):
    """Norms on queries and keys pin what writes them; their gains (4) cancel; values 8 and the
    channels 8 before the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(8, 8) for _ in range(4))
        self.query_norm, self.key_norm = nn.RMSNorm(4), nn.RMSNorm(4)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            layer(x).unflatten(-1, (2, 4)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        mixed = F.scaled_dot_product_attention(self.query_norm(query), self.key_norm(key), value)
        return self.head(self.out(mixed.transpose(1, 2).flatten(-2)).mean(1))


ATTENTION: list[Architecture] = [
    Architecture("transformer gelu", lambda: Transformer("gelu"), words(), 40),
    Architecture("transformer relu", lambda: Transformer("relu"), words(), 46),
    Architecture("transformer glu", lambda: Transformer("glu"), words(), 46),
    Architecture("attention only", AttentionOnly, sequences(), 24),
    Architecture("llama", lambda: Llama(nn.RMSNorm), words(), 8 + 8 + 8 + 2 + 4 + 6),
    Architecture("llama by hand", lambda: Llama(HandWrittenNorm), words(), 36),
    Architecture("vision transformer", VisionTransformer, images(1), 46),
    Architecture("mlp-mixer", Mixer, images(1), 1 + 3 + 4 + 5 + 4),
    Architecture("convnext", ConvNext, images(1), 4 + 4 + 6 + 4),
    Architecture("linear attention", LinearAttention, sequences(), 9),
    Architecture("weights with heads", HeadTensors, sequences(), 6 + 6 + 5),
    Architecture("normalized queries", NormalizedQueries, sequences(), 4 + 8 + 8),
]
