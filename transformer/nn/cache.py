"""What a decoder keeps between steps, so that each step computes its own position only."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from transformer.nn.memory import MemoryCache, SharedMemories
from transformer.nn.moves import Moves, moves_to

GROWTH = 8  # positions by which a full buffer grows at least: not in every step, and not much more than is needed


class KeyValueCache:
    """Keys and values of a self-attention, growing along time in preallocated blocks, rearranged in place."""

    def __init__(self) -> None:
        self.length = self.num_rows = 0
        self._key_RHCE: Tensor | None = None  # R and C: capacities, at least the rows and the length
        self._value_RHCU: Tensor | None = None

    def append(self, key_BHLE: Tensor, value_BHLU: Tensor) -> tuple[Tensor, Tensor]:
        """Add L positions and return all keys and values so far."""
        start, added = self.length, key_BHLE.shape[2]
        if self._key_RHCE is None or self._value_RHCU is None:
            self.num_rows = len(key_BHLE)
            self._key_RHCE = _buffer_for(key_BHLE, self.num_rows, added + GROWTH)
            self._value_RHCU = _buffer_for(value_BHLU, self.num_rows, added + GROWTH)
        elif start + added > self._key_RHCE.shape[2]:
            room = max(start + added + GROWTH, start * 5 // 4)
            self._key_RHCE = _enlarged(self._key_RHCE, self.num_rows, start, room)
            self._value_RHCU = _enlarged(self._value_RHCU, self.num_rows, start, room)
        self.length = start + added
        self._key_RHCE[: self.num_rows, :, start : self.length] = key_BHLE
        self._value_RHCU[: self.num_rows, :, start : self.length] = value_BHLU
        return self.contents()

    @property
    def device(self) -> torch.device | None:
        """Where the keys and values are; None while there are none."""
        return None if self._key_RHCE is None else self._key_RHCE.device

    def contents(self) -> tuple[Tensor, Tensor]:
        """All keys and values so far, shape (batch, heads, length, size)."""
        assert self._key_RHCE is not None, "the cache is empty"
        assert self._value_RHCU is not None
        filled = slice(self.num_rows), slice(None), slice(self.length)
        return self._key_RHCE[filled], self._value_RHCU[filled]

    def rearrange(self, moves: Moves) -> None:
        """Let rows change places."""
        if self._key_RHCE is None or self._value_RHCU is None:
            return
        self._key_RHCE = _rearranged(self._key_RHCE, moves, self.num_rows, self.length)
        self._value_RHCU = _rearranged(self._value_RHCU, moves, self.num_rows, self.length)
        self.num_rows = moves.num_rows

    def truncate(self, length: int) -> None:
        """Forget all but the first ``length`` positions."""
        self.length = min(self.length, length)


def _buffer_for(tensor_BHLE: Tensor, rows: int, room: int) -> Tensor:
    # Not filled: nothing beyond the length is ever read.
    return tensor_BHLE.new_empty(rows, tensor_BHLE.shape[1], room, tensor_BHLE.shape[3])


def _enlarged(buffer_RHCE: Tensor, rows: int, length: int, room: int) -> Tensor:
    larger = _buffer_for(buffer_RHCE, rows, room)
    larger[:, :, :length] = buffer_RHCE[:rows, :, :length]
    return larger


def _rearranged(buffer_RHCE: Tensor, moves: Moves, rows: int, length: int) -> Tensor:
    if moves.num_rows > len(buffer_RHCE):  # a beam opens: one row becomes several
        larger = _buffer_for(buffer_RHCE, moves.num_rows, buffer_RHCE.shape[2])
        larger[:rows, :, :length] = buffer_RHCE[:rows, :, :length]
        buffer_RHCE = larger
    moves.apply(buffer_RHCE[:, :, :length])
    return buffer_RHCE


@dataclass
class LayerCache:
    """What one decoder layer keeps."""

    self_attention: KeyValueCache = field(default_factory=KeyValueCache)
    cross_attention: MemoryCache = field(default_factory=MemoryCache)


class DecoderCache:
    """What a whole decoder keeps between steps.

    Attributes:
        layers: one :class:`LayerCache` for each layer.
        key_mask_BK: bool, True for real tokens among the cached ones, or None while every token is real.
        length: number of positions fed so far, padding included.
        memories: the masks of an encoder-decoder's memories and which rows look at which; None without an encoder.
    """

    def __init__(self, num_layers: int) -> None:
        self.layers = [LayerCache() for _ in range(num_layers)]
        self.key_mask_BK: Tensor | None = None
        self.length = 0
        self.memories: SharedMemories | None = None

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

    def select(self, rows_M: Tensor) -> None:
        """Keep the given rows of the batch, in the given order, in every layer; a row may be taken several times.

        Rows that look at the same memory go on sharing its keys and values; memories that no row looks at any more
        leave. Cheapest where most rows keep their place.

        Args:
            rows_M: on the CPU, so that no step waits for an accelerator.
        """
        rows_M, device = rows_M.cpu(), self.device
        moves = moves_to(rows_M, device)
        if self.key_mask_BK is not None:
            self.key_mask_BK = self.key_mask_BK.index_select(0, rows_M.to(device))
        memory_moves = None if self.memories is None else self.memories.select(rows_M.numpy(), device)
        for layer in self.layers:
            layer.self_attention.rearrange(moves)
            if self.memories is not None:
                layer.cross_attention.rearrange(memory_moves, self.memories.shared)

    @property
    def device(self) -> torch.device | None:
        """Where the keys and values are; None while there are none."""
        return self.layers[0].self_attention.device if self.layers else None

    def truncate(self, length: int) -> None:
        """Forget all but the first ``length`` positions of every row."""
        self.length = min(self.length, length)
        if self.key_mask_BK is not None:
            self.key_mask_BK = self.key_mask_BK[:, :length]
        for layer in self.layers:
            layer.self_attention.truncate(length)
