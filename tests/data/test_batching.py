"""Shifting, padding, and which examples share a batch."""

import itertools

import numpy as np
import pytest
import torch

from transformer.data.batching import (
    FixedBatches,
    LengthBucketBatches,
    RunSampler,
    WindowBatches,
    batches_by_length,
    collate_translation,
    pad,
    shift_targets,
    split_until_divisible,
)
from transformer.data.loading import ResumableLoader


def _lengths(count, seed=0, longest=30):
    return np.random.default_rng(seed).integers(1, longest + 1, size=(count, 2))


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


def test_collate_translation():
    batch = collate_translation([(3, [10, 11], [20]), (0, [], [21, 22, 23])], pad_id=0, bos_id=1, eos_id=2)
    assert batch.index_B.tolist() == [3, 0]
    assert batch.source_BS.tolist() == [[10, 11, 2], [2, 0, 0]]
    assert batch.source_mask_BS.tolist() == [[True] * 3, [True, False, False]]
    assert batch.target_BT.tolist() == [[1, 20, 0, 0], [1, 21, 22, 23]]
    assert batch.labels_BT.tolist() == [[20, 2, 0, 0], [21, 22, 23, 2]]
    assert batch.scored_BT.tolist() == [[True, True, False, False], [True] * 4]


@pytest.mark.parametrize("max_tokens", [1, 7, 30, 100, 10_000])
@pytest.mark.parametrize("order", ["sorted", "as they are"])
def test_batches_are_within_the_budget_as_large_as_it_allows_and_complete(max_tokens, order):
    lengths = _lengths(200)
    if order == "sorted":
        lengths = lengths[np.lexsort(lengths.T)]
    batches = batches_by_length(lengths, max_tokens)
    assert np.concatenate(batches).tolist() == list(range(200))
    longest = lengths.max(axis=1)
    for batch, following in itertools.zip_longest(batches, batches[1:]):
        assert len(batch) == 1 or longest[batch].max() * len(batch) <= max_tokens
        if following is not None:  # one more would not fit
            assert max(longest[batch].max(), longest[following[0]]) * (len(batch) + 1) > max_tokens


def test_no_example_makes_no_batch():
    assert batches_by_length(np.zeros((0, 2), dtype=np.int64), 10) == []


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 7])
def test_splitting_for_ranks_keeps_every_example_once(ranks):
    batches = [np.arange(0, 9), np.arange(9, 11), np.arange(11, 12)]
    parts = split_until_divisible(batches, ranks)
    assert len(parts) % ranks == 0
    assert len(parts) - 3 < ranks
    assert np.concatenate(parts).tolist() == list(range(12))
    assert min(map(len, parts)) >= 1
    assert len(batches) == 3


def test_too_few_examples_for_the_ranks_are_refused():
    with pytest.raises(ValueError, match="2 examples are too few for 3 ranks; use fewer devices"):
        split_until_divisible([np.array([0, 1])], 3)


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("seed", [0, 1])
def test_length_buckets_take_each_example_once_in_every_epoch(seed, ranks):
    lengths = _lengths(300, longest=12)  # many ties
    buckets = LengthBucketBatches(lengths, 60, seed=seed, ranks=ranks)
    epochs = [buckets.epoch(epoch) for epoch in range(4)]
    for batches in epochs:
        assert len(batches) == buckets.num_batches
        assert buckets.num_batches % ranks == 0
        assert sorted(index for batch in batches for index in batch) == list(range(300))
        assert all(lengths[batch].max() * len(batch) <= 60 for batch in batches)
    orders = [[min(batch) for batch in batches] for batches in epochs]
    assert len({tuple(order) for order in orders}) == 4  # another order of batches every epoch
    members = [frozenset(map(frozenset, batches)) for batches in epochs]
    assert len(set(members)) == 4  # and other company for the examples of like length
    assert epochs == [LengthBucketBatches(lengths, 60, seed=seed, ranks=ranks).epoch(epoch) for epoch in range(4)]


def test_length_buckets_differ_with_the_seed_and_group_like_lengths():
    lengths = _lengths(300)
    first, second = (LengthBucketBatches(lengths, 100, seed=seed, ranks=1) for seed in (1, 2))
    assert first.num_batches == second.num_batches
    assert first.epoch(0) != second.epoch(0)
    assert first.epoch(1) != second.epoch(0)  # not the same order one epoch later
    targets = sorted(
        (sorted(lengths[batch, 1].tolist()) for batch in first.epoch(0)), key=lambda row: (row[0], row[-1])
    )
    assert all(before[-1] <= after[0] for before, after in itertools.pairwise(targets))


@pytest.mark.parametrize("num_tokens", [2, 5, 6, 7, 11, 12, 13, 100, 101, 106])
@pytest.mark.parametrize("ranks", [1, 2])
def test_windows_do_not_overlap_and_reach_every_token(num_tokens, ranks):
    """Windows of five tokens; the last label is one token further."""
    windows = WindowBatches(num_tokens, 5, 3, seed=1, ranks=1)
    if ranks == 2:
        if windows.num_windows < 2:
            with pytest.raises(ValueError, match="too few for 2 ranks"):
                WindowBatches(num_tokens, 5, 3, seed=1, ranks=2)
            return
        windows = WindowBatches(num_tokens, 5, 3, seed=1, ranks=2)
    read, offsets = set(), set()
    for epoch in range(60):
        batches = windows.epoch(epoch)
        assert len(batches) == windows.num_batches
        assert len(batches) % ranks == 0
        assert all(1 <= len(batch) <= 3 for batch in batches)
        starts = sorted(start for batch in batches for start in batch)
        assert starts[0] <= 8  # less than two windows are left out
        assert all(after - before == 5 for before, after in itertools.pairwise(starts))
        assert starts[-1] + 5 <= num_tokens - 1 or len(starts) == 1  # room for the last label
        assert len(starts) == max((num_tokens - 5) // 5, 1)
        offsets.add(starts[0])
        read |= {start + place for start in starts for place in range(5) if start + place < num_tokens - 1}
    assert read == set(range(num_tokens - 1))  # every token that has a successor
    assert len(offsets) == windows.max_offset + 1


def test_windows_differ_between_epochs_and_seeds():
    windows = WindowBatches(1001, 10, 8, seed=3, ranks=1)
    assert windows.epoch(0) == WindowBatches(1001, 10, 8, seed=3, ranks=1).epoch(0)
    assert windows.epoch(0) != windows.epoch(1)
    assert windows.epoch(0) != WindowBatches(1001, 10, 8, seed=4, ranks=1).epoch(0)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_share_the_batches_of_every_epoch(ranks):
    buckets = LengthBucketBatches(_lengths(100), 60, seed=5, ranks=ranks)
    per_epoch = buckets.num_batches // ranks
    taken = [list(RunSampler(buckets, 3 * per_epoch, rank=rank, ranks=ranks)) for rank in range(ranks)]
    assert [len(batches) for batches in taken] == [3 * per_epoch] * ranks
    for epoch in range(3):
        part = slice(epoch * per_epoch, (epoch + 1) * per_epoch)
        together = [batch for step in zip(*(batches[part] for batches in taken), strict=True) for batch in step]
        assert together == buckets.epoch(epoch)


def test_a_run_starts_and_ends_anywhere():
    buckets = LengthBucketBatches(_lengths(100), 60, seed=5, ranks=1)
    whole = [batch for epoch in range(4) for batch in buckets.epoch(epoch)]
    for position, end in itertools.product(
        (0, 1, buckets.num_batches, 2 * buckets.num_batches + 3), (0, 5, len(whole))
    ):
        sampler = RunSampler(buckets, end)
        assert len(sampler) == end
        sampler.position = position
        assert list(sampler) == whole[position:end]


def test_fixed_batches_are_the_same_in_every_epoch():
    sampler = RunSampler(FixedBatches([[1, 2], [0]]), 5)
    assert list(sampler) == [[1, 2], [0], [1, 2], [0], [1, 2]]
    assert list(sampler) == [[1, 2], [0], [1, 2], [0], [1, 2]]
    assert list(RunSampler(FixedBatches([]), 0)) == []


def test_the_loader_counts_what_was_taken():
    loader = ResumableLoader(list(range(10)), RunSampler(FixedBatches([[1, 2], [0], [9]]), 6), list, num_workers=0,
                             pin_memory=False)  # fmt: skip
    assert len(loader) == 6
    assert loader.state_dict() == {"taken": 0}
    taken = iter(loader)
    assert [next(taken), next(taken)] == [[1, 2], [0]]
    assert loader.state_dict() == {"taken": 2}
    other = ResumableLoader(list(range(10)), RunSampler(FixedBatches([[1, 2], [0], [9]]), 6), list, num_workers=0,
                            pin_memory=False)  # fmt: skip
    other.load_state_dict(dict(loader.state_dict()))
    assert other.state_dict() == {"taken": 2}
    assert list(other) == [[9], [1, 2], [0], [9]]
    assert other.state_dict() == {"taken": 6}
