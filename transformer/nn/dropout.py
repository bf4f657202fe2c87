"""Dropout (Srivastava et al. 2014) that draws its random bits many at a time on the CPU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 1 << 16


class Dropout(nn.Module):
    """Zero each element with probability ``p`` during training and scale the rest so that the mean is kept.

    On the CPU torch draws one random number per element, which costs more than the matrix products around it. Here
    each 64-bit draw decides four elements with 16 bits each: ``p`` is rounded to a multiple of 1/65536 and the scale
    follows the rounded value, so the expectation is exact. Elsewhere torch's own kernel runs.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ValueError(f"the dropout probability must be at least 0 and under 1, but is {p}.")
        self.p = p
        self.dropped_levels = min(round(p * LEVELS), LEVELS - 1)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.p)
        keep = random_levels(x.shape) >= self.dropped_levels - LEVELS // 2
        return x * keep.to(x.dtype).mul_(LEVELS / (LEVELS - self.dropped_levels))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def random_levels(shape: torch.Size) -> Tensor:
    """Independent uniform 16-bit integers on the CPU, from torch's global generator."""
    count = shape.numel()
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    return words.view(torch.int16)[:count].view(shape)
