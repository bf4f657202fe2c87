"""Grouping lines for search."""

import random

import pytest

from transformer.inference.batching import in_batches


@pytest.mark.parametrize("max_tokens", [1, 10, 40, 10_000])
def test_answers_are_in_the_order_of_the_lines_and_batches_within_the_budget(max_tokens):
    generator = random.Random(max_tokens)
    lengths = [generator.randint(1, 20) for _ in range(50)]
    batches = []

    def run(numbers):
        batches.append(numbers)
        return [f"line {number} of length {lengths[number]}" for number in numbers]

    answers = in_batches(lengths, max_tokens, run)
    assert answers == [f"line {number} of length {length}" for number, length in enumerate(lengths)]
    assert sorted(number for batch in batches for number in batch) == list(range(50))
    for batch in batches:
        assert len(batch) == 1 or max(lengths[number] for number in batch) * len(batch) <= max_tokens
    if max_tokens == 10_000:
        assert len(batches) == 1
    if max_tokens == 1:
        assert len(batches) == 50


def test_like_lengths_share_a_batch():
    batches = []
    in_batches([9, 1, 9, 1, 9, 1], 18, lambda numbers: (batches.append(numbers), [""] * len(numbers))[1])
    assert batches == [[1, 3, 5], [0, 2], [4]]


def test_no_line_needs_no_run():
    assert in_batches([], 10, lambda numbers: pytest.fail("nothing to run")) == []


def test_a_missing_answer_is_noticed():
    with pytest.raises(ValueError, match="zip"):
        in_batches([1, 1], 10, lambda numbers: ["one"])
