"""Losses weighted by tokens, over batches and ranks."""

import math

import torch
from torch import Tensor
from torchmetrics import Metric


class TokenMean(Metric):
    """A sum over tokens divided, once, by their number; summed over all ranks first."""

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        # Apple's GPUs have no float64.
        precision = torch.float32 if torch.backends.mps.is_available() else torch.float64
        self.add_state("total", torch.zeros((), dtype=precision), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, total: Tensor, count: Tensor) -> None:
        """Add a batch's sum over tokens and its number of tokens."""
        self.total += total.to(self.total.dtype)
        self.count += count

    def compute(self) -> Tensor:
        """The mean per token."""
        return self.total / self.count


def perplexity(nll_per_token: float) -> float:
    """``exp`` of the mean negative log-likelihood in nats; infinity where that overflows."""
    try:
        return math.exp(nll_per_token)
    except OverflowError:
        return math.inf


def bits_per_byte(nll_sum: float, num_bytes: int) -> float:
    """Negative log-likelihood of a whole text, in bits, per byte of UTF-8; comparable between tokenizers."""
    return nll_sum / (num_bytes * math.log(2))


def bits_per_character(nll_sum: float, num_characters: int) -> float:
    """Negative log-likelihood of a whole text, in bits, per Unicode character; comparable between tokenizers."""
    return nll_sum / (num_characters * math.log(2))
