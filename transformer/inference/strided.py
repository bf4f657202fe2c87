"""Windows over a text that overlap, so that every token is predicted from a long context."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from transformer.data.batches.collate import TextBatch, collate_texts
from transformer.data.preparation.arrow import TokenIds
from transformer.inference.batching import length_batches


class Window(NamedTuple):
    """A part of a sequence and what is scored of it.

    Attributes:
        start: place of its first input token.
        stop: place after its last label.
        first_scored: place of the first label that counts; those before it were scored in an earlier window.
    """

    start: int
    stop: int
    first_scored: int


def strided_windows(num_tokens: int, length: int, stride: int) -> list[Window]:
    """Windows that start every ``stride`` tokens; each scores the labels that no earlier one has scored.

    These are all of the first window and the last ``stride`` of each other one, fewer at the end of the text. So every
    token but the first is scored exactly once, from all tokens before it or from at least ``length - stride + 1``. What
    a token is predicted from does not depend on what follows in the text.

    Args:
        num_tokens: of the sequence.
        length: input tokens of a window at most.
        stride: from 1, every token with the longest context, to ``length``, windows side by side.

    Raises:
        ValueError: the stride is outside that range.
    """
    if not 1 <= stride <= length:
        raise ValueError(f"`stride` must be from 1 to the model's `max_length` ({length}), but is {stride}.")
    windows, scored = [], 1
    for start in range(0, num_tokens, stride):
        if scored >= num_tokens:
            break
        stop = min(start + length + 1, num_tokens)
        windows.append(Window(start, stop, scored))
        scored = stop
    return windows


def strided_batches(
    sequences: Sequence[TokenIds], *, length: int, stride: int, pad_id: int, max_tokens_per_batch: int
) -> Iterator[TextBatch]:
    """Batches that score every token but the first of each sequence; arguments as for :func:`strided_windows`.

    Args:
        sequences: token ids; nothing is predicted from one about another.
        pad_id: fills up shorter rows.
        max_tokens_per_batch: padded tokens of a batch.

    Raises:
        ValueError: there is nothing to score, or the stride does not fit.
    """
    windows = [(ids, window) for ids in sequences for window in strided_windows(len(ids), length, stride)]
    if not windows:
        longest = max(map(len, sequences), default=0)
        raise ValueError(f"there must be a text of at least 2 tokens to score, but the longest has {longest}.")
    lengths = [window.stop - window.start - 1 for _, window in windows]
    return _batches(windows, lengths, pad_id, max_tokens_per_batch)


def _batches(
    windows: Sequence[tuple[TokenIds, Window]], lengths: Sequence[int], pad_id: int, max_tokens_per_batch: int
) -> Iterator[TextBatch]:
    for numbers in length_batches(lengths, max_tokens_per_batch):
        members = [windows[number] for number in numbers]
        batch = collate_texts([(window.start, ids[window.start : window.stop]) for ids, window in members], pad_id)
        skipped_B = torch.tensor([window.first_scored - window.start - 1 for _, window in members])
        places_L = torch.arange(batch.tokens_BL.shape[1])
        yield batch._replace(scored_BL=batch.scored_BL & (places_L[None, :] >= skipped_B[:, None]))
