"""Position encodings behind one interface.

Absolute encodings (sinusoidal, learned) change the embeddings once; relative ones (rotary, ALiBi) act inside every
attention. A new encoding is a class here, an arm in :func:`build_position_encoding` and a name in ``nn/config.py``.
"""

from abc import ABC, abstractmethod
from typing import Any, NamedTuple, assert_never

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.nn.cache import DecoderCache
from transformer.nn.config import PositionName
from transformer.nn.masks import check_real, check_segments


class Rotation(NamedTuple):
    """Cosines and sines of rotary angles, each (batch or 1, 1, length, head size / 2)."""

    cos: Tensor
    sin: Tensor


class PositionSignals(NamedTuple):
    """What attention layers need to know of positions: computed once a forward pass, shared by all layers."""

    rotation: Rotation | None = None
    bias_BHQK: Tensor | None = None


NO_SIGNALS = PositionSignals()


class PositionEncoding(nn.Module, ABC):
    """Tells the model where each token stands. Positions are integers from 0, shape (batch or 1, length)."""

    @abstractmethod
    def embed(self, x_BLD: Tensor, positions_BL: Tensor) -> Tensor:
        """Add absolute positions to scaled embeddings."""

    @abstractmethod
    def signals(self, query_positions_BQ: Tensor, key_positions_BK: Tensor) -> PositionSignals:
        """What self-attention uses; keys of a cache count as keys, so there may be more keys than queries."""


class NoPosition(PositionEncoding):
    """No positions at all: an unmasked model then treats its input as a set."""

    def embed(self, x_BLD: Tensor, positions_BL: Tensor) -> Tensor:
        return x_BLD

    def signals(self, query_positions_BQ: Tensor, key_positions_BK: Tensor) -> PositionSignals:
        return NO_SIGNALS


class SinusoidalPosition(NoPosition):
    """``P[t, 2i] = sin(t / 10000^(2i/d))``, ``P[t, 2i+1] = cos(t / 10000^(2i/d))`` (Vaswani et al. 2017, 3.5).

    An odd width works: its last column is a sine. The table is a buffer that is not saved.
    """

    table_LD: Tensor

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        columns = torch.arange(0, d_model, 2, dtype=torch.float64)
        angles = torch.arange(max_length, dtype=torch.float64)[:, None] / 10000.0 ** (columns / d_model)
        table = torch.empty(max_length, d_model, dtype=torch.float64)
        table[:, 0::2] = angles.sin()
        table[:, 1::2] = angles.cos()[:, : d_model // 2]
        self.register_buffer("table_LD", table.to(torch.get_default_dtype()), persistent=False)

    def embed(self, x_BLD: Tensor, positions_BL: Tensor) -> Tensor:
        return x_BLD + self.table_LD[positions_BL].to(x_BLD.dtype)


class LearnedPosition(NoPosition):
    """A trained vector for each position (Gehring et al. 2017; GPT-2)."""

    def __init__(self, max_length: int, d_model: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(max_length, d_model)

    def embed(self, x_BLD: Tensor, positions_BL: Tensor) -> Tensor:
        return x_BLD + self.embedding(positions_BL)  # type: ignore[no-any-return]


class RotaryPosition(NoPosition):
    """Rotate each query and key by angles proportional to its position (Su et al. 2021).

    Pairs are (i, i + E/2), as in Llama; the head size E must be even.
    """

    cos_LE: Tensor
    sin_LE: Tensor

    def __init__(self, max_length: int, head_size: int, base: float) -> None:
        super().__init__()
        frequencies = base ** (-torch.arange(0, head_size, 2, dtype=torch.float64) / head_size)
        angles = torch.arange(max_length, dtype=torch.float64)[:, None] * frequencies
        self.register_buffer("cos_LE", angles.cos().to(torch.get_default_dtype()), persistent=False)
        self.register_buffer("sin_LE", angles.sin().to(torch.get_default_dtype()), persistent=False)

    def signals(self, query_positions_BQ: Tensor, key_positions_BK: Tensor) -> PositionSignals:
        cos, sin = self.cos_LE[query_positions_BQ], self.sin_LE[query_positions_BQ]
        return PositionSignals(rotation=Rotation(cos[:, None], sin[:, None]))


class AlibiPosition(NoPosition):
    """Subtract ``slope * distance`` from the scores, a slope for each head (Press et al. 2022).

    Slopes are ``2^(-8 (h+1) / H)`` for H heads, as the paper gives for powers of two.
    """

    slopes_H: Tensor

    def __init__(self, num_heads: int) -> None:
        super().__init__()
        exponents = torch.arange(1, num_heads + 1, dtype=torch.float64) * (8.0 / num_heads)
        self.register_buffer("slopes_H", (2.0**-exponents).to(torch.get_default_dtype()), persistent=False)

    def signals(self, query_positions_BQ: Tensor, key_positions_BK: Tensor) -> PositionSignals:
        distance_BQK = (query_positions_BQ[:, :, None] - key_positions_BK[:, None, :]).abs()
        return PositionSignals(bias_BHQK=-self.slopes_H[None, :, None, None] * distance_BQK[:, None])


def rotate(x_BHLE: Tensor, rotation: Rotation) -> Tensor:
    """Apply rotary angles to the heads of queries or keys."""
    if torch.compiler.is_compiling():  # a compiler writes into place by itself, and stops at what the class below does
        precise = x_BHLE.to(torch.promote_types(x_BHLE.dtype, rotation.cos.dtype))
        first, second = precise.chunk(2, dim=-1)
        cos, sin = rotation
        return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(x_BHLE.dtype)
    return _Rotate.apply(x_BHLE, rotation.cos, rotation.sin)  # type: ignore[no-untyped-call, no-any-return]


class _Rotate(torch.autograd.Function):
    """Writes both halves into their place; the gradient is rotated back by the same angles."""

    @staticmethod
    def forward(ctx: Any, x_BHLE: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        precise = x_BHLE.to(torch.promote_types(x_BHLE.dtype, cos.dtype))  # angles do not survive 16 bits
        rotated = torch.empty_like(precise)
        (first, second), (new_first, new_second) = precise.chunk(2, dim=-1), rotated.chunk(2, dim=-1)
        torch.mul(first, cos, out=new_first).addcmul_(second, sin, value=-1)
        torch.mul(second, cos, out=new_second).addcmul_(first, sin)
        return rotated.to(x_BHLE.dtype)

    @staticmethod
    def backward(ctx: Any, grad_BHLE: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _Rotate.apply(grad_BHLE, cos, -sin), None, None  # type: ignore[no-untyped-call]


def positions_of(real_BL: Tensor) -> Tensor:
    """Position of each token among the real ones of its row, so that left padding does not shift it.

    Padding gets the position of the real token before it (0 at the start); it is masked anyway.
    """
    return (real_BL.long().cumsum(1) - 1).clamp_min(0)


def positions_in_segments(segments_BL: Tensor) -> Tensor:
    """Position of each token in its segment: from 0 again wherever the number changes. Padding (0) stands at 0."""
    places_L = torch.arange(segments_BL.shape[1], device=segments_BL.device)
    same_BL = segments_BL == F.pad(segments_BL[:, :-1], (1, 0), value=-1)  # as the token before
    first_BL = places_L.masked_fill(same_BL, 0).cummax(1).values
    return (places_L - first_BL).masked_fill(segments_BL == 0, 0)


def place_segments(
    tokens_BL: Tensor, segments_BL: Tensor, mask_BL: Tensor | None, cache: DecoderCache | None, max_length: int
) -> Tensor:
    """Positions of the tokens of packed rows, each within its segment.

    Args:
        tokens_BL: the ids.
        segments_BL: int of the same shape: 0 for padding, else the number of the example in its row, from 1 upwards.
        mask_BL, cache: None; named here to be refused.
        max_length: of the model. It limits each segment, so a row of several may be longer.

    Raises:
        ValueError: for a mask or a cache, segments that do not fit, or one of more than ``max_length`` tokens.
    """
    if mask_BL is not None or cache is not None:
        raise ValueError(
            "segments exclude a mask and a cache: padding is segment 0, and packed rows are not continued."
        )
    check_segments(segments_BL, tokens_BL.shape)
    positions_BL = positions_in_segments(segments_BL)
    if segments_BL.shape[1] > max_length:
        longest = int(positions_BL.max()) + 1
        if longest > max_length:
            row, place = (positions_BL == longest - 1).nonzero()[0].tolist()
            raise ValueError(
                f"segment {int(segments_BL[row, place])} of row {row} has {longest} tokens, but `max_length` is "
                f"{max_length}."
            )
    return positions_BL


class Placement(NamedTuple):
    """Where new tokens stand: positions of the new ones and of all, and which of all are real (None: every one)."""

    query_positions_BQ: Tensor
    key_positions_BK: Tensor
    key_mask_BK: Tensor | None


def place_tokens(tokens_BL: Tensor, mask_BL: Tensor | None, cache: DecoderCache | None, max_length: int) -> Placement:
    """Positions of new tokens behind those of a cache, which is told of them.

    Padding takes no position, so what a row may still add depends on that row alone.

    Args:
        tokens_BL: the new ids.
        mask_BL: bool of the same shape, True for real tokens; None if all are.
        cache: what came before, or None.
        max_length: of the model.

    Raises:
        ValueError: for a mask of another shape or more than ``max_length`` real tokens; the cache is unchanged then.
    """
    check_real(mask_BL, tokens_BL)
    earlier, length = 0 if cache is None else cache.length, tokens_BL.shape[-1]
    key_mask_BK = mask_BL if cache is None else cache.mask_with(mask_BL, tokens_BL)
    check_length(earlier + length if key_mask_BK is None else int(key_mask_BK.sum(1).max()), max_length)
    if cache is not None:
        cache.advance(key_mask_BK, length)
    if key_mask_BK is None:
        keys = torch.arange(earlier + length, device=tokens_BL.device)[None]
    else:
        keys = positions_of(key_mask_BK)
    return Placement(keys[:, earlier:], keys, key_mask_BK)


def check_length(length: int, max_length: int) -> None:
    """Refuse a sequence longer than the model's positions, before any device work."""
    if length > max_length:
        raise ValueError(f"the sequence has {length} tokens, but `max_length` is {max_length}.")


def build_position_encoding(
    name: PositionName, *, max_length: int, d_model: int, num_heads: int, rotary_base: float
) -> PositionEncoding:
    """The encoding with the given name."""
    match name:
        case "sinusoidal":
            return SinusoidalPosition(max_length, d_model)
        case "learned":
            return LearnedPosition(max_length, d_model)
        case "rotary":
            return RotaryPosition(max_length, d_model // num_heads, rotary_base)
        case "alibi":
            return AlibiPosition(num_heads)
        case "none":
            return NoPosition()
        case _:
            assert_never(name)
