"""Sampling: temperature, top-k (Fan et al. 2018) and top-p (Holtzman et al. 2020)."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from transformer.decoding.config import SampleConfig
from transformer.decoding.greedy import step_by_step
from transformer.decoding.interface import Hypothesis, StepModel


def sample_search(
    model: StepModel, config: SampleConfig, *, eos_id: int, limits: Sequence[int], lines: Sequence[int]
) -> list[Hypothesis]:
    """One random continuation for each example.

    The draws of an example depend on ``config.seed`` and its line number only, so it gets the same sample in any batch.
    ``log_probability`` is of the model's own distribution, before temperature and cuts.
    """
    generators = [np.random.default_rng((config.seed, line)) for line in lines]

    def choose(logits_MV: Tensor, examples: Sequence[int]) -> Tensor:
        draws_M = torch.tensor([generators[example].random() for example in examples], dtype=torch.float64)
        return draw(probabilities(logits_MV.cpu(), config), draws_M).to(logits_MV.device)

    return step_by_step(model, choose, eos_id=eos_id, limits=limits)


def probabilities(logits_MV: Tensor, config: SampleConfig) -> Tensor:
    """The distribution (M, V) to draw from, float64; temperature first, then top-k, then top-p.

    Logits are shifted to a maximum of 0 before the division, so that no temperature overflows; the most probable token
    always stays.
    """
    logits_MV = logits_MV.double()
    shifted_MV = logits_MV - logits_MV.amax(-1, keepdim=True)
    if config.temperature == 0:
        return torch.nn.functional.one_hot(shifted_MV.argmax(-1), shifted_MV.shape[-1]).double()
    shifted_MV = shifted_MV / config.temperature
    if config.top_k is not None and config.top_k < shifted_MV.shape[-1]:
        kept = shifted_MV.topk(config.top_k, dim=-1).indices
        shifted_MV = torch.full_like(shifted_MV, -torch.inf).scatter(-1, kept, shifted_MV.gather(-1, kept))
    probability_MV = shifted_MV.softmax(-1)
    if config.top_p is not None:
        sorted_MV, order_MV = probability_MV.sort(-1, descending=True)
        before_MV = sorted_MV.cumsum(-1) - sorted_MV  # probability of all more probable tokens
        sorted_MV = sorted_MV.masked_fill(before_MV >= config.top_p, 0.0)
        probability_MV = torch.zeros_like(probability_MV).scatter(-1, order_MV, sorted_MV)
        probability_MV = probability_MV / probability_MV.sum(-1, keepdim=True)
    return probability_MV


def draw(probability_MV: Tensor, draws_M: Tensor) -> Tensor:
    """Invert the cumulative distribution at uniform draws from [0, 1)."""
    cumulative_MV = probability_MV.cumsum(-1)
    cumulative_MV = cumulative_MV / cumulative_MV[:, -1:]
    return torch.searchsorted(cumulative_MV, draws_M[:, None], right=True)[:, 0].clamp_max(probability_MV.shape[-1] - 1)
