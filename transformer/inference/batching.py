"""Grouping lines for the model: like lengths together, results in the order of the input."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from transformer.data.batches.buckets import batches_by_length

Answer = TypeVar("Answer")


def length_batches(lengths: Sequence[int], max_tokens: int) -> Iterator[list[int]]:
    """The numbers of the lines that share a batch, each line once.

    Args:
        lengths: tokens of each line.
        max_tokens: padded tokens of a batch at most; a longer line makes a batch of one.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(sizes, kind="stable")
    for places in batches_by_length(sizes[order][:, None], max_tokens):
        yield order[places].tolist()


def in_batches(lengths: Sequence[int], max_tokens: int, run: Callable[[list[int]], Sequence[Answer]]) -> list[Answer]:
    """Call ``run`` on each of :func:`length_batches` for one answer a line, and put the answers back in order."""
    answers: dict[int, Answer] = {}
    for numbers in length_batches(lengths, max_tokens):
        answers.update(zip(numbers, run(numbers), strict=True))
    return [answers[number] for number in range(len(lengths))]
