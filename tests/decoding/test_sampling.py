"""Sampling: the distribution drawn from, and that draws follow it and nothing else."""

import math

import numpy as np
import pytest
import torch

from transformer.decoding import sampling
from transformer.decoding.config import SampleConfig
from transformer.decoding.greedy import greedy_search
from transformer.decoding.interface import Request
from transformer.decoding.rules import Rules
from transformer.decoding.sampling import draw, probabilities

LOGITS = [2.0, 1.0, 0.0]
LARGEST_CHI_SQUARE = {4: 33.4, 24: 75.0}  # by degrees of freedom; exceeded with a chance of 1e-6


def _config(**settings):
    return SampleConfig(name="sample", **settings)


def _rules(config, limits, lines):
    return Rules(config, [Request(limit, line=line) for limit, line in zip(limits, lines, strict=True)], eos_id=0)


def sample_search(model, config, limits, lines):
    """One sample of each example."""
    samples = sampling.sample_search(model, config, _rules(config, limits, lines))
    return [hypothesis for [hypothesis] in samples]


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


@pytest.mark.parametrize(
    ("min_p", "kept"), [(1e-9, 4), (0.24, 4), (0.26, 3), (0.49, 3), (0.51, 2), (0.74, 2), (0.76, 1), (1.0, 1)]
)
def test_min_p_keeps_what_is_so_probable_beside_the_most_probable(min_p, kept):
    """Shares .4 .3 .2 .1 are 1, 3/4, 1/2 and 1/4 of the first."""
    shares = [0.4, 0.3, 0.2, 0.1]
    weights = [share if place < kept else 0.0 for place, share in enumerate(shares)]
    found = _probabilities([math.log(share) for share in shares], min_p=min_p)
    assert found == pytest.approx([weight / sum(weights) for weight in weights], rel=1e-6)


@pytest.mark.parametrize(("epsilon", "kept"), [(0.09, 4), (0.11, 3), (0.29, 2), (0.31, 1), (0.5, 1), (0.99, 1)])
def test_epsilon_keeps_what_is_so_probable_and_the_most_probable_always(epsilon, kept):
    shares = [0.4, 0.3, 0.2, 0.1]
    weights = [share if place < kept else 0.0 for place, share in enumerate(shares)]
    found = _probabilities([math.log(share) for share in shares], epsilon=epsilon)
    assert found == pytest.approx([weight / sum(weights) for weight in weights], rel=1e-6)


def test_min_p_and_epsilon_come_last():
    """Of .4 .3 .2 .1 top-k leaves 4 3 2 of 9, and min-p 0.7 of these 4 3 of 7."""
    logits = [math.log(share) for share in (0.4, 0.3, 0.2, 0.1)]
    assert _probabilities(logits, top_k=3, min_p=0.7) == pytest.approx([4 / 7, 3 / 7, 0, 0], rel=1e-6)
    # Epsilon after min-p: 3/7 is above 0.4, but 0.3 and 3/9 are not.
    assert _probabilities(logits, top_k=3, min_p=0.7, epsilon=0.4) == pytest.approx([4 / 7, 3 / 7, 0, 0], rel=1e-6)
    assert _probabilities(logits, top_k=3, epsilon=0.4) == pytest.approx([1, 0, 0, 0], rel=1e-6)
    # Min-p after the temperature: at 0.5 the shares are 16 9 4 1 of 30.
    assert _probabilities(logits, temperature=0.5, min_p=0.6) == pytest.approx([1, 0, 0, 0], rel=1e-6)


def test_temperature_comes_first_then_top_k_then_top_p():
    """Shares .4 .3 .2 .1 at temperature 0.5 are 16 9 4 1; of three 16 9 4 of 29; 0.8 needs two of them (25/29)."""
    logits = [math.log(share) for share in (0.4, 0.3, 0.2, 0.1)]
    found = _probabilities(logits, temperature=0.5, top_k=3, top_p=0.8)
    assert found == pytest.approx([16 / 25, 9 / 25, 0, 0], rel=1e-6)


def test_impossible_tokens_stay_impossible():
    logits = [-math.inf, 0.0, -math.inf, 0.0]
    cuts = ({"top_k": 3}, {"top_p": 1.0}, {"min_p": 1e-9}, {"epsilon": 1e-9})
    for settings in ({}, {"temperature": 50.0}, {"temperature": 1e-6}, *cuts):
        assert _probabilities(logits, **settings) == pytest.approx([0.0, 0.5, 0.0, 0.5])


def test_a_draw_inverts_the_cumulative_distribution():
    """Shares 0 .25 0 .75 0: below 0.25 the second token, from 0.25 on the fourth, never one of the others."""
    shares = torch.tensor([[0.0, 0.25, 0.0, 0.75, 0.0]], dtype=torch.float64)
    draws = [0.0, 0.1, 0.25 - 2**-54, 0.25, 0.9, 1 - 2**-53]
    tokens = draw(shares.expand(6, -1), torch.tensor(draws, dtype=torch.float64)).tolist()
    assert tokens == [1, 1, 1, 3, 3, 3]


@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.849}, {"min_p": 0.3}, {"epsilon": 0.07}]
)
def test_frequencies_follow_the_probabilities(table_model, settings):
    """20,000 draws of one token against shares worked out by hand."""
    shares = [0.35, 0.3, 0.2, 0.1, 0.05]
    expected = {
        "": shares,
        "temperature": [share**2 / 0.265 for share in shares],  # 0.265: sum of squares
        "top_k": [0.35 / 0.85, 0.3 / 0.85, 0.2 / 0.85, 0.0, 0.0],
        "top_p": [0.35 / 0.85, 0.3 / 0.85, 0.2 / 0.85, 0.0, 0.0],
        "min_p": [0.35 / 0.85, 0.3 / 0.85, 0.2 / 0.85, 0.0, 0.0],  # 0.1 is less than 0.3 of 0.35
        "epsilon": [share / 0.95 for share in shares[:4]] + [0.0],
    }["".join(settings)]
    count = 20_000
    model = table_model([lambda text: shares] * count)
    hypotheses = sample_search(model, _config(**settings), limits=[1] * count, lines=range(count))
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
    hypotheses = sample_search(model, _config(), limits=[2] * count, lines=range(count))
    cells = [5 * h.tokens[0] + (h.tokens[1] if len(h.tokens) == 2 else 0) for h in hypotheses]
    expected = [count * first[x] * share for x in range(5) for share in second.get("_abcd"[x], [0.0] * 5)]
    assert _chi_square(np.bincount(cells, minlength=25).tolist(), expected) < LARGEST_CHI_SQUARE[24]


def test_draws_of_a_line_do_not_depend_on_the_batch(table_model, random_table):
    tables = [random_table(place, 5, 0.5) for place in range(6)]
    lines, limits = [3, 17, 4, 0, 99, 5], [7, 3, 7, 0, 5, 7]
    together = sample_search(table_model(tables), _config(seed=5), limits=limits, lines=lines)
    for place in range(6):
        alone = sample_search(table_model([tables[place]]), _config(seed=5), limits=[limits[place]],
                              lines=[lines[place]])  # fmt: skip
        assert alone == [together[place]]
    backwards = sample_search(table_model(tables[::-1]), _config(seed=5), limits=limits[::-1],
                              lines=lines[::-1])  # fmt: skip
    assert backwards == together[::-1]


def test_samples_of_an_example_are_the_same_however_many_in_any_batch(table_model, random_table):
    tables, lines, limits, config = (
        [random_table(place, 5, 0.5) for place in range(4)],
        [3, 17, 4, 9],
        [7, 3, 0, 5],
        _config(),
    )
    together = sampling.sample_search(table_model(tables), config, _rules(config, limits, lines), num_samples=6)
    assert len({tuple(hypothesis.tokens) for hypothesis in together[0]}) >= 5
    for place, samples in enumerate(together):
        rules = _rules(config, [limits[place]], [lines[place]])
        for count in (1, 2, 6):
            [alone] = sampling.sample_search(table_model([tables[place]]), config, rules, num_samples=count)
            assert alone == samples[:count]


def test_samples_of_an_example_and_of_other_lines_are_independent(table_model):
    """Pairs of the first two samples, and pairs of a line's sample with the next line's, are uniform over 25 cells."""
    count, config = 20_000, _config()
    model, rules = table_model([lambda text: [0.2] * 5] * count), _rules(config, [1] * count, range(count))
    pairs = sampling.sample_search(model, config, rules, num_samples=2)
    drawn = np.array([[h.tokens[0] if h.tokens else 0 for h in pair] for pair in pairs])
    for first, second in ((drawn[:, 0], drawn[:, 1]), (drawn[:-1, 0], drawn[1:, 0]), (drawn[:-1, 1], drawn[1:, 0])):
        counts = np.bincount(5 * first + second, minlength=25).tolist()
        assert _chi_square(counts, [len(first) / 25] * 25) < LARGEST_CHI_SQUARE[24]


def test_seed_and_line_decide_the_draws(table_model):
    def run(seed, line):
        model = table_model([lambda text: [0.0, 0.25, 0.25, 0.25, 0.25]])
        [hypothesis] = sample_search(model, _config(seed=seed), limits=[30], lines=[line])
        return tuple(hypothesis.tokens)

    assert run(1, 1) == run(1, 1)
    assert len({run(seed, line) for seed in range(4) for line in range(4)}) == 16  # seed 1 line 2 is not seed 2 line 1


def test_the_log_probability_is_the_models_own(table_model):
    """Cuts and temperature decide what is drawn, not what it is worth."""
    shares = [0.2, 0.5, 0.3]
    model = table_model([lambda text: [0.0, 0.6, 0.4] if len(text) < 2 else shares])
    [hypothesis] = sample_search(model, _config(temperature=0.1, top_k=1), limits=[3], lines=[1])
    assert hypothesis.tokens == [1, 1, 1]
    assert hypothesis.log_probability == pytest.approx(2 * math.log(0.6) + math.log(0.5), abs=1e-6)


@pytest.mark.parametrize(
    "settings",
    [{"temperature": 0.0}, {"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}, {"epsilon": 0.999}, {"temperature": 1e-9}],
)
def test_sampling_without_a_choice_is_greedy(table_model, random_table, settings):
    tables = [random_table(place, 4, 1.0) for place in range(20)]
    config = _config(**settings)
    greedy = greedy_search(table_model(tables), _rules(config, [6] * 20, range(20)))
    assert greedy == sample_search(table_model(tables), _config(**settings), limits=[6] * 20, lines=range(20))
