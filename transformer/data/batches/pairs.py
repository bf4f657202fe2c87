"""Sentence pairs as token ids, in memory or on disk, and the batches that are made of them."""

import logging
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple, Self

import numpy as np
from torch.utils.data import Dataset

from transformer.data.batches.buckets import Batches, BatchPlan, LengthBucketBatches, longest_side
from transformer.data.batches.collate import TranslationBatch, collate_translation
from transformer.data.batches.config import BatchingConfig, OverLong
from transformer.data.batches.mixing import Epochs
from transformer.data.batches.packing import PackedBatches, collate_packed_pairs
from transformer.data.preparation.arrow import Ids, IntArray, TokenIds
from transformer.data.preparation.ids import EncodedCorpus
from transformer.data.subwords.tokenizer import Tokenizer

log = logging.getLogger(__name__)


class PairTokenizers(NamedTuple):
    """The tokenizers of both sides; the same object for a joint vocabulary. Both have the same special ids."""

    source: Tokenizer
    target: Tokenizer


class Pairs(ABC):
    """Numbered sentence pairs as token ids without start and end tokens; sources begin with their tag, if any.

    Attributes:
        lengths_N2: what each side takes in a batch: its ids and one start or end token.
    """

    lengths_N2: IntArray

    @abstractmethod
    def pair(self, number: int) -> tuple[TokenIds, TokenIds]:
        """Source and target."""

    def sampled(self, number: int, random: Random) -> tuple[TokenIds, TokenIds]:
        """Source and target in subwords drawn at random, no longer than `pair` allows."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.lengths_N2)


class MemoryPairs(Pairs):
    """Pairs in memory."""

    def __init__(self, sources: Sequence[TokenIds], targets: Sequence[TokenIds]) -> None:
        self.sources, self.targets = sources, targets
        pairs = zip(sources, targets, strict=True)
        self.lengths_N2 = np.array(
            [(len(source) + 1, len(target) + 1) for source, target in pairs], dtype=np.int64
        ).reshape(-1, 2)

    @classmethod
    def encode(cls, rows: Sequence[tuple[str, ...]], tags: Sequence[str | None], tokenizers: PairTokenizers) -> Self:
        """From texts; ``tags`` has one for each row."""
        sources = tokenizers.source.encode_batch([source for source, _ in rows])
        targets = tokenizers.target.encode_batch([target for _, target in rows])
        starts = {tag: [] if tag is None else [tokenizers.source.tag_id(tag)] for tag in set(tags)}
        return cls([[*starts[tag], *source] for tag, source in zip(tags, sources, strict=True)], targets)

    def pair(self, number: int) -> tuple[TokenIds, TokenIds]:
        return self.sources[number], self.targets[number]


class CorpusPairs(Pairs):
    """The pairs of prepared corpora, where they lie on disk, one corpus after another.

    Args:
        corpora: at least one.
        tags: what each corpus's sources begin with, or None.
        tokenizers: what they were cut with.
        dropout: of merges, for :meth:`sampled`.
    """

    def __init__(
        self,
        corpora: Sequence[EncodedCorpus],
        tags: Sequence[str | None],
        tokenizers: PairTokenizers,
        *,
        dropout: float = 0.0,
    ) -> None:
        self.corpora, self.tokenizers, self.dropout = corpora, tokenizers, dropout
        self.tag_ids = [None if tag is None else tokenizers.source.tag_id(tag) for tag in tags]
        self._starts = np.cumsum([0, *(len(corpus.ids) for corpus in corpora)])
        lengths = [
            corpus.ids.lengths_NK + np.array([[1 + (tag is not None), 1]], dtype=np.int32)
            for corpus, tag in zip(corpora, tags, strict=True)
        ]
        self.lengths_N2 = np.concatenate(lengths)

    def pair(self, number: int) -> tuple[Ids, Ids]:
        corpus, row = self._locate(number)
        ids = self.corpora[corpus].ids
        return self._tagged(corpus, ids.ids(row, 0)), ids.ids(row, 1)

    def sampled(self, number: int, random: Random) -> tuple[Ids, Ids]:
        corpus, row = self._locate(number)
        source, target = self.corpora[corpus].texts.texts(row)
        source_ids = np.array(self.tokenizers.source.sampled(source, self.dropout, random), dtype=np.int64)
        target_ids = np.array(self.tokenizers.target.sampled(target, self.dropout, random), dtype=np.int64)
        return self._tagged(corpus, source_ids), target_ids

    def place(self, number: int) -> tuple[int, int]:
        """The corpus of a pair, and its place there."""
        corpus, row = self._locate(number)
        return corpus, self.corpora[corpus].ids.place(row)

    def texts(self, number: int) -> tuple[str, ...]:
        """The texts of a pair."""
        corpus, row = self._locate(number)
        return self.corpora[corpus].texts.texts(row)

    def corpus_of(self, numbers_N: IntArray) -> IntArray:
        """The corpus of each pair."""
        return np.searchsorted(self._starts, numbers_N, side="right") - 1

    def _tagged(self, corpus: int, ids: Ids) -> Ids:
        tag = self.tag_ids[corpus]
        return ids if tag is None else np.concatenate([np.array([tag], dtype=ids.dtype), ids])

    def _locate(self, number: int) -> tuple[int, int]:
        corpus = int(np.searchsorted(self._starts, number, side="right")) - 1
        return corpus, number - int(self._starts[corpus])


class FittedPairs(Pairs):
    """Pairs of which none is longer than a limit: longer ones are left out, cut, or refused.

    A pair keeps the number it has in `pairs`, also when others are left out; ``numbers`` are those that are left, and
    ``too_long`` those beyond the limit.

    Args:
        pairs: what to choose from.
        limit: tokens of a side at most, start or end token included.
        what: the pairs and the limit, for messages.
        over_long: what to do.
        where: names a pair for messages.

    Raises:
        ValueError: a pair is too long and `over_long` is ``error``, or no pair is left.
    """

    def __init__(
        self,
        pairs: Pairs,
        limit: int,
        what: tuple[str, str],
        over_long: OverLong,
        where: Callable[[int], str] = lambda number: f"number {number + 1}",
    ) -> None:
        self.pairs, self.room = pairs, limit - 1
        self.lengths_N2 = np.minimum(pairs.lengths_N2, limit)
        self.numbers, self.too_long = np.arange(len(pairs)), np.arange(0)
        longest_N = longest_side(pairs.lengths_N2)
        too_long = np.flatnonzero(longest_N > limit)
        if len(too_long) == 0:
            return
        first = int(too_long[0])
        self.too_long = too_long
        found = (
            f"{len(too_long)} of {len(pairs)} {what[0]} pairs are longer than {what[1]}, the first is {where(first)}, "
            f"with {int(longest_N[first])} tokens"
        )
        if over_long == "error":
            raise ValueError(f"{found}.")
        log.warning("%s; they are %s.", found, "left out" if over_long == "skip" else "cut")
        if over_long == "skip":
            self.numbers = np.flatnonzero(longest_N <= limit)
            if len(self.numbers) == 0:
                raise ValueError(f"no {what[0]} pair is within {what[1]}.")

    def pair(self, number: int) -> tuple[TokenIds, TokenIds]:
        source, target = self.pairs.pair(number)
        return source[: self.room], target[: self.room]

    def sampled(self, number: int, random: Random) -> tuple[TokenIds, TokenIds]:
        source, target = self.pairs.sampled(number, random)
        if max(len(source), len(target)) > self.room:  # smaller pieces are more pieces: take those that fit
            return self.pair(number)
        return source, target


class PairExamples(Dataset[TranslationBatch]):
    """Makes the batches that a :class:`BatchPlan` asks for.

    Args:
        pairs: the examples.
        tokenizers: for the special ids.
        sampling_seed: cut texts into subwords anew each time, at random: a function of this seed, the epoch and the
            example. None takes the ids as they are.
        max_tokens: padded tokens of a side at most, where texts are cut anew: the examples that make a batch too large
            are taken as they are.
        packed_width: put several examples into rows of so many tokens; plans then name rows of examples.
    """

    def __init__(
        self,
        pairs: Pairs,
        tokenizers: PairTokenizers,
        *,
        sampling_seed: int | None = None,
        max_tokens: int = sys.maxsize,
        packed_width: int | None = None,
    ) -> None:
        self.pairs, self.sampling_seed, self.packed_width = pairs, sampling_seed, packed_width
        self.max_tokens = max_tokens
        assert tokenizers.source.control_ids == tokenizers.target.control_ids
        self.pad_id, self.bos_id, self.eos_id = tokenizers.target.control_ids

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, plan: BatchPlan) -> TranslationBatch:
        special = {"pad_id": self.pad_id, "bos_id": self.bos_id, "eos_id": self.eos_id}
        if self.packed_width is None:
            examples = [self._example(plan.epoch, int(number)) for number in plan.examples]
            if self.sampling_seed is not None:
                self._fit(examples)
            return collate_translation(examples, **special)
        rows = [[self._example(plan.epoch, int(number)) for number in row] for row in plan.examples]
        return collate_packed_pairs(rows, width=self.packed_width, **special)

    def _example(self, epoch: int, number: int) -> tuple[int, TokenIds, TokenIds]:
        if self.sampling_seed is None:
            return number, *self.pairs.pair(number)
        return number, *self.pairs.sampled(number, example_random(self.sampling_seed, epoch, number))

    def _fit(self, examples: list[tuple[int, TokenIds, TokenIds]]) -> None:
        """Take the longest examples as they are until the batch is within its budget."""
        lengths = [max(len(source), len(target)) + 1 for _, source, target in examples]
        for place in sorted(range(len(examples)), key=lengths.__getitem__, reverse=True):
            if max(lengths) * len(examples) <= self.max_tokens:
                return
            number = examples[place][0]
            examples[place] = number, *self.pairs.pair(number)
            lengths[place] = int(self.pairs.lengths_N2[number].max())


def pair_batches(
    lengths_N2: IntArray, batching: BatchingConfig, width: int, epochs: Epochs, seed: int, ranks: int
) -> Batches:
    """The batches of pairs: rows of `width` with several each, or pairs of like length."""
    if batching.packing:
        rows = batching.max_tokens_per_batch // width
        return PackedBatches(lengths_N2, capacity=width, rows=rows, seed=seed, ranks=ranks, epochs=epochs)
    return LengthBucketBatches(lengths_N2, batching.max_tokens_per_batch, epochs, seed=seed, ranks=ranks)


def example_random(seed: int, epoch: int, number: int) -> Random:
    """Random numbers for one example in one epoch, whatever batch, worker or run makes it."""
    return Random(mixed_seed(seed, epoch, number))


def mixed_seed(one: int, other: int, third: int) -> int:
    """A seed made of three numbers; large odd factors keep nearby ones far apart."""
    return (one * 0x9E3779B97F4A7C15 + other * 0xBF58476D1CE4E5B9 + third * 0x94D049BB133111EB) % (1 << 63)
