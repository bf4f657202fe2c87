"""Attention masks, True = may attend."""

import pytest
import torch

from transformer.nn.masks import causal_mask, check_real, lengths_to_mask, padding_mask, sliding_window_mask


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
