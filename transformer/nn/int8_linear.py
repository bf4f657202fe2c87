"""A linear layer in 8-bit integers, for inference on a CPU."""

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Int8Linear(nn.Module):
    """``y = x W^T + b`` with integers inside, of a quarter of the memory of float32.

    Each output's weights are stored as integers from -127 to 127 times one scale (symmetric, per channel). Each row of
    the input is rounded to integers with a scale of its own, from its greatest magnitude, when it comes (dynamic, per
    token; "vector-wise" in Dettmers et al. 2022), so a row's result does not depend on the other rows. The product of
    integers is exact; of a row with greatest magnitude A and weights whose greatest magnitude is C, the rounding moves
    a result by at most ``C |x|_1 / 254 + A |w|_1 / (2 levels) + K A C / (508 levels)`` for K inputs.

    A row with an infinite or undefined input has no defined result (NaN or infinite). The layer cannot be trained.

    Args:
        weight_NK: integers (outputs, inputs), int8.
        scale_N: what an integer is worth, for each output.
        bias_N: float32, or None.
        levels: inputs are rounded to integers from ``-levels`` to ``levels``; see :func:`input_levels`.
    """

    weight_NK: Tensor
    scale_N: Tensor
    bias_N: Tensor
    offset_N: Tensor
    smallest: Tensor

    def __init__(self, weight_NK: Tensor, scale_N: Tensor, bias_N: Tensor | None, levels: int) -> None:
        super().__init__()
        self.out_features, self.in_features = weight_NK.shape
        self.levels = levels
        self.register_buffer("weight_NK", weight_NK)
        self.register_buffer("scale_N", scale_N)
        self.register_buffer("bias_N", torch.zeros_like(scale_N) if bias_N is None else bias_N)
        # Kernels multiply unsigned inputs with signed weights: inputs are shifted up, and the results down again.
        self.register_buffer("offset_N", -(levels + 1) * weight_NK.sum(1) * scale_N)
        self.register_buffer("smallest", torch.tensor(torch.finfo(torch.float32).tiny))

    @classmethod
    def from_linear(cls, linear: nn.Linear, levels: int) -> Self:
        """The layer that computes about the same as ``linear``, which is left as it is."""
        weight_NK = linear.weight.detach().float()
        scale_N = (weight_NK.abs().amax(1) / 127).clamp_min(torch.finfo(torch.float32).tiny)
        bias = None if linear.bias is None else linear.bias.detach().float().clone()
        return cls((weight_NK / scale_N[:, None]).round().to(torch.int8), scale_N, bias, levels)

    @property
    def weight(self) -> Tensor:
        """The weights that the integers stand for, in float32 (outputs, inputs), made anew at each call."""
        return self.weight_NK.float() * self.scale_N[:, None]

    def forward(self, x: Tensor) -> Tensor:
        """Outputs (..., out_features) in float32 for inputs (..., in_features) in float32."""
        if x.requires_grad and torch.is_grad_enabled():
            raise ValueError("a model in int8 cannot be trained: there is no gradient through its integers.")
        x_MK = x.reshape(-1, self.in_features)
        # The smallest float instead of 0 keeps a row of zeros finite; it changes no other row.
        step_M1 = torch.add(self.smallest, x_MK.abs().amax(1, keepdim=True), alpha=1 / self.levels)
        integers_MK = (x_MK / step_M1).round_().to(torch.int8)
        # Wraps around to 1 .. 2 levels + 1 as unsigned numbers; shifting bytes in place touches less memory than
        # shifting floats.
        unsigned_MK = integers_MK.add_(self.levels + 1 if self.levels < 127 else -128).view(torch.uint8)
        sums_MN = torch._int_mm(unsigned_MK, self.weight_NK.t())
        y_MN = sums_MN.view(torch.float32).copy_(sums_MN)  # in place: memory is what large outputs wait for
        torch.addcmul(self.offset_N, y_MN, self.scale_N, out=y_MN)
        torch.addcmul(self.bias_N, y_MN, step_M1, out=y_MN)
        return y_MN.view(*x.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}"


def select_outputs(layer: nn.Module, outputs_C: Tensor) -> nn.Module:
    """A linear layer, in whatever precision, that computes only some outputs of ``layer``.

    Args:
        layer: an :class:`Int8Linear` or ``nn.Linear``, or a subclass of the latter, whose class is kept.
        outputs_C: their numbers.
    """
    if isinstance(layer, Int8Linear):
        bias_C = layer.bias_N[outputs_C]
        return Int8Linear(layer.weight_NK[outputs_C], layer.scale_N[outputs_C], bias_C, layer.levels).eval()
    assert isinstance(layer, nn.Linear)
    weight_CK = layer.weight.detach()[outputs_C]
    with torch.device("meta"):  # no memory for weights that are replaced at once
        selected = type(layer)(layer.in_features, len(outputs_C), bias=layer.bias is not None)
    selected.weight = nn.Parameter(weight_CK, requires_grad=False)
    if layer.bias is not None:
        selected.bias = nn.Parameter(layer.bias.detach()[outputs_C], requires_grad=False)
    return selected.eval()


def input_levels() -> int | None:
    """How finely this processor's 8-bit products let inputs be rounded: 127 or 63 levels; None if it has none.

    Processors without the VNNI instructions add pairs of products in 16 bits, where those of full range overflow
    without a sign of it. Found by trying, as it depends on the processor and on torch's libraries.
    """
    for levels in (127, 63):
        greatest = torch.full((32, 256), 2 * levels + 1, dtype=torch.uint8)
        weight_NK = torch.full((64, 256), 127, dtype=torch.int8)
        weight_NK[1::2] = -127
        expected_MN = (greatest.double() @ weight_NK.double().t()).to(torch.int32)
        try:
            exact = all(
                torch.equal(torch._int_mm(greatest[:rows], weight_NK.t()), expected_MN[:rows]) for rows in (1, 5, 32)
            )
        except (AttributeError, RuntimeError):  # this torch has no such function, or not for these types
            return None
        if exact:
            return levels
    return None


def float_logits(logits: Tensor) -> Tensor:
    """Logits in float32 at least: sums over a vocabulary do not survive 16 bits."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


class FloatOutput(nn.Linear):
    """A linear layer in 16 bits whose results come as float32, for the softmax over a vocabulary."""

    def forward(self, x: Tensor) -> Tensor:
        return float_logits(F.linear(x, self.weight, self.bias))
