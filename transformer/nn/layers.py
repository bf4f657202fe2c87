"""One layer of a Transformer: self-attention, optionally cross-attention, and a feed-forward, each in a residual."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from transformer.nn.attention import Backend
from transformer.nn.cache import LayerCache
from transformer.nn.config import StackConfig
from transformer.nn.dropout import Dropout
from transformer.nn.feedforward import FeedForward
from transformer.nn.multihead import CrossAttention, SelfAttention
from transformer.nn.norm import build_norm
from transformer.nn.positions import NO_SIGNALS, PositionSignals


class Residual(nn.Module):
    """The residual connection of one sublayer F, with dropout on F's output.

    Pre-Norm (the residual stays un-normalised): ``y = x + F(norm(x))``. Post-Norm: ``y = norm(x + F(x))``.
    """

    def __init__(self, norm: nn.Module, position: Literal["pre", "post"], dropout: float) -> None:
        super().__init__()
        self.norm, self.position, self.dropout = norm, position, Dropout(dropout)

    def forward(self, x_BLD: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.position == "pre":
            return x_BLD + self.dropout(sublayer(self.norm(x_BLD)))  # type: ignore[no-any-return]
        return self.norm(x_BLD + self.dropout(sublayer(x_BLD)))  # type: ignore[no-any-return]


class LayerOutput(NamedTuple):
    """A layer's output, and its attention weights where the explicit backend was asked for."""

    hidden_BLD: Tensor
    self_weights_BHLL: Tensor | None
    cross_weights_BHTS: Tensor | None


class TransformerLayer(nn.Module):
    """An encoder layer, a decoder-only layer (both without cross-attention), or an encoder-decoder's decoder layer."""

    def __init__(self, config: StackConfig, *, cross_attention: bool) -> None:
        super().__init__()
        self.self_attention = SelfAttention(
            config.d_model,
            config.num_heads,
            config.kv_heads,
            bias=config.bias,
            qk_norm=config.qk_norm,
            dropout=config.attention_dropout,
        )
        self.self_residual = _residual(config)
        self.cross_attention: CrossAttention | None = None
        if cross_attention:
            self.cross_attention = CrossAttention(
                config.d_model,
                config.num_heads,
                config.kv_heads,
                bias=config.bias,
                qk_norm=config.qk_norm,
                dropout=config.attention_dropout,
            )
            self.cross_residual = _residual(config)
        self.feed_forward = FeedForward(
            config.d_model, config.ff_width, config.activation, bias=config.bias, dropout=config.activation_dropout
        )
        self.feed_forward_residual = _residual(config)

    def forward(
        self,
        x_BLD: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        signals: PositionSignals = NO_SIGNALS,
        memory_BSD: Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: LayerCache | None = None,
        backend: Backend = "fused",
    ) -> LayerOutput:
        """One layer.

        Args:
            x_BLD: input (batch, length, d_model).
            mask, causal, signals: of self-attention.
            memory_BSD, memory_mask: the encoder's output and its (B, 1, 1, S) mask; needed with cross-attention.
            cache: this layer's keys and values; ``x_BLD`` then holds only the new positions.
            backend: ``"explicit"`` also returns the attention weights.
        """
        weights: list[Tensor | None] = [None, None]

        def attend_self(y_BLD: Tensor) -> Tensor:
            attended = self.self_attention(
                y_BLD,
                mask=mask,
                causal=causal,
                signals=signals,
                cache=None if cache is None else cache.self_attention,
                backend=backend,
            )
            weights[0] = attended.weights
            return attended.output  # type: ignore[no-any-return]

        def attend_memory(y_BLD: Tensor) -> Tensor:
            assert self.cross_attention is not None
            assert memory_BSD is not None
            attended = self.cross_attention(
                y_BLD,
                memory_BSD,
                mask=memory_mask,
                cache=None if cache is None else cache.cross_attention,
                backend=backend,
            )
            weights[1] = attended.weights
            return attended.output  # type: ignore[no-any-return]

        x_BLD = self.self_residual(x_BLD, attend_self)
        if self.cross_attention is not None:
            x_BLD = self.cross_residual(x_BLD, attend_memory)
        return LayerOutput(self.feed_forward_residual(x_BLD, self.feed_forward), weights[0], weights[1])


class LayerDrop(nn.Module):
    """Whether this step of training skips a layer, drawn anew for every layer (LayerDrop, Fan et al. 2020).

    Args:
        p: the chance; 0 draws nothing.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self) -> bool:
        # Drawn on the CPU, where no device has to be waited for.
        return self.training and self.p > 0 and float(torch.rand(())) < self.p


def _residual(config: StackConfig) -> Residual:
    norm = build_norm(config.norm, config.d_model, eps=config.norm_eps, bias=config.bias)
    return Residual(norm, config.norm_position, config.dropout)


def embedding_norm(config: StackConfig) -> nn.Module:
    """The norm of what enters the first layer, where it is asked for."""
    if not config.embedding_norm:
        return nn.Identity()
    return build_norm(config.norm, config.d_model, eps=config.norm_eps, bias=config.bias)


def final_norm(config: StackConfig) -> nn.Module:
    """The norm after the last layer: needed by Pre-Norm, whose residual stream is un-normalised; Post-Norm has none."""
    if config.norm_position == "post":
        return nn.Identity()
    return build_norm(config.norm, config.d_model, eps=config.norm_eps, bias=config.bias)
