"""The parts of the zoo's models, right ones. Every fault is a class that changes one of their methods."""

import math
from typing import Any

import torch
from torch import Tensor, nn

VOCAB, WIDTH, HEADS, MAX_LENGTH, PAD = 20, 16, 2, 16, 0

Past = dict[str, Tensor]  # keys and values of one attention in one session


class Attention(nn.Module):
    """Multi-head attention over the sequence itself or over a memory."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value, self.output = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor, visible: Tensor, memory: Tensor | None = None, past: Past | None = None) -> Tensor:
        read = x if memory is None else memory
        query, key, value = self.split(self.query(x)), self.split(self.key(read)), self.split(self.value(read))
        if past is not None:
            key, value = self.remember(past, key, value)
        scores = query / math.sqrt(query.shape[-1]) @ key.mT
        return self.output(self.merge(self.weights(scores, visible) @ value))

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], HEADS, -1).transpose(1, 2)

    def merge(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(~visible, lowest).softmax(-1).masked_fill(~visible, 0.0)

    def remember(self, past: Past, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        for name, new in (("key", key), ("value", value)):
            past[name] = torch.cat([past[name], new], dim=2) if name in past else new
        return past["key"], past["value"]


class FeedForward(nn.Module):
    """Two layers at each position."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.output = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.output(torch.nn.functional.gelu(self.inner(x)))


class Residual(nn.Module):
    """A sublayer in a Pre-Norm residual connection."""

    def __init__(self, sublayer: nn.Module) -> None:
        super().__init__()
        self.norm, self.sublayer, self.dropout = nn.LayerNorm(WIDTH), sublayer, nn.Dropout(0.1)

    def forward(self, x: Tensor, **context: Any) -> Tensor:
        return x + self.dropout(self.sublayer(self.norm(x), **context))


def positions(real: Tensor) -> Tensor:
    """Padding takes none."""
    return (real.long().cumsum(1) - 1).clamp_min(0)


def causal(real: Tensor, num_new: int) -> Tensor:
    """(B, 1, queries, keys): the last query sees every real key."""
    keys = torch.arange(real.shape[1])
    return (keys <= keys[-num_new:, None])[None, None] & real[:, None, None]


def start(model: nn.Module) -> None:
    """Initial weights as GPT-2's, but larger, so that every token matters."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() >= 2:
                parameter.copy_(0.15 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
