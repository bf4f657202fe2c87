"""Grouping lines for search: like lengths together, results in the order of the input."""

from collections.abc import Callable, Sequence

import numpy as np

from transformer.data.batching import batches_by_length


def in_batches(lengths: Sequence[int], max_tokens: int, run: Callable[[list[int]], Sequence[str]]) -> list[str]:
    """Call ``run`` on the numbers of lines that share a batch, and put its answers back in order.

    Args:
        lengths: tokens of each line.
        max_tokens: padded tokens of a batch at most; a longer line makes a batch of one.
        run: from line numbers to one answer each.
    """
    answers = [""] * len(lengths)
    order = np.argsort(np.asarray(lengths, dtype=np.int64), kind="stable")
    for places in batches_by_length(np.asarray(lengths, dtype=np.int64)[order][:, None], max_tokens):
        numbers = order[places].tolist()
        for number, answer in zip(numbers, run(numbers), strict=True):
            answers[number] = answer
    return answers
