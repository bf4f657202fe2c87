"""Normalisation over the features of each position, never over the batch."""

from typing import Any, assert_never

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from transformer.nn.config import NormName


class RmsNorm(nn.RMSNorm):
    """RMSNorm (Zhang & Sennrich 2019), ``x / sqrt(mean(x^2) + eps) * gain``.

    Computed in at least float32, it comes back in the precision that it had. On a GPU torch has one kernel for it. On
    the CPU torch composes it of many passes over the data, forward and backward, where fewer do.
    """

    eps: float

    def forward(self, x: Tensor) -> Tensor:
        precise = x.to(torch.promote_types(x.dtype, torch.float32))
        gain = self.weight.to(precise.dtype)  # in a model converted to bfloat16 they differ
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.rms_norm(precise, self.normalized_shape, gain, self.eps).to(x.dtype)
        return _RmsNorm.apply(precise, gain, self.eps).to(x.dtype)  # type: ignore[no-untyped-call, no-any-return]


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = (norm.square() / x.shape[-1] + eps).rsqrt()
        normal: Tensor = x * inverse
        ctx.save_for_backward(normal, inverse, gain)
        return normal * gain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        normal, inverse, gain = ctx.saved_tensors
        product = grad * normal
        mean = (product @ gain.to(product.dtype) / grad.shape[-1])[..., None]
        grad_x = torch.addcmul(grad * gain, normal, mean, value=-1).mul_(inverse)
        return grad_x, product.flatten(0, -2).sum(0).to(gain.dtype), None


class HeadNorm(RmsNorm):
    """RMSNorm of queries or keys over their head size."""

    def __init__(self, head_size: int) -> None:
        super().__init__(head_size, eps=1e-6)


def build_norm(name: NormName, width: int, *, eps: float, bias: bool) -> nn.Module:
    """LayerNorm (Ba et al. 2016) or RMSNorm: epsilon is inside the root."""
    match name:
        case "layer_norm":
            return nn.LayerNorm(width, eps=eps, bias=bias)
        case "rms_norm":
            return RmsNorm(width, eps=eps)
        case _:
            assert_never(name)
