"""Losses weighted by tokens."""

import math

import pytest
import torch

from transformer.metrics.running import TokenMean, bits_per_byte, bits_per_character, perplexity


def test_the_mean_is_over_tokens_not_over_batches() -> None:
    mean = TokenMean()
    mean.update(torch.tensor(4.0), torch.tensor(1))
    mean.update(torch.tensor(3.0), torch.tensor(3))
    assert mean.compute().item() == 1.75  # a mean of means is 2.5
    mean.reset()
    mean.update(torch.tensor(6.0), torch.tensor(4))
    assert mean.compute().item() == 1.5


def test_two_ranks_add_up() -> None:
    """torchmetrics adds the states of all ranks; each is a sum or a count."""
    ranks = [TokenMean(), TokenMean()]
    ranks[0].update(torch.tensor(4.0), torch.tensor(1))
    ranks[1].update(torch.tensor(3.0), torch.tensor(3))
    assert {name: reduce is torch.sum or reduce.__name__ for name, reduce in ranks[0]._reductions.items()} == {
        "total": "dim_zero_sum",
        "count": "dim_zero_sum",
    }
    total, count = (sum(getattr(rank, name) for rank in ranks) for name in ("total", "count"))
    assert (total / count).item() == 1.75


def test_many_small_losses_do_not_drown() -> None:
    mean = TokenMean()
    mean.update(torch.tensor(2.0**25), torch.tensor(1))
    for _ in range(1000):
        mean.update(torch.tensor(1.0), torch.tensor(0))
    assert mean.compute().item() == 2.0**25 + 1000  # in float32 it would still be 2^25


def test_perplexity() -> None:
    assert perplexity(0.0) == 1
    assert perplexity(math.log(7)) == pytest.approx(7)
    assert perplexity(1e6) == math.inf
    assert math.isnan(perplexity(math.nan))


def test_bits_per_byte() -> None:
    assert bits_per_byte(8 * math.log(2), 4) == pytest.approx(2)
    # A uniform choice among 256 bytes costs eight bits, whatever the tokens.
    assert bits_per_byte(10 * math.log(256), 10) == pytest.approx(8)


def test_bits_per_character() -> None:
    nll = 12 * math.log(2)
    text = "äöü"  # six bytes
    assert bits_per_character(nll, len(text)) == pytest.approx(4)
    assert bits_per_byte(nll, len(text.encode())) == pytest.approx(2)
