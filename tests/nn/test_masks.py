"""Attention masks, True = may attend."""

import pytest
import torch

from transformer.nn.masks import (
    causal_mask,
    check_real,
    check_segments,
    lengths_to_mask,
    padding_mask,
    segment_mask,
    sliding_window_mask,
)


def test_padding_mask_hides_padded_keys_from_every_query():
    real = torch.tensor([[True, True, False], [False, True, True]])
    mask = padding_mask(real)
    assert mask.shape == (2, 1, 1, 3)
    assert mask[:, 0, 0].tolist() == real.tolist()


def test_lengths_to_mask_marks_the_first_positions():
    assert lengths_to_mask(torch.tensor([2, 0, 4]), 4).tolist() == [[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("queries", "keys", "expected"),
    [
        (3, 3, [[1, 0, 0], [1, 1, 0], [1, 1, 1]]),
        (2, 5, [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]),
        (1, 4, [[1, 1, 1, 1]]),
        (3, 2, [[0, 0], [1, 0], [1, 1]]),
    ],
)
def test_causal_mask_is_aligned_at_the_bottom_right(queries, keys, expected):
    mask = causal_mask(queries, keys)
    assert mask.dtype == torch.bool
    assert mask.shape == (1, 1, queries, keys)
    assert mask[0, 0].tolist() == expected


@pytest.mark.parametrize(
    ("window", "queries", "keys", "expected"),
    [
        (1, 3, 3, [[1, 0, 0], [0, 1, 0], [0, 0, 1]]),
        (2, 4, 4, [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]),
        (2, 2, 4, [[0, 1, 1, 1], [0, 0, 1, 1]]),
        (9, 2, 3, [[1, 1, 1], [1, 1, 1]]),
    ],
)
def test_sliding_window_mask_reaches_either_side(window, queries, keys, expected):
    assert sliding_window_mask(window, queries, keys)[0, 0].tolist() == expected


def test_window_and_causal_masks_together_show_the_query_and_the_keys_just_before():
    both = sliding_window_mask(3, 5, 5) & causal_mask(5, 5)
    assert both[0, 0].tolist() == [[q - 3 < k <= q for k in range(5)] for q in range(5)]


def test_marks_of_real_tokens_must_fit_the_tokens():
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    check_real(None, tokens)
    check_real(torch.ones(2, 3, dtype=torch.bool), tokens)
    with pytest.raises(ValueError, match=r"token ids' shape \(2, 3\), but is torch.bool of shape \(2, 4\)"):
        check_real(torch.ones(2, 4, dtype=torch.bool), tokens)
    with pytest.raises(ValueError, match=r"but is torch.int64 of shape \(2, 3\)"):
        check_real(torch.ones(2, 3, dtype=torch.int64), tokens)


def test_segment_mask_of_one_sequence():
    mask = segment_mask(torch.tensor([[1, 1, 2, 0]]), torch.tensor([[1, 1, 2, 0]]))
    assert (mask.dtype, mask.shape) == (torch.bool, (1, 1, 4, 4))
    assert mask[0, 0].tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]


def test_segment_mask_of_two_sequences_joins_equal_numbers():
    queries, keys = torch.tensor([[1, 2, 3], [0, 0, 1]]), torch.tensor([[2, 1, 1, 0], [1, 2, 2, 2]])
    mask = segment_mask(queries, keys)
    assert mask[0, 0].tolist() == [[0, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0]]
    assert mask[1, 0].tolist() == [[0] * 4, [0] * 4, [1, 0, 0, 0]]


@pytest.mark.parametrize("row", [[1, 1, 2, 3], [0, 0, 1, 0], [0, 0, 0, 0], [1, 0, 0, 3], [2, 0, 4, 4]])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_segments_with_gaps_and_padding_anywhere_are_accepted(row, dtype):
    check_segments(torch.tensor([row], dtype=dtype), (1, 4))


@pytest.mark.parametrize(
    ("row", "number", "place"),
    [([1, 2, 1, 0], 1, 2), ([1, 0, 1, 1], 1, 2), ([2, 1, 1, 1], 1, 1), ([1, 3, 0, 2], 2, 3), ([1, -1, 2, 2], -1, 1)],
)
def test_segments_in_several_parts_are_refused(row, number, place):
    """Two parts of the same number would see each other, and at the same positions."""
    with pytest.raises(ValueError, match=f"with 0 for padding, but row 1 has {number} at position {place}"):
        check_segments(torch.tensor([[1, 1, 2, 0], row]), (2, 4))


def test_segments_must_fit_the_tokens():
    with pytest.raises(ValueError, match=r"token ids' shape \(2, 3\), but are torch.int64 of shape \(2, 4\)"):
        check_segments(torch.ones(2, 4, dtype=torch.int64), (2, 3))
    for dtype in (torch.bool, torch.float32):
        with pytest.raises(ValueError, match=f"must be int64 or int32 .* but are {dtype}"):
            check_segments(torch.ones(2, 3, dtype=dtype), (2, 3))
