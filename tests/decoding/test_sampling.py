"""Sampling: the distribution drawn from, and that draws follow it and nothing else."""

import math

import numpy as np
import pytest
import torch

from transformer.decoding.config import SampleConfig
from transformer.decoding.greedy import greedy_search
from transformer.decoding.sampling import draw, probabilities, sample_search

LOGITS = [2.0, 1.0, 0.0]
LARGEST_CHI_SQUARE = {4: 33.4, 24: 75.0}  # by degrees of freedom; exceeded with a chance of 1e-6


def _config(**settings):
    return SampleConfig(name="sample", **settings)


def _probabilities(logits, **settings):
    return probabilities(torch.tensor([logits]), _config(**settings))[0].tolist()


def _chi_square(counts, expected):
    assert sum(counts) == pytest.approx(sum(expected), rel=1e-9)
    assert all(count == 0 for count, mean in zip(counts, expected, strict=True) if mean == 0)
    return sum((count - mean) ** 2 / mean for count, mean in zip(counts, expected, strict=True) if mean > 0)


def _softmax(logits, temperature=1.0):
    weights = [math.exp(logit / temperature) for logit in logits]
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("temperature", [0.25, 1.0, 3.0])
def test_temperature_divides_the_logits(temperature):
    expected = _softmax(LOGITS, temperature)
    assert _probabilities(LOGITS, temperature=temperature) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("temperature", [1e-4, 1e-6, 1e-300, 5e-324])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("shift", [0.0, 60000.0])
def test_tiny_temperatures_take_the_most_probable_token(temperature, dtype, shift):
    logits = torch.tensor([[-1.0, 3.0, 0.0]], dtype=dtype) + shift if shift == 0 else torch.tensor(
        [[-shift, shift, 0.0]], dtype=dtype)  # fmt: skip
    assert probabilities(logits, _config(temperature=temperature)).tolist() == [[0.0, 1.0, 0.0]]


def test_huge_temperatures_are_uniform():
    assert _probabilities([5.0, -5.0, 0.0, 1.0], temperature=1e300) == pytest.approx([0.25] * 4, rel=1e-12)


def test_rows_are_independent_distributions():
    logits = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    config = _config(temperature=0.7, top_k=5, top_p=0.8)
    together = probabilities(logits, config)
    assert together.sum(1).tolist() == pytest.approx([1.0] * 6, rel=1e-12)
    for row in range(6):
        assert torch.equal(probabilities(logits[row : row + 1], config)[0], together[row])


@pytest.mark.parametrize("top_k", [1, 2, 3, 4, 5, 6, 100])
def test_top_k_keeps_the_k_most_probable_in_proportion(top_k):
    logits = [0.3, 2.0, -1.0, 1.5, 0.9]
    kept = sorted(range(5), key=lambda token: -logits[token])[:top_k]
    weights = [math.exp(logits[token]) if token in kept else 0.0 for token in range(5)]
    assert _probabilities(logits, top_k=top_k) == pytest.approx([weight / sum(weights) for weight in weights], rel=1e-6)


def test_top_k_of_equal_logits_keeps_exactly_k():
    assert sorted(_probabilities([1.0] * 6, top_k=2)) == [0.0] * 4 + [0.5] * 2


@pytest.mark.parametrize(
    ("top_p", "kept"),
    [(1e-9, {2}), (0.39, {2}), (0.41, {0, 2}), (0.69, {0, 2}), (0.71, {0, 2, 3}), (0.91, {0, 1, 2, 3}), (1.0, None)],
)
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p, kept):
    shares = [0.3, 0.1, 0.4, 0.2]
    weights = [share if kept is None or token in kept else 0.0 for token, share in enumerate(shares)]
    found = _probabilities([math.log(share) for share in shares], top_p=top_p)
    assert found == pytest.approx([weight / sum(weights) for weight in weights], rel=1e-6)


def test_temperature_comes_first_then_top_k_then_top_p():
    """Shares .4 .3 .2 .1 at temperature 0.5 are 16 9 4 1; of three 16 9 4 of 29; 0.8 needs two of them (25/29)."""
    logits = [math.log(share) for share in (0.4, 0.3, 0.2, 0.1)]
    found = _probabilities(logits, temperature=0.5, top_k=3, top_p=0.8)
    assert found == pytest.approx([16 / 25, 9 / 25, 0, 0], rel=1e-6)


def test_impossible_tokens_stay_impossible():
    logits = [-math.inf, 0.0, -math.inf, 0.0]
    for settings in ({}, {"temperature": 50.0}, {"top_k": 3}, {"top_p": 1.0}, {"temperature": 1e-6}):
        assert _probabilities(logits, **settings) == pytest.approx([0.0, 0.5, 0.0, 0.5])


def test_a_draw_inverts_the_cumulative_distribution():
    """Shares 0 .25 0 .75 0: below 0.25 the second token, from 0.25 on the fourth, never one of the others."""
    shares = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]], dtype=torch.float64)
    draws = [0.0, 0.1, 0.25 - 2**-54, 0.25, 0.9, 1 - 2**-53]
    tokens = draw(shares.expand(6, -1), torch.tensor(draws, dtype=torch.float64)).tolist()
    assert tokens == [1, 1, 1, 3, 3, 3]


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.85}])
def test_frequencies_follow_the_probabilities(table_model, settings):
    """20,000 draws of one token against shares worked out by hand."""
    shares = [0.35, 0.3, 0.2, 0.1, 0.05]
    expected = {
        "": shares,
        "temperature": [share**2 / 0.265 for share in shares],  # 0.265: sum of squares
        "top_k": [0.35 / 0.85, 0.3 / 0.85, 0.2 / 0.85, 0.0, 0.0],
        "top_p": [0.35 / 0.85, 0.3 / 0.85, 0.2 / 0.85, 0.0, 0.0],
    }["".join(settings)]
    if "top_p" in settings:
        settings = {"top_p": 0.849}
    count = 20_000
    model = table_model([lambda text: shares] * count)
    hypotheses = sample_search(model, _config(**settings), eos_id=0, limits=[1] * count, lines=range(count))
    drawn = [hypothesis.tokens[0] if hypothesis.tokens else 0 for hypothesis in hypotheses]
    counts = np.bincount(drawn, minlength=5).tolist()
    assert _chi_square(counts, [count * share for share in expected]) < LARGEST_CHI_SQUARE[4]


def test_successive_draws_are_independent(table_model):
    """Pairs of tokens occur with the product of their shares; the second token's shares depend on the first."""
    first = [0.0, 0.1, 0.2, 0.3, 0.4]
    second = {"a": [0.2] * 5, "b": [0.5, 0.2, 0.1, 0.1, 0.1], "c": [0.1, 0.4, 0.3, 0.1, 0.1]}
    second["d"] = [0.3, 0.1, 0.3, 0.2, 0.1]
    count = 20_000
    model = table_model([lambda text: second[text] if text else first] * count)
    hypotheses = sample_search(model, _config(), eos_id=0, limits=[2] * count, lines=range(count))
    cells = [5 * h.tokens[0] + (h.tokens[1] if len(h.tokens) == 2 else 0) for h in hypotheses]
    expected = [count * first[x] * share for x in range(5) for share in second.get("_abcd"[x], [0.0] * 5)]
    assert _chi_square(np.bincount(cells, minlength=25).tolist(), expected) < LARGEST_CHI_SQUARE[24]


def test_draws_of_a_line_do_not_depend_on_the_batch(table_model, random_table):
    tables = [random_table(place, 5, 0.5) for place in range(6)]
    lines, limits = [3, 17, 4, 0, 99, 5], [7, 3, 7, 0, 5, 7]
    together = sample_search(table_model(tables), _config(seed=5), eos_id=0, limits=limits, lines=lines)
    for place in range(6):
        alone = sample_search(table_model([tables[place]]), _config(seed=5), eos_id=0, limits=[limits[place]],
                              lines=[lines[place]])  # fmt: skip
        assert alone == [together[place]]
    backwards = sample_search(table_model(tables[::-1]), _config(seed=5), eos_id=0, limits=limits[::-1],
                              lines=lines[::-1])  # fmt: skip
    assert backwards == together[::-1]


def test_seed_and_line_decide_the_draws(table_model):
    def run(seed, line):
        model = table_model([lambda text: [0.0, 0.25, 0.25, 0.25, 0.25]])
        [hypothesis] = sample_search(model, _config(seed=seed), eos_id=0, limits=[30], lines=[line])
        return tuple(hypothesis.tokens)

    assert run(1, 1) == run(1, 1)
    assert len({run(seed, line) for seed in range(4) for line in range(4)}) == 16  # seed 1 line 2 is not seed 2 line 1


def test_the_log_probability_is_the_models_own(table_model):
    """Cuts and temperature decide what is drawn, not what it is worth."""
    shares = [0.2, 0.5, 0.3]
    model = table_model([lambda text: [0.0, 0.6, 0.4] if len(text) < 2 else shares])
    [hypothesis] = sample_search(model, _config(temperature=0.1, top_k=1), eos_id=0, limits=[3], lines=[1])
    assert hypothesis.tokens == [1, 1, 1]
    assert hypothesis.log_probability == pytest.approx(2 * math.log(0.6) + math.log(0.5), abs=1e-6)


@pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-9}])
def test_sampling_without_a_choice_is_greedy(table_model, random_table, settings):
    tables = [random_table(place, 4, 1.0) for place in range(20)]
    greedy = greedy_search(table_model(tables), eos_id=0, limits=[6] * 20)
    assert greedy == sample_search(table_model(tables), _config(**settings), eos_id=0, limits=[6] * 20, lines=range(20))
