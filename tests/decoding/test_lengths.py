"""How long outputs may and must be."""

import pytest

from transformer.decoding.config import BeamConfig, GreedyConfig
from transformer.decoding.lengths import check_no_source, continuation_lengths, translation_lengths


@pytest.mark.parametrize(
    ("settings", "source_length", "max_length", "expected"),
    [
        ({}, 3, 1000, (0, 26)),
        ({}, 12, 1000, (0, 44)),
        ({}, 12, 30, (0, 30)),
        ({"max_new_tokens": 7}, 12, 1000, (0, 7)),
        ({"max_new_tokens": 0}, 12, 1000, (0, 0)),
        ({"max_length_factor": 1.5}, 5, 1000, (0, 8)),  # 7.5
        ({"max_length_factor": 1.12}, 25, 1000, (0, 28)),  # not 29: the product of floats is above 28
        ({"max_length_factor": 1.5, "max_new_tokens": 6}, 5, 1000, (0, 6)),
        ({"min_new_tokens": 4}, 5, 1000, (4, 30)),
        ({"min_new_tokens": 100}, 5, 1000, (100, 101)),  # room for the end token
        ({"min_new_tokens": 100}, 5, 50, (100, 50)),
        ({"min_new_tokens": 9, "max_new_tokens": 9}, 5, 1000, (9, 9)),
        ({"min_length_factor": 0.5}, 5, 1000, (3, 30)),
        ({"min_length_factor": 2.0, "max_length_factor": 2.0}, 5, 1000, (10, 11)),
        ({"min_length_factor": 1.12}, 25, 1000, (28, 70)),
        ({"min_length_factor": 0.5, "min_new_tokens": 4}, 5, 1000, (4, 30)),
    ],
)
def test_lengths_of_a_translation(settings, source_length, max_length, expected):
    config = GreedyConfig(name="greedy", **settings)
    assert translation_lengths(source_length, config, max_length) == expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({}, (0, 9)), ({"max_new_tokens": 4}, (0, 4)), ({"max_new_tokens": 12, "min_new_tokens": 10}, (10, 9))],
)
def test_lengths_of_a_continuation(settings, expected):
    assert continuation_lengths(9, BeamConfig(name="beam", **settings)) == expected


@pytest.mark.parametrize("settings", [{"max_length_factor": 2.0}, {"min_length_factor": 0.1}])
def test_without_a_source_there_is_nothing_to_multiply(settings):
    check_no_source(GreedyConfig(name="greedy"))
    with pytest.raises(ValueError, match="a language model has no source"):
        check_no_source(GreedyConfig(name="greedy", **settings))


def test_without_a_source_none_of_it_can_be_left_out():
    check_no_source(BeamConfig(name="beam"))
    with pytest.raises(ValueError, match="`coverage_penalty` is about source tokens"):
        check_no_source(BeamConfig(name="beam", coverage_penalty=0.1))
