"""Keys and values kept between decoding steps."""

import pytest
import torch

from transformer.nn.cache import DecoderCache, KeyValueCache
from transformer.nn.memory import SharedMemories
from transformer.nn.moves import moves_to


def _keys(length: int, start: int = 0) -> torch.Tensor:
    """(2, 3, length, 4), every position and row of the batch with its own number."""
    times = torch.arange(start, start + length, dtype=torch.float32)
    rows = torch.tensor([0.0, 1000.0])
    return (rows[:, None] + times)[:, None, :, None].expand(2, 3, length, 4).contiguous()


@pytest.mark.parametrize("parts", [[5], [1] * 5, [2, 3], [4, 1], [1, 200, 1, 1]])
def test_what_was_appended_comes_back_in_order(parts):
    cache, fed = KeyValueCache(), 0
    assert cache.length == 0
    for length in parts:
        keys, values = cache.append(_keys(length, fed), -_keys(length, fed)[..., :2])
        fed += length
        assert cache.length == fed
        assert torch.equal(keys, _keys(fed))
        assert torch.equal(values, -_keys(fed)[..., :2])  # values may be narrower than keys
        assert torch.equal(cache.contents()[0], keys)


def test_growing_never_writes_into_the_tensors_it_was_given():
    cache, first = KeyValueCache(), _keys(3)
    cache.append(first, first)
    cache.append(_keys(1, 3), _keys(1, 3))
    cache.append(_keys(1, 4), _keys(1, 4))
    assert torch.equal(first, _keys(3))


def test_steps_within_the_capacity_do_not_copy_the_past():
    cache = KeyValueCache()
    cache.append(_keys(3), _keys(3))
    addresses = set()
    for step in range(3, 11):
        keys, _ = cache.append(_keys(1, step), _keys(1, step))
        addresses.add(keys.data_ptr())
    assert len(addresses) == 1


def test_rows_are_reordered_repeated_and_dropped():
    cache = KeyValueCache()
    cache.append(_keys(3), _keys(3))
    cache.append(_keys(1, 3), _keys(1, 3))
    cache.rearrange(moves_to(torch.tensor([1, 1, 0]), None))
    keys, values = cache.contents()
    assert keys[:, 0, :, 0].tolist() == [[1000, 1001, 1002, 1003], [1000, 1001, 1002, 1003], [0, 1, 2, 3]]
    assert torch.equal(keys, values)
    new = torch.tensor([7.0, 8.0, 9.0])[:, None, None, None].expand(3, 3, 1, 4)
    keys, _ = cache.append(new, new)
    assert keys[:, 0, -1, 0].tolist() == [7, 8, 9]
    cache.rearrange(moves_to(torch.tensor([2]), None))
    assert cache.contents()[0][:, 0, :, 0].tolist() == [[0, 1, 2, 3, 9]]
    cache.rearrange(moves_to(torch.tensor([0, 0, 0, 0]), None))
    assert cache.contents()[1][:, 0, -1, 0].tolist() == [9, 9, 9, 9]


@pytest.mark.parametrize("seed", range(20))
def test_rearranging_equals_indexing(seed):
    """Any sequence of growing, shrinking and permuting gives what indexing a list of rows gives."""
    random, cache = torch.Generator().manual_seed(seed), KeyValueCache()
    rows = torch.randn(4, 2, 1, 3, generator=random)
    cache.append(rows, -rows)
    for _ in range(40):
        count = int(torch.randint(1, 8, (), generator=random))
        chosen = torch.randint(0, len(rows), (count,), generator=random)
        cache.rearrange(moves_to(chosen, None))
        new = torch.randn(count, 2, 1, 3, generator=random)
        rows = torch.cat([rows[chosen], new], dim=2)
        keys, values = cache.append(new, -new)
        assert torch.equal(keys, rows)
        assert torch.equal(values, -rows)


def test_rows_that_stay_are_not_copied():
    moves = moves_to(torch.tensor([0, 4, 2, 2]), None)
    assert moves.num_rows == 4
    assert moves.targets_X.tolist() == [1, 3]
    assert moves.sources_X.tolist() == [4, 2]
    cache = KeyValueCache()
    before, _ = cache.append(_keys(3), _keys(3))
    cache.rearrange(moves_to(torch.tensor([0]), None))
    assert cache.contents()[0].data_ptr() == before.data_ptr()


def test_rearranging_an_empty_cache_does_nothing():
    cache = KeyValueCache()
    cache.rearrange(moves_to(torch.tensor([0]), None))
    assert cache.length == 0


def test_what_is_cut_off_is_overwritten():
    cache = KeyValueCache()
    cache.append(_keys(5), _keys(5))
    cache.truncate(2)
    assert torch.equal(cache.contents()[0], _keys(2))
    keys, _ = cache.append(_keys(1, 7), _keys(1, 7))
    assert keys[0, 0, :, 0].tolist() == [0, 1, 7]
    cache.truncate(9)
    assert cache.length == 3


def test_a_decoder_cache_needs_no_mask_while_every_token_is_real():
    cache = DecoderCache(num_layers=2)
    assert len(cache.layers) == 2
    assert cache.layers[0] is not cache.layers[1]
    assert cache.mask_with(None, torch.zeros(2, 3)) is None
    assert cache.length == 0


def test_a_decoder_cache_joins_marks_of_real_tokens_over_all_calls():
    cache = DecoderCache(1)
    cache.advance(None, 2)
    mask = cache.mask_with(torch.tensor([[True], [False]]), torch.zeros(2, 1))
    assert mask.tolist() == [[1, 1, 1], [1, 1, 0]]
    cache.advance(mask, 1)
    assert cache.mask_with(None, torch.zeros(2, 1)).tolist() == [[1, 1, 1, 1], [1, 1, 0, 1]]
    assert cache.length == 3


def test_selecting_rows_of_a_decoder_cache_reaches_the_mask_and_every_layer():
    cache = DecoderCache(2)
    cache.advance(torch.tensor([[True, True], [False, True]]), 2)
    cache.memories = SharedMemories(2, torch.tensor([[True, True], [True, False]]))
    for layer in cache.layers:
        layer.self_attention.append(_keys(2), _keys(2))
        layer.cross_attention.key_NHSE, layer.cross_attention.value_NHSU = _keys(5), -_keys(5)
    cache.select(torch.tensor([1, 1]))
    assert cache.key_mask_BK.tolist() == [[0, 1], [0, 1]]
    assert cache.memories.mask_NS.tolist() == [[True, False]]
    for layer in cache.layers:
        assert layer.self_attention.contents()[0][:, 0, 0, 0].tolist() == [1000, 1000]
        assert layer.cross_attention.key_NHSE[:, 0, 0, 0].tolist() == [1000]  # shared, not repeated
        assert layer.cross_attention.value_NHSU[:, 0, 0, 0].tolist() == [-1000]
        assert layer.cross_attention.shared.place_M.tolist() == [0, 1]
    assert cache.length == 2
    cache.truncate(1)
    assert cache.key_mask_BK.tolist() == [[0], [0]]
    assert cache.length == cache.layers[1].self_attention.length == 1
