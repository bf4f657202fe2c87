"""Which examples share a row, where long documents are cut, and the tensors of packed rows."""

import itertools

import numpy as np
import pytest
import torch

from transformer.data.batches.collate import collate_translation
from transformer.data.batches.mixing import Epochs
from transformer.data.batches.packing import (
    BLOCK,
    CHUNK,
    PackedBatches,
    collate_packed_pairs,
    collate_packed_texts,
    pack,
    split_long,
)


def _sentence_lengths(count: int, seed: int = 0) -> np.ndarray:
    """Lengths like those of Multi30k in subwords: 17 on average, at most 60, and alike on both sides."""
    generator = np.random.default_rng(seed)
    source = generator.gamma(8, 2, size=count) + 1
    target = source * generator.normal(1.06, 0.18, size=count)
    return np.stack([source, target], axis=1).round().astype(np.int64).clip(2, 60)


def _check_rows(rows: list[np.ndarray], lengths: np.ndarray, capacity: int) -> None:
    assert sorted(np.concatenate(rows).tolist()) == list(range(len(lengths)))
    assert all(1 <= lengths[row].sum(axis=0).max() <= capacity for row in rows)


@pytest.mark.parametrize("count", [1, 2, 100, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
@pytest.mark.parametrize("sides", [1, 2, 3])
def test_rows_hold_every_example_once_within_the_capacity_of_each_side(count: int, sides: int) -> None:
    lengths = np.random.default_rng(count).integers(1, 41, size=(count, sides))
    _check_rows(pack(lengths, 40), lengths, 40)


def test_more_examples_than_a_block() -> None:
    lengths = _sentence_lengths(BLOCK + 7)
    _check_rows(pack(lengths, 1000), lengths, 1000)


def test_no_example_makes_no_row() -> None:
    assert pack(np.zeros((0, 2), dtype=np.int64), 10) == []


def test_the_longest_examples_come_first_and_go_where_they_fit_best() -> None:
    """6 opens a row, 5 another; 4 fits best beside 6; 3 and 2 fill up the second row."""
    assert [sorted(row.tolist()) for row in pack(np.array([[4], [2], [6], [3], [5]]), 10)] == [[0, 2], [1, 3, 4]]


def test_a_side_that_is_full_closes_the_row_for_all_sides() -> None:
    rows = pack(np.array([[1, 9], [1, 9], [9, 1]]), 10)
    assert sorted(sorted(row.tolist()) for row in rows) in ([[0, 2], [1]], [[0], [1, 2]])


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint16])
def test_the_type_of_lengths_changes_nothing(dtype: type) -> None:
    lengths = _sentence_lengths(500)
    expected = [row.tolist() for row in pack(lengths, 100)]
    assert [row.tolist() for row in pack(lengths.astype(dtype), 100)] == expected


@pytest.mark.parametrize("lengths", [[[11]], [[5], [0]]])
def test_examples_that_no_row_can_hold_are_the_callers_fault(lengths: list[list[int]]) -> None:
    with pytest.raises(AssertionError):
        pack(np.array(lengths), 10)


@pytest.mark.parametrize("capacity", [128, 256, 512])
def test_rows_of_sentences_are_full(capacity: int) -> None:
    lengths = _sentence_lengths(29_000)
    rows = pack(lengths, capacity)
    assert lengths.sum(axis=0).max() / (len(rows) * capacity) >= 0.97


@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_every_epoch_has_each_example_once_in_batches_that_the_ranks_share(ranks: int, rows: int) -> None:
    lengths = _sentence_lengths(1000)
    batches = PackedBatches(lengths, capacity=64, rows=rows, seed=3, ranks=ranks)
    compositions = []
    for epoch in range(3):
        made = list(batches.epoch(epoch))
        assert len(made) == batches.num_batches(epoch)
        assert len(made) % ranks == 0
        assert all(1 <= len(batch) <= rows for batch in made)
        _check_rows([row for batch in made for row in batch], lengths, 64)
        # Only the batches of the very end are divided.
        assert all(len(batch) == rows for batch in made[: -2 * ranks])
        compositions.append(frozenset(frozenset(row.tolist()) for batch in made for row in batch))
    for one, other in itertools.combinations(compositions, 2):
        assert len(one & other) < len(one) / 10  # other company in every epoch, but for rare lengths


def _plain(batches: PackedBatches, epoch: int) -> list[list[list[int]]]:
    return [[row.tolist() for row in batch] for batch in batches.epoch(epoch)]


def test_batches_are_a_function_of_seed_and_epoch() -> None:
    def make(seed: int) -> PackedBatches:
        return PackedBatches(_sentence_lengths(500), capacity=64, rows=4, seed=seed, ranks=1)

    batches = make(1)
    first, second = _plain(batches, 0), _plain(batches, 1)
    assert first == _plain(batches, 0) == _plain(make(1), 0)
    assert second == _plain(make(1), 1)
    assert first != second
    assert first != _plain(make(2), 0) != second


def test_rows_of_long_and_of_short_examples_are_mixed() -> None:
    """Packing begins with the longest; without shuffling, a row's place would tell its lengths."""
    lengths = _sentence_lengths(CHUNK)
    sizes = [
        len(row) for batch in PackedBatches(lengths, capacity=64, rows=1, seed=0, ranks=1).epoch(0) for row in batch
    ]
    half = len(sizes) // 2
    assert abs(np.mean(sizes[:half]) - np.mean(sizes[half:])) < 0.3
    by_length = [len(row) for row in pack(lengths, 64)]
    assert abs(np.mean(by_length[:half]) - np.mean(by_length[half:])) > 0.5


def test_a_large_epoch_is_made_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first batch comes after one block, whatever the number of examples."""
    packed: list[int] = []

    def spied(lengths_NK: np.ndarray, capacity: int) -> list[np.ndarray]:
        packed.append(len(lengths_NK))
        return pack(lengths_NK, capacity)

    monkeypatch.setattr("transformer.data.batches.packing.pack", spied)
    lengths = _sentence_lengths(2 * BLOCK + 1)
    batches = PackedBatches(lengths, capacity=256, rows=16, seed=0, ranks=2).epoch(0)
    made = [next(batches)]
    assert len(packed) == 1
    assert packed[0] <= BLOCK
    made += batches
    assert sum(packed) == len(lengths)
    assert sorted(np.concatenate([row for batch in made for row in batch]).tolist()) == list(range(len(lengths)))
    assert all(len(batch) == 16 for batch in made[:-4])  # blocks leave no smaller batches behind


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_single_rows_are_divided_by_their_examples(ranks: int) -> None:
    """Of 40 rows with one example each and one row with 8, only the latter can be divided, wherever it comes."""
    lengths = np.array([[10]] * 40 + [[1]] * 8)
    for seed in range(10):
        made = list(PackedBatches(lengths, capacity=10, rows=1, seed=seed, ranks=ranks).epoch(0))
        assert len(made) == -(-41 // ranks) * ranks
        _check_rows([row for [row] in made], lengths, 10)


def test_ranks_that_cannot_share_are_told_so() -> None:
    with pytest.raises(ValueError, match="2 examples are too few for 3 ranks; use fewer devices"):
        PackedBatches(np.array([[1], [1]]), capacity=4, rows=2, seed=0, ranks=3)
    with pytest.raises(ValueError, match="2 ranks cannot share the rows evenly, for too few hold several examples"):
        list(PackedBatches(np.full((5, 1), 4), capacity=4, rows=1, seed=0, ranks=2).epoch(0))


def test_an_epoch_may_have_only_some_of_the_examples() -> None:
    epochs = Epochs([10, 90], [0.5, 0.5], seed=0)
    batches = PackedBatches(np.full((100, 1), 3), capacity=9, rows=2, seed=0, ranks=1, epochs=epochs)
    taken = np.concatenate([row for batch in batches.epoch(1) for row in batch])
    assert sorted(taken.tolist()) == sorted(epochs.examples(1).tolist())
    assert (taken < 10).sum() == 50


def test_short_documents_are_one_piece_and_long_ones_overlap_by_one_token() -> None:
    pieces = split_long(np.array([5, 6, 11, 12, 2, 1, 0]), 5)
    found = list(zip(*(column.tolist() for column in pieces), strict=True))
    assert found == [
        (0, 0, 5),
        (1, 0, 6),
        *[(2, 0, 6), (2, 5, 6)],
        *[(3, 0, 6), (3, 5, 6), (3, 10, 2)],
        (4, 0, 2),
    ]


@pytest.mark.parametrize("capacity", [1, 2, 7, 100])
def test_every_token_but_the_first_is_predicted_exactly_once(capacity: int) -> None:
    lengths = np.arange(40)
    pieces = split_long(lengths, capacity)
    predicted: dict[int, list[int]] = {document: [] for document in range(40)}
    for document, start, length in zip(*(column.tolist() for column in pieces), strict=True):
        assert 2 <= length <= capacity + 1
        predicted[document] += range(start + 1, start + length)
    assert predicted == {document: list(range(1, document)) for document in range(40)}


def test_no_document_has_no_piece() -> None:
    assert [len(column) for column in split_long(np.zeros(0, dtype=np.int64), 5)] == [0, 0, 0]


def test_collate_pairs() -> None:
    rows = [[(7, [10, 11], [20]), (3, [], [21, 22])], [(5, [12], [])]]
    batch = collate_packed_pairs(rows, 6, pad_id=0, bos_id=1, eos_id=2)
    assert batch.index_B.tolist() == [7, 3, 5]
    assert batch.source_BS.tolist() == [[10, 11, 2, 2, 0, 0], [12, 2, 0, 0, 0, 0]]
    assert batch.source_segments_BS.tolist() == [[1, 1, 1, 2, 0, 0], [1, 1, 0, 0, 0, 0]]
    assert batch.target_BT.tolist() == [[1, 20, 1, 21, 22, 0], [1, 0, 0, 0, 0, 0]]
    assert batch.labels_BT.tolist() == [[20, 2, 21, 22, 2, 0], [2, 0, 0, 0, 0, 0]]
    assert batch.target_segments_BT.tolist() == [[1, 1, 2, 2, 2, 0], [1, 0, 0, 0, 0, 0]]
    assert torch.equal(batch.source_mask_BS, batch.source_segments_BS > 0)
    assert torch.equal(batch.scored_BT, batch.target_segments_BT > 0)
    assert {tensor.dtype for tensor in batch} == {torch.int64, torch.bool}


def test_collate_texts() -> None:
    batch = collate_packed_texts([[(4, [5, 6, 7]), (9, [8, 9])], [(2, [5, 5, 5, 5, 6])]], 4, pad_id=0)
    assert batch.index_B.tolist() == [4, 9, 2]
    assert batch.tokens_BL.tolist() == [[5, 6, 8, 0], [5, 5, 5, 5]]
    assert batch.labels_BL.tolist() == [[6, 7, 9, 0], [5, 5, 5, 6]]
    assert batch.segments_BL.tolist() == [[1, 1, 2, 0], [1, 1, 1, 1]]
    assert torch.equal(batch.scored_BL, batch.segments_BL > 0)
    assert {tensor.dtype for tensor in batch} == {torch.int64, torch.bool}


def test_ids_may_be_arrays_of_any_integer_type() -> None:
    pairs = [[(0, [5, 6], [7]), (1, [8], [9, 5])]]
    arrays = [
        [(index, np.array(a, dtype=np.uint16), np.array(b, dtype=np.int32)) for index, a, b in row] for row in pairs
    ]
    special = {"pad_id": 0, "bos_id": 1, "eos_id": 2}
    for one, other in zip(
        collate_packed_pairs(pairs, 8, **special), collate_packed_pairs(arrays, 8, **special), strict=True
    ):
        assert torch.equal(one, other)
        assert one.dtype == other.dtype
    texts = [[(0, np.array([5, 6], dtype=np.uint16))]]
    assert collate_packed_texts(texts, 2, pad_id=0).labels_BL.tolist() == [[6, 0]]


def test_a_row_of_one_pair_is_the_plain_row() -> None:
    special = {"pad_id": 0, "bos_id": 1, "eos_id": 2}
    example = (3, [10, 11, 12], [20, 21, 22])
    plain, packed = collate_translation([example], **special), collate_packed_pairs([[example]], 4, **special)
    assert all(torch.equal(one, other) for one, other in zip(plain[:6], packed[:6], strict=True))
    assert plain[6:] == (None, None)


def test_rows_that_do_not_fit_are_the_callers_fault() -> None:
    special = {"pad_id": 0, "bos_id": 1, "eos_id": 2}
    with pytest.raises(AssertionError, match="longer than its width"):
        collate_packed_pairs([[(0, [5, 6], [7]), (1, [8], [9])]], 4, **special)
    with pytest.raises(AssertionError, match="nothing to predict"):
        collate_packed_texts([[(0, [5])]], 4, pad_id=0)
    with pytest.raises(AssertionError, match="a row is empty"):
        collate_packed_texts([[(0, [5, 6])], []], 4, pad_id=0)
