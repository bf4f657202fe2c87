"""What searches are compared with: distributions over whole outputs, one token after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from transformer.decoding.config import SampleConfig

Table = Callable[[str], Sequence[float]]
Outputs = dict[tuple[tuple[int, ...], bool], float]
"""For tokens and whether the output is finished, how probable (or how frequent) it is."""


def _shares(table: Table, config: SampleConfig, tokens: tuple[int, ...]) -> list[float]:
    """The distribution of the next token by the definitions of the settings; zeros if everything is forbidden."""
    logits = [math.log(share) for share in table("".join("Eabcd"[token] for token in tokens))]
    for token in set(tokens):
        logits[token] *= config.repetition_penalty  # all are negative
    forbidden = {0} if len(tokens) < config.min_new_tokens else set()
    forbidden |= set(tokens) if config.no_repeat_ngram == 1 else set()
    weights = [0.0 if t in forbidden else math.exp(logit / config.temperature) for t, logit in enumerate(logits)]
    if config.top_k is not None:
        weights = [w if sum(v > w for v in weights) < config.top_k else 0.0 for w in weights]
    if config.top_p is not None:
        weights = [w if sum(v for v in weights if v > w) < config.top_p * sum(weights) else 0.0 for w in weights]
    if config.min_p is not None:
        weights = [w if w >= config.min_p * max(weights) else 0.0 for w in weights]
    if config.epsilon is not None:
        weights = [w if w >= config.epsilon * sum(weights) or w == max(weights) else 0.0 for w in weights]
    return [weight / (sum(weights) or 1.0) for weight in weights]


@pytest.fixture(scope="session")
def sampled_outputs() -> Callable[[Table, SampleConfig, int], Outputs]:
    """The probability of each output of at most so many tokens when sampled from a table; token 0 ends outputs."""

    def enumerate_all(table: Table, config: SampleConfig, limit: int) -> Outputs:
        outputs: Outputs = {}
        open_ones: dict[tuple[int, ...], float] = {(): 1.0}
        while open_ones:
            tokens, total = open_ones.popitem()
            shares = _shares(table, config, tokens)
            if not any(shares):
                outputs[tokens, False] = total
            for token, share in enumerate(shares):
                if share > 0 and token == 0:
                    outputs[tokens, True] = total * share
                elif share > 0 and len(tokens) + 1 == limit:
                    outputs[(*tokens, token), False] = total * share
                elif share > 0:
                    open_ones[(*tokens, token)] = total * share
        return outputs

    return enumerate_all


@pytest.fixture(scope="session")
def chance_of_counts() -> Callable[[Mapping[tuple[tuple[int, ...], bool], int], Outputs], float]:
    """The chance of counts at least as far from the probabilities, by a chi-square test; 0 for impossible outputs.

    Outputs that are expected less than five times count together.
    """

    def chance(counts: Mapping[tuple[tuple[int, ...], bool], int], probabilities: Outputs) -> float:
        import torch

        if not counts.keys() <= probabilities.keys():
            return 0.0
        total, rare_count, rare_mean = sum(counts.values()), 0, 0.0
        deviations = []
        for output, probability in probabilities.items():
            count, mean = counts.get(output, 0), total * probability
            if mean < 5:
                rare_count, rare_mean = rare_count + count, rare_mean + mean
            else:
                deviations.append((count - mean) ** 2 / mean)
        if rare_mean > 0:
            deviations.append((rare_count - rare_mean) ** 2 / rare_mean)
        halves = torch.tensor([(len(deviations) - 1) / 2, sum(deviations) / 2], dtype=torch.float64)
        return float(torch.special.gammaincc(halves[0], halves[1]))

    return chance
