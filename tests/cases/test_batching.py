"""Reported faults of batches, their order and their random numbers, by the id of their case."""

import random
import re

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset

from transformer.data.batches.buckets import BatchPlan, FixedBatches, LengthBucketBatches, RunSampler, batches_by_length
from transformer.data.batches.collate import collate_translation, shift_targets
from transformer.data.batches.config import BatchingConfig
from transformer.data.batches.loading import ResumableLoader
from transformer.data.batches.mixing import Epochs

# DATA-07: lengths with the end token.
LENGTHS = np.array([[3], [12], [4], [5]])


def _buckets(lengths, max_tokens, seed=1):
    return LengthBucketBatches(lengths, max_tokens, Epochs([len(lengths)], None, seed), seed=seed, ranks=1)


def _sorted(batches):
    return sorted(sorted(batch.tolist()) for batch in batches)


def test_DATA_07_sorted_filling_with_a_budget_of_ten():
    order = np.argsort(LENGTHS[:, 0])
    batches = [LENGTHS[order][batch, 0].tolist() for batch in batches_by_length(LENGTHS[order], 10)]
    assert batches == [[3, 4], [5], [12]]
    for seed in (1, 2):
        assert _sorted(_buckets(LENGTHS, 10, seed).epoch(0)) == [[0, 2], [1], [3]]


def test_DATA_07_a_budget_below_every_sentence_makes_singles():
    order = np.argsort(LENGTHS[:, 0])
    batches = [LENGTHS[order][batch, 0].tolist() for batch in batches_by_length(LENGTHS[order], 2)]
    assert batches == [[3], [4], [5], [12]]
    buckets = _buckets(LENGTHS, 2)
    assert buckets.num_batches(0) == 4
    assert _sorted(buckets.epoch(0)) == [[0], [1], [2], [3]]


PAIRS = [("aa", "bb"), ("a" * 11, "b" * 11), ("aaa", "bbb"), ("aaaa", "bbbb")]
IN_VALIDATION = (
    "validation pair 2 has 12 tokens, more than `max_tokens_per_batch` (10): such pairs make batches of one."
)


@pytest.mark.parametrize(
    ("over_long", "done", "training", "longest"),
    [
        (None, "left out", [[0, 2], [3]], 5),
        ("skip", "left out", [[0, 2], [3]], 5),
        ("truncate", "cut", [[0, 2], [1], [3]], 10),
    ],
)
def test_DATA_07_training_and_validation_announce_a_sentence_above_the_budget(
    tiny_bundle, translation_setup, caplog, over_long, done, training, longest
):
    tokenizer = tiny_bundle("encoder_decoder").target_tokenizer
    data = translation_setup(PAIRS, tokenizer, BatchingConfig(max_tokens_per_batch=10, over_long=over_long), 24).data
    assert [re.sub(r"'/\S*/", "'", message) for message in caplog.messages] == [
        "1 of 4 training pairs are longer than a whole batch, `max_tokens_per_batch` (10 tokens), the first is "
        f"'pairs.jsonl', line 2, with 12 tokens; they are {done}.",
        IN_VALIDATION,
    ]
    assert _sorted(data.train_batches(1).epoch(0)) == training
    batches = list(data.train_dataloader())
    assert _sorted(batch.index_B for batch in batches) == training
    assert max(batch.source_BS.shape[1] for batch in batches) == longest
    batches = list(data.val_dataloader())
    assert _sorted(batch.index_B for batch in batches) == [[0, 2], [1], [3]]
    assert max(batch.source_BS.shape[1] for batch in batches) == 12  # whole


def test_DATA_07_a_sentence_above_the_budget_may_be_refused(tiny_bundle, translation_setup):
    tokenizer = tiny_bundle("encoder_decoder").target_tokenizer
    message = r"^1 of 4 training pairs .* a whole batch, .*, the first is '.*pairs.jsonl', line 2, with 12 tokens\.$"
    with pytest.raises(ValueError, match=message):
        translation_setup(PAIRS, tokenizer, BatchingConfig(max_tokens_per_batch=10, over_long="error"), 24)
    with pytest.raises(ValueError, match=r"^no training pair is within a whole batch, .* \(2 tokens\)\.$"):
        translation_setup(PAIRS[1:], tokenizer, BatchingConfig(max_tokens_per_batch=2), 24)


def test_LOSS_07_targets_are_shifted_once():
    assert shift_targets([7, 8, 9], 1, 2) == ([1, 7, 8, 9], [7, 8, 9, 2])
    assert shift_targets([], 1, 2) == ([1], [2])
    batch = collate_translation(
        [(0, [4], [7, 8, 9]), (1, [4], [5, 6, 7, 8, 9]), (2, [4], [])], pad_id=0, bos_id=1, eos_id=2
    )
    assert batch.target_BT.tolist() == [[1, 7, 8, 9, 0, 0], [1, 5, 6, 7, 8, 9], [1, 0, 0, 0, 0, 0]]
    assert batch.labels_BT.tolist() == [[7, 8, 9, 2, 0, 0], [5, 6, 7, 8, 9, 2], [2, 0, 0, 0, 0, 0]]
    assert batch.scored_BT.sum(1).tolist() == [4, 6, 1]
    for row in range(3):
        assert batch.target_BT[row].tolist().count(1) == 1
        assert batch.labels_BT[row][batch.scored_BT[row]].tolist().count(2) == 1
        assert 2 not in batch.target_BT[row]
    assert min(int(tensor.min()) for tensor in batch if tensor is not None) >= 0


# CKPT-03: items 0..9, batch 2, seed 1, three epochs of five steps.


class _Numbers(Dataset):
    """The batch of a plan is its examples' numbers."""

    def __getitem__(self, plan: BatchPlan):
        return torch.as_tensor(plan.examples)


def _loader(num_workers):
    batches = _buckets(np.ones((10, 1), dtype=np.int64), 2)
    return ResumableLoader(_Numbers(), RunSampler(batches, 15), num_workers=num_workers, pin_memory=False)


def _log(loader, steps):
    log, batches = [], iter(loader)
    while len(log) < steps:
        log.append(next(batches).tolist())
    return log


def test_CKPT_03_epochs_are_different_permutations():
    log = _log(_loader(0), 15)
    assert log == _log(_loader(2), 15)
    epochs = [[item for batch in log[start : start + 5] for item in batch] for start in (0, 5, 10)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 3
    assert len(set(map(tuple, epochs))) == 3


@pytest.mark.parametrize("stop", [7, 10])
@pytest.mark.parametrize(("workers", "workers_after"), [(0, 0), (2, 2), (2, 0), (0, 2)])
def test_CKPT_03_data_order_after_resuming(stop, workers, workers_after):
    """Prefetched batches that nobody took are not lost."""
    first = _loader(workers)
    log = _log(first, stop)
    state = first.state_dict()
    assert state == {"taken": stop, "data_checksum": "", "ranks": 1}
    second = _loader(workers_after)
    second.load_state_dict(state)
    log += _log(second, 15 - stop)
    assert log == _log(_loader(0), 15)
    assert second.state_dict() == {"taken": 15, "data_checksum": "", "ranks": 1}


# DATA-10: draws in the workers.


class _Draws(Dataset):
    def __getitem__(self, plan: BatchPlan):
        return [(int(index), self._draw()) for index in plan.examples]

    def _draw(self):
        return np.random.randint(2**32), random.getrandbits(32), int(torch.randint(2**32, ()))


def _two_epochs(num_workers, seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    batches = _buckets(np.ones((16, 1), dtype=np.int64), 2, seed)
    loader = ResumableLoader(_Draws(), RunSampler(batches, 16), num_workers=num_workers, pin_memory=False)
    items = [item for batch in loader for item in batch]
    return [index for index, _ in items], [draws for _, draws in items]


@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")  # more workers than cores
def test_DATA_10_draws_in_workers():
    runs = {(workers, seed): _two_epochs(workers, seed) for workers in (0, 2, 4) for seed in (1, 2)}
    for indices, draws in runs.values():
        assert sorted(indices) == sorted([*range(16)] * 2)
        for kind in range(3):  # numpy, python, torch: no number drawn twice, in any worker or epoch
            assert len({draw[kind] for draw in draws}) == 32
    for seed in (1, 2):
        assert runs[0, seed][0] == runs[2, seed][0] == runs[4, seed][0]
    assert runs[0, 1][0] != runs[0, 2][0]
    assert _two_epochs(2, 1) == runs[2, 1]


def test_DATA_10_the_test_set_stays_in_order_with_workers():
    batches = FixedBatches([[0, 1, 2], [3], [6]])
    loader = ResumableLoader(_Numbers(), RunSampler(batches, 3), num_workers=2, pin_memory=False)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2], [3], [6]]
