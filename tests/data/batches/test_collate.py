"""Shifting and padding."""

from functools import partial

import numpy as np
import pytest
import torch

from transformer.data.batches.collate import collate_texts, collate_translation, pad, shift_targets


def test_shift():
    assert shift_targets([7, 8, 9], 1, 2) == ([1, 7, 8, 9], [7, 8, 9, 2])
    assert shift_targets([], 1, 2) == ([1], [2])
    assert shift_targets([1, 2], 1, 2) == ([1, 1, 2], [1, 2, 2])  # ids of texts are never touched


def test_pad_on_the_right_with_a_mask_that_ids_do_not_decide():
    ids, real = pad([[0, 5], [], [6, 0, 7]], 0)
    assert ids.tolist() == [[0, 5, 0], [0, 0, 0], [6, 0, 7]]
    assert real.tolist() == [[True, True, False], [False] * 3, [True] * 3]
    assert (ids.dtype, real.dtype) == (torch.int64, torch.bool)
    assert pad([], 0)[0].shape == (0, 0)
    assert pad([[4]], 9)[0].tolist() == [[4]]


@pytest.mark.parametrize("kind", [list, partial(np.array, dtype=np.uint16), partial(np.array, dtype=np.int32)])
def test_pad_puts_the_same_before_and_after_every_row(kind):
    """Rows of ids come from lists, and from files as arrays of small integers."""
    rows = [kind([70, 65_000]), kind([])]
    both, real = pad(rows, 9, first=1, last=2)
    assert both.tolist() == [[1, 70, 65_000, 2], [1, 2, 9, 9]]
    assert real.tolist() == [[True] * 4, [True, True, False, False]]
    assert pad(rows, 9, first=1)[0].tolist() == [[1, 70, 65_000], [1, 9, 9]]
    assert pad(rows, 9, last=0)[0].tolist() == [[70, 65_000, 0], [0, 9, 9]]
    assert both.dtype == torch.int64


def test_collate_translation():
    batch = collate_translation([(3, [10, 11], [20]), (0, [], [21, 22, 23])], pad_id=0, bos_id=1, eos_id=2)
    assert batch.index_B.tolist() == [3, 0]
    assert batch.source_BS.tolist() == [[10, 11, 2], [2, 0, 0]]
    assert batch.source_mask_BS.tolist() == [[True] * 3, [True, False, False]]
    assert batch.target_BT.tolist() == [[1, 20, 0, 0], [1, 21, 22, 23]]
    assert batch.labels_BT.tolist() == [[20, 2, 0, 0], [21, 22, 23, 2]]
    assert batch.scored_BT.tolist() == [[True, True, False, False], [True] * 4]


def test_collate_texts():
    batch = collate_texts([(7, [10, 11, 12]), (0, np.array([0, 13], dtype=np.uint16))], pad_id=0)
    assert batch.index_B.tolist() == [7, 0]
    assert batch.tokens_BL.tolist() == [[10, 11], [0, 0]]
    assert batch.labels_BL.tolist() == [[11, 12], [13, 0]]
    assert batch.scored_BL.tolist() == [[True, True], [True, False]]
    assert batch.segments_BL is None
