"""Sentence pairs as ids: tags, limits, batches, and subwords drawn at random."""

import itertools
import pickle
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from transformer.data.batches.buckets import BatchPlan, LengthBucketBatches, RunSampler
from transformer.data.batches.collate import TranslationBatch
from transformer.data.batches.loading import ResumableLoader
from transformer.data.batches.mixing import Epochs
from transformer.data.batches.pairs import (
    CorpusPairs,
    FittedPairs,
    MemoryPairs,
    PairExamples,
    PairTokenizers,
    example_random,
)
from transformer.data.preparation.arrow import TEXT, IdTable, TableWriter, TextTable, id_type
from transformer.data.preparation.ids import EncodedCorpus
from transformer.data.subwords.config import BpeConfig, ByteConfig
from transformer.data.subwords.tokenizer import Tokenizer

TAGS = ["<2de>", "<2fr>"]
WORDS = ["the", "quick", "brown", "foxes", "jumped", "over", "lazy", "dogs", "while", "other", "animals", "watched"]
ROWS = [
    (" ".join(WORDS[place % 5 : place % 5 + 1 + place % 7]), " ".join(WORDS[place % 3 : place % 3 + 2 + place % 6]))
    for place in range(40)
]


@pytest.fixture(scope="module")
def bpe() -> PairTokenizers:
    tokenizer = Tokenizer.train(BpeConfig(vocab_size=300), [text for row in ROWS for text in row], TAGS)
    return PairTokenizers(tokenizer, tokenizer)


def encoded(folder: Path, rows: Sequence[tuple[str, str]], tokenizers: PairTokenizers) -> EncodedCorpus:
    folder.mkdir()
    with TableWriter(folder / "texts.arrow", 2, TEXT) as texts:
        texts.write(list(zip(*rows, strict=True)), range(len(rows)))
    with TableWriter(folder / "ids.arrow", 2, id_type(tokenizers.source.vocab_size)) as ids:
        sides = zip(tokenizers, zip(*rows, strict=True), strict=True)
        ids.write([tokenizer.encode_batch(list(side)) for tokenizer, side in sides], range(len(rows)))
    return EncodedCorpus(IdTable(folder / "ids.arrow"), TextTable(folder / "texts.arrow"), (), "checksum")


def lists(pair: tuple[Sequence[int], Sequence[int]]) -> tuple[list[int], list[int]]:
    source, target = pair
    return list(map(int, source)), list(map(int, target))


def test_pairs_in_memory_and_on_disk_are_the_same_and_sources_begin_with_one_tag(
    tmp_path: Path, bpe: PairTokenizers
) -> None:
    corpora = [encoded(tmp_path / name, rows, bpe) for name, rows in (("a", ROWS[:15]), ("b", ROWS[15:]))]
    on_disk = CorpusPairs(corpora, ["<2fr>", None], bpe)
    in_memory = MemoryPairs.encode(ROWS, ["<2fr>"] * 15 + [None] * 25, bpe)
    assert len(on_disk) == len(in_memory) == 40
    tag = bpe.source.tag_id("<2fr>")
    for number, (source, target) in enumerate(ROWS):
        before = [tag] if number < 15 else []
        expected = [*before, *bpe.source.encode(source)], bpe.target.encode(target)
        assert lists(on_disk.pair(number)) == lists(in_memory.pair(number)) == expected
        assert on_disk.lengths_N2[number].tolist() == [len(side) + 1 for side in expected]
        assert in_memory.lengths_N2[number].tolist() == [len(side) + 1 for side in expected]
    assert on_disk.corpus_of(np.array([0, 14, 15, 39])).tolist() == [0, 0, 1, 1]


def test_text_that_looks_like_a_tag_stays_text(bpe: PairTokenizers) -> None:
    pairs = MemoryPairs.encode([("<2de> the dogs", "<2de>"), ("</s>", "<pad>")], ["<2fr>", None], bpe)
    source, target = pairs.pair(0)
    special = {bpe.source.tag_id(tag) for tag in TAGS} | {bpe.source.pad_id, bpe.source.bos_id, bpe.source.eos_id}
    assert source[0] == bpe.source.tag_id("<2fr>")
    assert special.isdisjoint([*source[1:], *target, *pairs.pair(1)[0], *pairs.pair(1)[1]])
    assert bpe.source.decode(source) == "<2de> the dogs"
    assert (bpe.target.decode(target), bpe.target.decode(pairs.pair(1)[1])) == ("<2de>", "<pad>")


def test_an_unknown_tag_is_refused(bpe: PairTokenizers) -> None:
    with pytest.raises(ValueError, match="The tag '<2xx>' is not in the vocabulary; the tags there are '<2de>'"):
        MemoryPairs.encode(ROWS[:1], ["<2xx>"], bpe)


SHORT_AND_LONG = MemoryPairs([[5], [5] * 4, [6] * 5, [7]], [[8], [8] * 4, [9], [9] * 9])
LIMIT = ("training", "`max_length` (5 tokens)")


def test_longer_pairs_are_left_out_and_the_others_keep_their_numbers(caplog: pytest.LogCaptureFixture) -> None:
    fitted = FittedPairs(SHORT_AND_LONG, 5, LIMIT, "skip")
    assert fitted.numbers.tolist() == [0, 1]  # a pair exactly at the limit stays
    assert caplog.messages == [
        "2 of 4 training pairs are longer than `max_length` (5 tokens), the first is number 3, "
        "with 6 tokens; they are left out."
    ]
    assert lists(fitted.pair(1)) == ([5] * 4, [8] * 4)


def test_longer_pairs_are_cut(caplog: pytest.LogCaptureFixture) -> None:
    fitted = FittedPairs(SHORT_AND_LONG, 5, LIMIT, "truncate")
    assert fitted.numbers.tolist() == [0, 1, 2, 3]
    assert [lists(fitted.pair(number)) for number in (2, 3)] == [([6] * 4, [9]), ([7], [9] * 4)]
    assert fitted.lengths_N2.tolist() == [[2, 2], [5, 5], [5, 2], [2, 5]]
    assert caplog.messages[0].endswith("with 6 tokens; they are cut.")


def test_longer_pairs_are_refused_and_nothing_left_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"^2 of 4 training pairs are longer than `max_length` \(5 tokens\), the .*6"):
        FittedPairs(SHORT_AND_LONG, 5, LIMIT, "error")
    assert FittedPairs(SHORT_AND_LONG, 10, LIMIT, "error").numbers.tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=r"^no training pair is within `max_length` \(5 tokens\).$"):
        FittedPairs(MemoryPairs([[1] * 9], [[1]]), 5, LIMIT, "skip")


def test_batches_of_pairs() -> None:
    tokenizer = Tokenizer.train(ByteConfig(), [])
    examples = PairExamples(MemoryPairs([[10, 11], [12], []], [[20], [21, 22], [23]]), PairTokenizers(*[tokenizer] * 2))
    batch = examples[BatchPlan(3, np.array([2, 0]))]
    assert batch.index_B.tolist() == [2, 0]
    assert batch.source_BS.tolist() == [[2, 0, 0], [10, 11, 2]]
    assert batch.target_BT.tolist() == [[1, 23], [1, 20]]
    assert batch.labels_BT.tolist() == [[23, 2], [20, 2]]
    packed = PairExamples(examples.pairs, PairTokenizers(*[tokenizer] * 2), packed_width=6)
    batch = packed[BatchPlan(0, [np.array([1, 0]), np.array([2])])]
    assert batch.index_B.tolist() == [1, 0, 2]
    assert batch.source_BS.tolist() == [[12, 2, 10, 11, 2, 0], [2, 0, 0, 0, 0, 0]]
    assert batch.labels_BT.tolist() == [[21, 22, 2, 20, 2, 0], [23, 2, 0, 0, 0, 0]]


def batches_of(examples: PairExamples, num_workers: int) -> list[TranslationBatch]:
    """Two epochs in batches of about 60 tokens."""
    lengths = examples.pairs.lengths_N2
    batches = LengthBucketBatches(lengths, 60, Epochs([len(lengths)], None, 4), seed=4, ranks=1)
    sampler = RunSampler(batches, 2 * batches.num_batches(0))
    return list(ResumableLoader(examples, sampler, num_workers=num_workers, pin_memory=False))


def cuts(batches: Sequence[TranslationBatch]) -> dict[int, list[int]]:
    """The ids of each source."""
    return {
        index: ids[mask].tolist()
        for batch in batches
        for index, ids, mask in zip(batch.index_B.tolist(), batch.source_BS, batch.source_mask_BS, strict=True)
    }


def test_subwords_drawn_at_random_are_a_function_of_seed_epoch_and_example(tmp_path: Path, bpe: PairTokenizers) -> None:
    pairs = CorpusPairs([encoded(tmp_path / "a", ROWS, bpe)], ["<2de>"], bpe, dropout=0.3)
    alone = batches_of(PairExamples(pairs, bpe, sampling_seed=1), 0)
    for again in (batches_of(PairExamples(pairs, bpe, sampling_seed=1), workers) for workers in (0, 2)):
        assert len(again) == len(alone)
        for one, other in zip(alone, again, strict=True):
            assert all(torch.equal(left, right) for left, right in zip(one[:6], other[:6], strict=True))
    half = len(alone) // 2
    first, second, plain = cuts(alone[:half]), cuts(alone[half:]), cuts(batches_of(PairExamples(pairs, bpe), 0))
    other_seed = cuts(batches_of(PairExamples(pairs, bpe, sampling_seed=2), 0)[:half])
    for one, other in itertools.combinations([first, second, plain, other_seed], 2):
        assert one.keys() == other.keys() == set(range(40))
        assert sum(one[number] != other[number] for number in range(40)) > 20
    for number, (source, _) in enumerate(ROWS):
        assert first[number][0] == bpe.source.tag_id("<2de>")
        assert bpe.source.decode(first[number][1:]) == bpe.source.decode(second[number]) == source
    # The first five sources come again as the last five.
    assert sum(first[number] != first[number + 35] for number in range(5)) > 1
    # An example is cut in the same way whatever shares its batch.
    examples = PairExamples(pairs, bpe, sampling_seed=1)
    assert cuts([examples[BatchPlan(0, [number])] for number in range(40)]) == first
    assert cuts([examples[BatchPlan(1, range(39, -1, -1))]]) == second


def test_numbers_for_two_examples_or_epochs_differ() -> None:
    draws = {example_random(*key).random() for key in itertools.product(range(3), range(20), range(20))}
    assert len(draws) == 3 * 20 * 20


@pytest.mark.parametrize("over_long", ["skip", "truncate"])
def test_subwords_drawn_at_random_are_never_longer_than_the_limit(
    tmp_path: Path, bpe: PairTokenizers, over_long: str
) -> None:
    pairs = CorpusPairs([encoded(tmp_path / "a", ROWS, bpe)], ["<2de>"], bpe, dropout=0.05)
    fitted = FittedPairs(pairs, 8, LIMIT, "skip" if over_long == "skip" else "truncate")
    kept = fitted.numbers.tolist()
    assert 10 < len(kept) < 40 or over_long == "truncate"
    longest, fallen_back, longer = 0, 0, 0
    for number in kept:
        drawn = lists(fitted.sampled(number, Random(number)))
        longest = max(longest, *map(len, drawn))
        free = lists(pairs.sampled(number, Random(number)))
        fits = max(map(len, free)) <= 7
        assert drawn == (free if fits else lists(fitted.pair(number)))
        fallen_back += not fits
        longer += fits and len(drawn[0]) > len(fitted.pair(number)[0])
    assert longest == 7
    assert fallen_back > 3
    assert longer > 3


def test_pairs_go_to_workers_that_are_started_anew(tmp_path: Path, bpe: PairTokenizers) -> None:
    pairs = CorpusPairs([encoded(tmp_path / "a", [*ROWS, ("</s> <2de>", "x")], bpe)], ["<2de>"], bpe, dropout=0.3)
    examples = PairExamples(FittedPairs(pairs, 50, LIMIT, "truncate"), bpe, sampling_seed=1)
    batch = examples[BatchPlan(5, [40, 3])]
    copy = pickle.loads(pickle.dumps(examples))[BatchPlan(5, [40, 3])]
    assert all(torch.equal(left, right) for left, right in zip(batch[:6], copy[:6], strict=True))


def test_subwords_drawn_at_random_stay_within_the_budget(tmp_path: Path, bpe: PairTokenizers) -> None:
    pairs = CorpusPairs([encoded(tmp_path / "a", ROWS, bpe)], [None], bpe, dropout=0.5)
    budget = int(pairs.lengths_N2.max()) * len(ROWS)
    plan = BatchPlan(0, range(len(ROWS)))
    free = PairExamples(pairs, bpe, sampling_seed=1)[plan]
    fitted = PairExamples(pairs, bpe, sampling_seed=1, max_tokens=budget)[plan]
    assert max(free.source_BS.numel(), free.labels_BT.numel()) > budget
    assert max(fitted.source_BS.numel(), fitted.labels_BT.numel()) <= budget
    plain, drawn, kept = (cuts([batch]) for batch in (PairExamples(pairs, bpe)[plan], free, fitted))
    assert all(kept[number] in (plain[number], drawn[number]) for number in kept)
    assert sum(kept[number] == drawn[number] != plain[number] for number in kept) > 5
