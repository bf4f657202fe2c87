"""Sampling from a distribution that is made sharper or cut.

Temperature, top-k (Fan et al. 2018), top-p (Holtzman et al. 2020), min-p (Nguyen et al. 2024), and epsilon (Hewitt et
al. 2022, "Truncation sampling as language model desmoothing").
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from transformer.decoding.config import SampleConfig
from transformer.decoding.greedy import step_by_step
from transformer.decoding.interface import Hypothesis, StepModel
from transformer.decoding.rules import Rules


def sample_search(
    model: StepModel, config: SampleConfig, rules: Rules, *, num_samples: int = 1
) -> list[list[Hypothesis]]:
    """Random outputs of each example, independent of each other.

    The draws of an output depend on ``config.seed``, its example's line number and its own number only, so it is the
    same in any batch. ``log_probability`` is of the model's own distribution, before temperature and cuts.
    """
    generators = [
        new_generator(config.seed, request.line, number) for request in rules.requests for number in range(num_samples)
    ]

    def choose(logits_MV: Tensor, outputs: Sequence[int]) -> Tensor:
        draws_M = torch.tensor([generators[output].random() for output in outputs], dtype=torch.float64)
        return draw(probabilities(logits_MV.cpu(), config), draws_M)

    hypotheses = step_by_step(model, choose, rules, copies=num_samples)
    return [hypotheses[start : start + num_samples] for start in range(0, len(hypotheses), num_samples)]


def new_generator(seed: int, line: int, number: int) -> np.random.Generator:
    """Of the draws of one output: its number among those of its line counts from 0."""
    return np.random.default_rng((seed, line, number) if number else (seed, line))


def probabilities(logits_MV: Tensor, config: SampleConfig) -> Tensor:
    """The distribution (M, V) to draw from, float64: temperature first, then top-k, top-p, min-p and epsilon in turn.

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
    if config.min_p is not None:
        probability_MV = _at_least(probability_MV, config.min_p * probability_MV.amax(-1, keepdim=True))
    if config.epsilon is not None:
        probability_MV = _at_least(probability_MV, torch.full_like(probability_MV[:, :1], config.epsilon))
    return probability_MV


def _at_least(probability_MV: Tensor, least_M1: Tensor) -> Tensor:
    """Without tokens less probable than that, but for the most probable one."""
    kept_MV = (probability_MV >= least_M1) | (probability_MV == probability_MV.amax(-1, keepdim=True))
    probability_MV = probability_MV.masked_fill(~kept_MV, 0.0)
    return probability_MV / probability_MV.sum(-1, keepdim=True)


def draw(probability_MV: Tensor, draws_M: Tensor) -> Tensor:
    """Invert the cumulative distribution at uniform draws from [0, 1)."""
    cumulative_MV = probability_MV.cumsum(-1)
    cumulative_MV = cumulative_MV / cumulative_MV[:, -1:]
    return torch.searchsorted(cumulative_MV, draws_M[:, None], right=True)[:, 0].clamp_max(probability_MV.shape[-1] - 1)
