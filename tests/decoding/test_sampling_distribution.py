"""Frequencies of whole sampled outputs against their enumerated probabilities."""

from collections import Counter

import pytest

from transformer.decoding.config import SampleConfig
from transformer.decoding.interface import Request
from transformer.decoding.rules import Rules
from transformer.decoding.sampling import sample_search

SMALLEST_CHANCE = 1e-4


def _counts(model, config, limit, count):
    rules = Rules(config, [Request(limit, config.min_new_tokens)], eos_id=0)
    [hypotheses] = sample_search(model, config, rules, num_samples=count)
    return Counter((tuple(hypothesis.tokens), hypothesis.finished) for hypothesis in hypotheses)


@pytest.mark.parametrize(
    ("settings", "size", "limit"),
    [
        ({}, 4, 5),
        ({}, 5, 3),
        ({"temperature": 0.5}, 5, 4),
        ({"temperature": 2.0, "top_k": 3}, 5, 4),
        ({"top_p": 0.6}, 5, 5),
        ({"min_p": 0.4}, 5, 5),
        ({"epsilon": 0.2}, 4, 5),
        ({"temperature": 1.5, "top_k": 4, "top_p": 0.9, "min_p": 0.1, "epsilon": 0.1}, 5, 4),
        ({"min_new_tokens": 2}, 4, 4),
        ({"no_repeat_ngram": 1, "repetition_penalty": 1.5}, 4, 5),
    ],
    ids=str,
)
def test_frequencies_of_outputs(table_model, random_table, sampled_outputs, chance_of_counts, settings, size, limit):
    config, table = SampleConfig(name="sample", seed=3, **settings), random_table(size, size, 1.0)
    expected = sampled_outputs(table, config, limit)
    assert sum(expected.values()) == pytest.approx(1.0, abs=1e-12)
    assert len(expected) >= 8
    assert chance_of_counts(_counts(table_model([table]), config, limit, 20_000), expected) > SMALLEST_CHANCE


def test_another_distribution_is_found_out(table_model, random_table, sampled_outputs, chance_of_counts):
    """The test above would see a temperature of 1.1 for 1, or the cut of the least probable tokens."""
    table = random_table(4, 4, 1.0)
    counts = _counts(table_model([table]), SampleConfig(name="sample", seed=3), 4, 20_000)
    for wrong in ({"temperature": 1.1}, {"top_p": 0.97}, {"epsilon": 0.02}):
        expected = sampled_outputs(table, SampleConfig(name="sample", **wrong), 4)
        assert chance_of_counts(counts, expected) < SMALLEST_CHANCE
