"""Dropout that draws its random bits many at a time."""

import math

import numpy as np
import pytest
import torch

from transformer.nn.dropout import Dropout, random_levels


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
def test_rate_is_within_binomial_bounds_and_the_mean_is_kept(p):
    torch.manual_seed(0)
    count = 400_000
    dropped = Dropout(p)(torch.ones(4, 1000, 100))
    zeros = (dropped == 0).sum().item()
    assert abs(zeros - p * count) < 4.5 * math.sqrt(p * (1 - p) * count)
    kept = dropped[dropped != 0].unique()
    assert kept.numel() == 1
    assert kept.item() == pytest.approx(1 / (1 - p), rel=2e-4)  # p is rounded to 16 bits
    assert abs(dropped.double().mean().item() - 1) < 4.5 * math.sqrt(p / (1 - p) / count)


def test_the_scale_follows_the_rounded_rate():
    module = Dropout(0.3)
    assert module.dropped_levels == 19661  # 0.3 * 65536 = 19660.8
    kept = module(torch.ones(1000, dtype=torch.float64)).max().item()
    assert kept * (65536 - 19661) / 65536 == pytest.approx(1, abs=1e-15)


def test_exactly_the_rounded_share_of_the_levels_is_dropped(monkeypatch):
    every_level = np.arange(65536, dtype=np.uint16)
    monkeypatch.setattr("transformer.nn.dropout.random_levels", lambda shape: every_level)
    assert (Dropout(0.3)(torch.ones(65536)) == 0).sum().item() == 19661


def test_neighbours_are_independent():
    """Four elements share one 64-bit draw, yet pairs and quadruples drop at the product of the rates."""
    torch.manual_seed(0)
    zero = Dropout(0.5)(torch.ones(100_000, 4)) == 0
    for first in range(4):
        for second in range(first):
            both = (zero[:, first] & zero[:, second]).double().mean().item()
            assert abs(both - 0.25) < 4.5 * math.sqrt(0.25 * 0.75 / 100_000)
    assert abs(zero.all(1).double().mean().item() - 1 / 16) < 4.5 * math.sqrt(15 / 256 / 100_000)


def test_random_levels_are_uniform_and_of_any_shape():
    torch.manual_seed(0)
    levels = random_levels(torch.Size([33, 1001])).astype(np.float64)
    assert levels.shape == (33, 1001)
    assert (levels.min(), levels.max()) == (pytest.approx(0, abs=40), pytest.approx(65535, abs=40))
    # Mean 32767.5 and variance (2^32 - 1) / 12 of a uniform 16-bit integer.
    assert abs(levels.mean() - 32767.5) < 4.5 * 65536 / math.sqrt(12 * levels.size)
    assert levels.var() == pytest.approx(65536**2 / 12, rel=0.02)
    assert random_levels(torch.Size([0, 3])).shape == (0, 3)
    assert random_levels(torch.Size([5])).shape == (5,)


def test_evaluation_and_probability_zero_return_the_input_itself():
    x = torch.randn(3, 5)
    assert Dropout(0.0)(x) is x
    assert Dropout(0.9).eval()(x) is x


def test_the_same_seed_gives_the_same_elements_and_another_seed_others():
    module, x = Dropout(0.5), torch.ones(64)
    torch.manual_seed(7)
    first, second = module(x), module(x)
    torch.manual_seed(7)
    assert torch.equal(module(x), first)
    assert torch.equal(module(x), second)
    assert not torch.equal(first, second)
    torch.manual_seed(8)
    assert not torch.equal(module(x), first)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_gradient_passes_through_the_same_elements(dtype):
    torch.manual_seed(0)
    x = torch.ones(9, 7, dtype=dtype, requires_grad=True)
    dropped = Dropout(0.4)(x)
    assert dropped.dtype == dtype
    dropped.sum().backward()
    assert torch.equal(x.grad, dropped)  # both are the mask times the scale
    assert 0 < (dropped == 0).sum() < 63


def test_a_transposed_input_is_dropped_element_by_element():
    x = torch.randn(6, 4).T  # not contiguous
    torch.manual_seed(0)
    dropped = Dropout(0.5)(x)
    kept = dropped != 0
    assert torch.equal(dropped[kept], x[kept] * 2)


@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, math.nan])
def test_probabilities_outside_the_range_are_refused(p):
    with pytest.raises(ValueError, match=rf"at least 0 and under 1, but is {p}"):
        Dropout(p)


def test_a_probability_just_under_one_still_keeps_something_in_the_mean():
    module = Dropout(0.9999999)
    assert module.dropped_levels == 65535
    assert repr(module) == "Dropout(p=0.9999999)"
