"""Which examples share a batch, and in which order the batches of a run come."""

import itertools

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from transformer.data.batches.buckets import (
    BatchPlan,
    FixedBatches,
    LengthBucketBatches,
    RunSampler,
    batches_by_length,
    split_until_divisible,
)
from transformer.data.batches.loading import ResumableLoader
from transformer.data.batches.mixing import Epochs


def _lengths(count, seed=0, longest=30):
    return np.random.default_rng(seed).integers(1, longest + 1, size=(count, 2))


def _sentences(count):
    """Lengths like those of captions in subwords: about 17 on either side, and alike."""
    generator = np.random.default_rng(0)
    source = generator.gamma(8, 2, size=count) + 1
    target = source * generator.normal(1.06, 0.18, size=count)
    return np.stack([source, target], axis=1).round().astype(np.int64).clip(2, 60)


def _buckets(lengths, max_tokens, *, seed=1, ranks=1):
    return LengthBucketBatches(lengths, max_tokens, Epochs([len(lengths)], None, seed), seed=seed, ranks=ranks)


def _lists(batches):
    return [np.asarray(batch).tolist() for batch in batches]


def _padded(lengths, batches):
    """Tokens of each side, padding included."""
    return sum(lengths[batch].max(axis=0) * len(batch) for batch in batches)


@pytest.mark.parametrize("max_tokens", [1, 7, 30, 100, 10_000])
@pytest.mark.parametrize("order", ["sorted", "as they are"])
def test_batches_are_within_the_budget_as_large_as_it_allows_and_complete(max_tokens, order):
    lengths = _lengths(200)
    if order == "sorted":
        lengths = lengths[np.lexsort(lengths.T)]
    batches = [np.arange(200)[batch] for batch in batches_by_length(lengths, max_tokens)]
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
    with pytest.raises(ValueError, match="3 examples are too few for 4 ranks; use fewer devices"):
        list(_buckets(_lengths(3), 1000, ranks=4).epoch(0))


@pytest.mark.parametrize("ranks", [1, 2, 5])
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("budget", [60, 600])  # with the larger one, batches are halved to save padding
def test_length_buckets_take_each_example_once_in_every_epoch(seed, ranks, budget):
    lengths = _lengths(300, longest=12)  # many ties
    buckets = _buckets(lengths, budget, seed=seed, ranks=ranks)
    epochs = [_lists(buckets.epoch(epoch)) for epoch in range(4)]
    for number, batches in enumerate(epochs):
        assert len(batches) == buckets.num_batches(number)
        assert len(batches) % ranks == 0
        assert sorted(index for batch in batches for index in batch) == list(range(300))
        assert all(lengths[batch].max() * len(batch) <= budget for batch in batches)
    orders = [[min(batch) for batch in batches] for batches in epochs]
    assert len({tuple(order) for order in orders}) == 4  # another order of batches every epoch
    members = [frozenset(map(frozenset, batches)) for batches in epochs]
    assert len(set(members)) == 4  # and other company for the examples of like length
    again = _buckets(lengths, budget, seed=seed, ranks=ranks)
    for number in (2, 0, 3, 1):  # whatever was asked for before
        assert _lists(again.epoch(number)) == epochs[number]


def test_length_buckets_differ_with_the_seed_and_group_like_lengths():
    lengths = _lengths(300)
    first, second = (_buckets(lengths, 100, seed=seed) for seed in (1, 2))
    assert _lists(first.epoch(0)) != _lists(second.epoch(0))
    assert _lists(first.epoch(1)) != _lists(second.epoch(0))  # not the same order one epoch later
    targets = sorted(
        (sorted(lengths[batch, 1].tolist()) for batch in first.epoch(0)), key=lambda row: (row[0], row[-1])
    )
    for before, after in itertools.pairwise(targets):
        step = 1 + round(0.07 * after[0])  # lengths within a step are alike
        assert before[-1] <= after[0] + step


@pytest.mark.parametrize(("budget", "source", "target"), [(1024, 0.06, 0.03), (4096, 0.06, 0.02)])
def test_little_of_a_batch_is_padding(budget, source, target):
    lengths = _sentences(29_000)
    batches = list(_buckets(lengths, budget).epoch(0))
    shares = 1 - lengths.sum(axis=0) / _padded(lengths, batches)
    assert shares[0] < source
    assert shares[1] < target
    assert sum(map(len, batches)) == 29_000


def test_sources_go_up_and_down_in_turn():
    """So a batch across two lengths of the target holds long sources, or short ones, of both."""
    lengths = np.array([[source, target] for target in (1, 2) for source in range(1, 10)])
    batches = [lengths[batch].tolist() for batch in _buckets(lengths, 27).epoch(0)]
    ones = [[[1, 1], [2, 1], [3, 1], [4, 1], [5, 1]], [[6, 1], [7, 1], [8, 1]]]
    twos = [[[7, 2], [6, 2], [5, 2]], [[4, 2], [3, 2], [2, 2], [1, 2]]]
    assert sorted(batches) == sorted([*ones, [[9, 1], [9, 2], [8, 2]], *twos])


@pytest.mark.parametrize(
    ("short", "long", "batches"),
    [
        (20, 30, [list(range(20, 50)), list(range(20))]),
        (16, 16, [list(range(16, 32)), list(range(16))]),
        (15, 30, [list(range(45))]),  # no half of less than 16
        (0, 40, [list(range(40))]),  # nothing to save
    ],
)
def test_a_batch_is_halved_by_its_sources_where_that_saves_padding(short, long, batches):
    lengths = np.array([[5, 20]] * short + [[50, 20]] * long)
    found = _lists(_buckets(lengths, 3000).epoch(0))
    assert sorted(map(sorted, found)) == sorted(batches)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_share_the_batches_of_every_epoch(ranks):
    buckets = _buckets(_lengths(100), 60, seed=5, ranks=ranks)
    taken = [list(RunSampler(buckets, 1000, rank=rank, ranks=ranks)) for rank in range(ranks)]
    assert [len(plans) for plans in taken] == [1000] * ranks
    for epoch in range(3):
        parts = [[plan.examples for plan in plans if plan.epoch == epoch] for plans in taken]
        together = [batch for step in zip(*parts, strict=True) for batch in step]
        assert _lists(together) == _lists(buckets.epoch(epoch))


class GrowingBatches:
    """Epoch e has e + 1 batches of one example, called by the epoch and its place."""

    def num_batches(self, epoch):
        return epoch + 1

    def epoch(self, epoch):
        return iter([[10 * epoch + place] for place in range(epoch + 1)])


@pytest.mark.parametrize("batches", ["buckets", "growing"])
def test_a_run_starts_and_ends_anywhere(batches):
    batches = _buckets(_lengths(100), 60, seed=5) if batches == "buckets" else GrowingBatches()
    whole = [(epoch, *map(int, batch)) for epoch in range(4) for batch in batches.epoch(epoch)]
    first = batches.num_batches(0)
    for position, end in itertools.product((0, 1, first, first + batches.num_batches(1) + 1), (0, 5, len(whole))):
        sampler = RunSampler(batches, end)
        assert len(sampler) == end
        sampler.position = position
        assert [(plan.epoch, *map(int, plan.examples)) for plan in sampler] == whole[position:end]


def test_fixed_batches_are_the_same_in_every_epoch():
    sampler = RunSampler(FixedBatches([[1, 2], [0]]), 5)
    for _ in range(2):
        assert list(sampler) == [(0, [1, 2]), (0, [0]), (1, [1, 2]), (1, [0]), (2, [1, 2])]
    assert list(RunSampler(FixedBatches([]), 0)) == []


class Plans(Dataset):
    """The batch of a plan is the plan."""

    def __getitem__(self, plan: BatchPlan) -> tuple[int, list[int]]:
        return plan.epoch, plan.examples


def _loader(checksum: str = "") -> ResumableLoader:
    sampler = RunSampler(FixedBatches([[1, 2], [0], [9]]), 6)
    return ResumableLoader(Plans(), sampler, data_checksum=checksum, num_workers=0, pin_memory=False)


def test_the_loader_counts_what_was_taken():
    loader = _loader("abc")
    assert len(loader) == 6
    assert loader.state_dict() == {"taken": 0, "data_checksum": "abc", "ranks": 1}
    taken = iter(loader)
    assert [next(taken), next(taken)] == [(0, [1, 2]), (0, [0])]
    assert loader.state_dict() == {"taken": 2, "data_checksum": "abc", "ranks": 1}
    other = _loader("abc")
    other.load_state_dict(dict(loader.state_dict()))
    assert other.state_dict() == {"taken": 2, "data_checksum": "abc", "ranks": 1}
    assert list(other) == [(0, [9]), (1, [1, 2]), (1, [0]), (1, [9])]
    assert other.state_dict() == {"taken": 6, "data_checksum": "abc", "ranks": 1}


def test_a_run_does_not_go_on_with_other_data():
    state = _loader("abc").state_dict()
    with pytest.raises(ValueError, match=r"^the training data, .*, have changed since this run was saved, .*\.$"):
        _loader("other").load_state_dict(state)


def test_batches_are_made_whole_and_not_collated_again():
    class Tensors(Dataset):
        def __getitem__(self, plan: BatchPlan) -> torch.Tensor:
            return torch.tensor(plan.examples)

    loader = ResumableLoader(Tensors(), RunSampler(FixedBatches([[3, 4], [5]]), 2), num_workers=0, pin_memory=False)
    assert [batch.tolist() for batch in loader] == [[3, 4], [5]]
