"""Normalisation over the features of each position, never over the batch."""

from typing import assert_never

import torch
from torch import Tensor, nn

from transformer.nn.config import NormName


class HeadNorm(nn.RMSNorm):
    """RMSNorm of queries or keys over their head size, in at least float32 whatever precision they come in."""

    def __init__(self, head_size: int) -> None:
        super().__init__(head_size, eps=1e-6)

    def forward(self, x_BHLE: Tensor) -> Tensor:
        precision = torch.promote_types(x_BHLE.dtype, torch.float32)
        return super().forward(x_BHLE.to(precision)).to(x_BHLE.dtype)


def build_norm(name: NormName, width: int, *, eps: float, bias: bool) -> nn.Module:
    """LayerNorm (Ba et al. 2016) or RMSNorm (Zhang & Sennrich 2019), torch's own: epsilon is inside the root."""
    match name:
        case "layer_norm":
            return nn.LayerNorm(width, eps=eps, bias=bias)
        case "rms_norm":
            return nn.RMSNorm(width, eps=eps)
        case _:
            assert_never(name)
