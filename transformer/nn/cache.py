"""Keys and values kept between decoding steps, so that each step computes its own position only."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


class KeyValueCache:
    """Keys and values of one attention, growing along time in a preallocated buffer.

    Self-attention appends at every step; cross-attention appends the whole memory once and then only reads.
    """

    def __init__(self) -> None:
        self.length = 0
        self._key_BHCE: Tensor | None = None  # C: capacity, at least the length
        self._value_BHCU: Tensor | None = None

    def append(self, key_BHLE: Tensor, value_BHLU: Tensor) -> tuple[Tensor, Tensor]:
        """Add L positions and return all keys and values so far."""
        if self._key_BHCE is None or self._value_BHCU is None:
            # The first call brings the prompt or the memory: kept as it is, since cross-attention never grows.
            self._key_BHCE, self._value_BHCU = key_BHLE, value_BHLU
            self.length = key_BHLE.shape[2]
            return key_BHLE, value_BHLU
        start, self.length = self.length, self.length + key_BHLE.shape[2]
        if self.length > self._key_BHCE.shape[2]:
            self._key_BHCE = _enlarged(self._key_BHCE, start, self.length)
            self._value_BHCU = _enlarged(self._value_BHCU, start, self.length)
        self._key_BHCE[:, :, start : self.length] = key_BHLE
        self._value_BHCU[:, :, start : self.length] = value_BHLU
        return self.contents()

    def contents(self) -> tuple[Tensor, Tensor]:
        """All keys and values so far, shape (batch, heads, length, size)."""
        assert self._key_BHCE is not None, "the cache is empty"
        assert self._value_BHCU is not None
        return self._key_BHCE[:, :, : self.length], self._value_BHCU[:, :, : self.length]

    def select(self, rows_N: Tensor) -> None:
        """Keep the given rows of the batch, in the given order; a row may be taken several times."""
        if self._key_BHCE is not None and self._value_BHCU is not None:
            self._key_BHCE = self._key_BHCE.index_select(0, rows_N)
            self._value_BHCU = self._value_BHCU.index_select(0, rows_N)


def _enlarged(buffer_BHCE: Tensor, used: int, needed: int) -> Tensor:
    batch, heads, _, size = buffer_BHCE.shape
    # Zeros, never uninitialised memory: a NaN there would leak through a weight of zero.
    larger = buffer_BHCE.new_zeros(batch, heads, max(needed + 32, used * 3 // 2), size)
    larger[:, :, :used] = buffer_BHCE[:, :, :used]
    return larger


@dataclass
class LayerCache:
    """What one decoder layer keeps."""

    self_attention: KeyValueCache = field(default_factory=KeyValueCache)
    cross_attention: KeyValueCache = field(default_factory=KeyValueCache)


class DecoderCache:
    """What a whole decoder keeps between steps.

    Attributes:
        layers: one :class:`LayerCache` for each layer.
        key_mask_BK: bool, True for real tokens among the cached ones, or None while every token is real.
        length: number of positions fed so far, padding included.
    """

    def __init__(self, num_layers: int) -> None:
        self.layers = [LayerCache() for _ in range(num_layers)]
        self.key_mask_BK: Tensor | None = None
        self.length = 0

    def mask_with(self, mask_BL: Tensor | None, tokens_BL: Tensor) -> Tensor | None:
        """Which of all positions are real, those of the new ``tokens_BL`` included; None if all are."""
        earlier, new = self.key_mask_BK, mask_BL
        if earlier is None and new is None:
            return None
        if earlier is None:
            earlier = torch.ones(len(tokens_BL), self.length, dtype=torch.bool, device=tokens_BL.device)
        if new is None:
            new = torch.ones_like(tokens_BL, dtype=torch.bool)
        return torch.cat([earlier, new], dim=1)

    def advance(self, key_mask_BK: Tensor | None, length: int) -> None:
        """Record ``length`` new positions, and which of all positions are real."""
        self.key_mask_BK = key_mask_BK
        self.length += length

    def select(self, rows_N: Tensor) -> None:
        """Keep the given rows of the batch, in the given order, in every layer."""
        if self.key_mask_BK is not None:
            self.key_mask_BK = self.key_mask_BK.index_select(0, rows_N)
        for layer in self.layers:
            layer.self_attention.select(rows_N)
            layer.cross_attention.select(rows_N)
