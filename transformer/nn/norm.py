"""Normalisation over the features of each position, never over the batch."""

from typing import assert_never

from torch import nn

from transformer.nn.config import NormName


def build_norm(name: NormName, width: int, *, eps: float, bias: bool) -> nn.Module:
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang & Sennrich 2019), torch's own: epsilon is inside the root."""
    match name:
        case "layer_norm":
            return nn.LayerNorm(width, eps=eps, bias=bias)
        case "rms_norm":
            return nn.RMSNorm(width, eps=eps)
        case _:
            assert_never(name)
