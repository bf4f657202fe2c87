"""Rows of a search that share what they know of a source."""

import numpy as np
import pytest
import torch

from transformer.nn.memory import MemoryCache, SharedMemories


def test_rows_of_one_memory_stand_side_by_side():
    memories = SharedMemories(3, None)
    assert memories.select(np.array([2, 0, 0, 1, 2, 0]), None) is None
    shared = memories.shared
    assert shared.row_NW.shape == (3, 3)
    assert shared.place_M.tolist() == [6, 0, 1, 3, 7, 2]
    rows = torch.arange(1.0, 7.0)[:, None]
    table = shared.gather(rows)
    assert table[0, :, 0].tolist() == [2, 3, 6]
    assert table[1, 0].item() == 4
    assert table[2, :2, 0].tolist() == [1, 5]
    assert torch.equal(shared.scatter(table), rows)


def test_rows_in_the_order_of_their_memories_need_no_table():
    memories = SharedMemories(2, None)
    memories.select(np.array([1, 0]), None)
    assert memories.shared is not None
    memories.select(np.array([1, 0]), None)
    assert memories.shared is None


@pytest.mark.parametrize("seed", range(20))
def test_any_sequence_of_selections_keeps_each_row_with_its_memory(seed):
    """Rows carry the number of their memory; masks, keys and the table always agree with it."""
    random = np.random.default_rng(seed)
    numbers = torch.arange(1.0, 7.0)
    memories, cache = SharedMemories(6, numbers[:, None] > torch.arange(6)), MemoryCache()
    cache.key_NHSE = numbers[:, None, None, None].expand(6, 2, 3, 4).contiguous()
    cache.value_NHSU = -cache.key_NHSE
    number_of_row = numbers.clone()
    for _ in range(12):
        rows = random.integers(0, len(number_of_row), size=random.integers(1, 12))
        number_of_row = number_of_row[rows]
        cache.rearrange(memories.select(rows, None), memories.shared)
        present = cache.key_NHSE[:, 0, 0, 0]
        assert sorted(present.tolist()) == sorted(set(number_of_row.tolist()))
        assert torch.equal(cache.value_NHSU, -cache.key_NHSE)
        assert torch.equal(memories.mask_NS, present[:, None] > torch.arange(6))
        if memories.shared is None:
            assert torch.equal(present, number_of_row)
        else:
            assert torch.equal(present[memories.shared.place_M // memories.shared.row_NW.shape[1]], number_of_row)
            assert len(set(memories.shared.place_M.tolist())) == len(number_of_row)


def test_the_callers_mask_is_left_alone():
    mask = torch.tensor([[True, False], [True, True]])
    memories = SharedMemories(2, mask)
    memories.select(np.array([1, 1]), None)
    assert mask.tolist() == [[True, False], [True, True]]
