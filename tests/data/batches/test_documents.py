"""Documents of a language model: one sequence of ids, its windows, and packed documents."""

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from transformer.data.batches.buckets import BatchPlan
from transformer.data.batches.collate import TextBatch
from transformer.data.batches.documents import (
    Documents,
    PackedDocuments,
    Segments,
    TokenStream,
    WindowBatches,
    Windows,
    encode_documents,
)
from transformer.data.batches.packing import PackedBatches
from transformer.data.preparation.arrow import IdTable, TableWriter, id_type
from transformer.data.subwords.config import ByteConfig
from transformer.data.subwords.tokenizer import Tokenizer

DOCUMENTS = [[1, 10, 2], [1, 2], [1, *range(20, 31), 2], [], [5], [1, 40, 41, 2]]


def test_documents_stand_between_marks_or_not() -> None:
    tokenizer = Tokenizer.train(ByteConfig(), [])
    texts = ["ab", "é", ""]
    plain = [tokenizer.encode(text) for text in texts]
    assert encode_documents(texts, tokenizer, mark_documents=False) == Documents(plain, 4)
    assert encode_documents(texts, tokenizer, mark_documents=True) == Documents([[1, *ids, 2] for ids in plain], 4)


@pytest.mark.parametrize("cuts", [[], [3], [1, 2, 3], [0, 5, 5, 9]])
def test_a_stream_gives_any_part_wherever_its_chunks_end(cuts: list[int]) -> None:
    ids = np.arange(100, 110)
    stream = TokenStream(np.split(ids, cuts))
    assert len(stream) == 10
    for start, stop in itertools.combinations(range(13), 2):
        if start < 10:
            assert stream.part(start, stop).tolist() == ids[start:stop].tolist()


def test_a_stream_of_documents_in_memory() -> None:
    stream = TokenStream.of(DOCUMENTS)
    assert stream.part(0, len(stream)).tolist() == [index for document in DOCUMENTS for index in document]
    assert len(TokenStream.of([])) == len(TokenStream([])) == 0


def test_windows_read_one_token_more_for_the_last_label() -> None:
    batch = Windows(TokenStream.of([[7, 8, 9], [10, 11, 12]]), 4, 0)[BatchPlan(0, np.array([1, 3, 0]))]
    assert batch.index_B.tolist() == [1, 3, 0]
    assert batch.tokens_BL.tolist() == [[8, 9, 10, 11], [10, 11, 0, 0], [7, 8, 9, 10]]
    assert batch.labels_BL.tolist() == [[9, 10, 11, 12], [11, 12, 0, 0], [8, 9, 10, 11]]
    assert batch.scored_BL.tolist() == [[True] * 4, [True, True, False, False], [True] * 4]
    assert batch.segments_BL is None


@pytest.mark.parametrize("num_tokens", [2, 5, 6, 7, 11, 12, 13, 100, 101, 106])
@pytest.mark.parametrize("ranks", [1, 2])
def test_windows_do_not_overlap_and_reach_every_token(num_tokens: int, ranks: int) -> None:
    """Windows of five tokens; the last label is one token further."""
    count = max((num_tokens - 5) // 5, 1)
    if count < ranks:
        with pytest.raises(ValueError, match="1 examples are too few for 2 ranks"):
            WindowBatches([num_tokens], 5, 3, None, seed=1, ranks=ranks)
        return
    windows = WindowBatches([num_tokens], 5, 3, None, seed=1, ranks=ranks)
    read, offsets = set(), set()
    for epoch in range(60):
        batches = list(windows.epoch(epoch))
        assert len(batches) == windows.num_batches(epoch)
        assert len(batches) % ranks == 0
        assert all(1 <= len(batch) <= 3 for batch in batches)
        starts = sorted(int(start) for batch in batches for start in batch)
        assert starts[0] <= 8  # less than two windows are left out
        assert all(after - before == 5 for before, after in itertools.pairwise(starts))
        assert starts[-1] + 5 <= num_tokens - 1 or len(starts) == 1  # room for the last label
        assert len(starts) == count
        offsets.add(starts[0])
        read |= {start + place for start in starts for place in range(5) if start + place < num_tokens - 1}
    assert read == set(range(num_tokens - 1))  # every token that has a successor
    assert len(offsets) == max(num_tokens - 1 - 5 * count, 0) + 1


def plain(batches: WindowBatches, epoch: int) -> list[list[int]]:
    return [batch.tolist() for batch in batches.epoch(epoch)]


@pytest.mark.parametrize("sizes", [[1001], [700, 300]])
def test_windows_are_a_function_of_seed_and_epoch(sizes: list[int]) -> None:
    one = WindowBatches(sizes, 10, 8, None, seed=3, ranks=1)
    other = WindowBatches(sizes, 10, 8, None, seed=3, ranks=1)
    plain(other, 5)
    assert plain(one, 1) == plain(other, 1)
    assert plain(one, 0) != plain(one, 1)
    assert plain(one, 0) != plain(WindowBatches(sizes, 10, 8, None, seed=4, ranks=1), 0)
    assert plain(one, 1) != plain(WindowBatches(sizes, 10, 8, None, seed=4, ranks=1), 0)


def test_windows_of_several_corpora_stay_within_theirs_and_are_shuffled_together() -> None:
    batches = WindowBatches([205, 52, 1003], 10, 4, None, seed=2, ranks=1)
    offsets = set()
    for epoch in range(20):
        starts = np.concatenate(list(batches.epoch(epoch)))
        parts = [starts[(low <= starts) & (starts < high)] for low, high in [(0, 205), (205, 257), (257, 1260)]]
        assert list(map(len, parts)) == [19, 4, 99]
        assert all(part.max() + 10 < end for part, end in zip(parts, [205, 257, 1260], strict=True))
        assert all(len(set((part % 10).tolist())) == 1 for part in parts)  # one offset for each: no overlap
        offsets |= {(number, int(part.min())) for number, part in enumerate(parts)}
    assert min(Counter(number for number, _ in offsets).values()) > 5  # others in other epochs
    middle = [any(start < 257 for start in batch.tolist()) for batch in batches.epoch(0)]
    assert 5 < sum(middle) < 25  # of 31 batches; neither corpus is alone at the front


def test_windows_of_a_mixture_have_its_shares_and_use_up_a_corpus_before_it_repeats() -> None:
    """Of 20 and 100 windows an epoch takes 10 and 110: two epochs are one pass over the first corpus."""
    batches = WindowBatches([215, 1015], 10, 4, [1 / 12, 11 / 12], seed=2, ranks=1)
    passes = set()
    for epoch in range(0, 12, 2):
        parts = [np.concatenate(list(batches.epoch(number))) for number in (epoch, epoch + 1)]
        small = [sorted(part[part < 215].tolist()) for part in parts]
        assert [len(part) for part in parts] == [120, 120]
        assert [len(part) for part in small] == [10, 10]
        both = sorted(small[0] + small[1])
        assert [after - before for before, after in itertools.pairwise(both)] == [10] * 19
        passes.add(tuple(small[0]))
    assert len(passes) == 6


def naive_pieces(documents: Sequence[Sequence[int]], capacity: int) -> list[list[int]]:
    """Every document cut after each `capacity` predictions; a piece begins with the last token before it."""
    pieces = []
    for document in documents:
        pieces += [list(document[at : at + capacity + 1]) for at in range(0, len(document) - 1, capacity)]
    return pieces


@pytest.mark.parametrize("capacity", [1, 2, 4, 100])
def test_segments_are_pieces_of_documents_in_tables_and_in_memory(tmp_path: Path, capacity: int) -> None:
    with TableWriter(tmp_path / "ids.arrow", 1, id_type(100)) as writer:
        writer.write([DOCUMENTS[:4]], range(4))
        writer.write([DOCUMENTS[4:]], range(2))
    segments = Segments([IdTable(tmp_path / "ids.arrow"), [[1, 50, 2], [1, 60, 61, 2]]], capacity)
    expected = [naive_pieces(DOCUMENTS, capacity), naive_pieces([[1, 50, 2], [1, 60, 61, 2]], capacity)]
    assert segments.num_of_table == list(map(len, expected))
    assert [list(map(int, segments.ids(number))) for number in range(len(segments))] == expected[0] + expected[1]
    assert segments.lengths_P1.tolist() == [[len(piece) - 1] for piece in expected[0] + expected[1]]


def transitions(batch: TextBatch) -> list[tuple[int, int]]:
    """Each scored token with the one before it."""
    scored = batch.scored_BL
    return list(zip(batch.tokens_BL[scored].tolist(), batch.labels_BL[scored].tolist(), strict=True))


def test_packed_documents_predict_every_token_after_its_own_predecessor() -> None:
    segments = Segments([DOCUMENTS], 4)
    packed = PackedDocuments(segments, 4, 0)
    batches = PackedBatches(segments.lengths_P1, capacity=4, rows=2, seed=1, ranks=1)
    made = [packed[BatchPlan(0, plan)] for plan in batches.epoch(0)]
    expected = Counter(pair for document in DOCUMENTS for pair in itertools.pairwise(document))
    assert Counter(pair for batch in made for pair in transitions(batch)) == expected
    assert sorted(index for batch in made for index in batch.index_B.tolist()) == list(range(len(segments)))
    for batch in made:
        assert batch.tokens_BL.shape[1] == 4
        assert batch.segments_BL is not None
        assert batch.segments_BL.gt(0).equal(batch.scored_BL)


def test_no_window_reads_on_into_the_next_corpus() -> None:
    stream = TokenStream([np.arange(5, dtype=np.int32), np.arange(100, 130, dtype=np.int32)])
    windows = Windows(stream, 8, pad_id=0, sizes=[5, 30])
    batch = windows[BatchPlan(0, [0, 5])]
    assert batch.labels_BL[batch.scored_BL].tolist() == [1, 2, 3, 4, *range(101, 109)]
