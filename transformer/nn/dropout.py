"""Dropout (Srivastava et al. 2014) that draws its random bits many at a time on the CPU."""

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LEVELS = 1 << 16


class Dropout(nn.Module):
    """Zero each element with probability ``p`` during training and scale the rest so that the mean is kept.

    On the CPU torch draws one random number per element, which costs more than the matrix products around it. Here
    each 64-bit draw decides four elements with 16 bits each: ``p`` is rounded to a multiple of 1/65536 and the scale
    follows the rounded value, so the expectation is exact but for the rounding of the scale. Elsewhere torch's own
    kernel runs.
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
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        # By numpy, and by way of bytes: `scripts/benchmark.py dropout` compares the whole with torch's own.
        keep = random_levels(x.shape) >= self.dropped_levels
        mask = torch.from_numpy(keep.view(np.uint8)).to(x.dtype)
        return x * mask.mul_(LEVELS / (LEVELS - self.dropped_levels))

    def extra_repr(self) -> str:
        return f"p={self.p}"


def random_levels(shape: torch.Size) -> npt.NDArray[np.uint16]:
    """Independent uniform 16-bit integers, by numpy's SFC64 with a seed from torch's global generator.

    One word of 64 bits makes four of them.
    """
    count = shape.numel()
    seed = int(torch.empty((), dtype=torch.int64).random_())
    words = np.random.SFC64(seed).random_raw((count + 3) // 4)
    return words.view(np.uint16)[:count].reshape(shape)
