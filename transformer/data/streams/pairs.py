"""Pools of sentence pairs: filtered and cut into subwords by a worker, made into batches by the main process."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transformer.data.batches.buckets import BatchPlan
from transformer.data.batches.collate import TranslationBatch
from transformer.data.batches.config import BatchingConfig
from transformer.data.batches.mixing import Epochs
from transformer.data.batches.pairs import MemoryPairs, PairExamples, PairTokenizers, example_random, pair_batches
from transformer.data.corpora.pair_config import PairCorpusConfig
from transformer.data.corpora.sources import Source
from transformer.data.preparation.arrow import IntArray
from transformer.data.preparation.texts import RowFilter
from transformer.data.streams.loader import PoolBatches
from transformer.data.streams.pools import PlacedRow, Pool

CORPUS_BITS = 56


class Ragged(NamedTuple):
    """Rows of ids of different lengths as two tensors, which a worker hands over in shared memory.

    Arrays would go through a pipe: a worker whose run has been killed would wait for ever to get rid of them.
    """

    values: Tensor
    ends: Tensor

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> "Ragged":
        """Pack rows."""
        ends = np.cumsum([len(row) for row in rows], dtype=np.int64)
        flat = np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int64, count=int(ends[-1]) if len(ends) else 0)
        return cls(torch.from_numpy(flat), torch.from_numpy(ends))

    def rows(self) -> list[IntArray]:
        """Unpack them."""
        return np.split(self.values.numpy(), self.ends.numpy()[:-1]) if len(self.ends) else []


class PairPool(NamedTuple):
    """The pairs of a pool that are left, by numbers (corpus and place), and what was left out for what reason."""

    numbers: Tensor
    sources: Ragged
    targets: Ragged
    num_rows: int
    dropped: Mapping[str, int]
    num_cut: int


class PairPools:
    """Makes pools of rows, and batches of pools.

    Args:
        sources, configs: the corpora and their settings.
        tokenizers: cut the texts.
        batching: budget, packing and the treatment of long pairs.
        limit: tokens of a side at most.
        width: of packed rows.
        dropout: of merges, for subwords drawn at random.
        seed: decides the batches and the subwords.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        configs: Sequence[PairCorpusConfig],
        tokenizers: PairTokenizers,
        batching: BatchingConfig,
        *,
        limit: int,
        width: int,
        dropout: float,
        seed: int,
    ) -> None:
        self.sources, self.tokenizers, self.batching = list(sources), tokenizers, batching
        self.limit, self.width, self.dropout, self.seed = limit, width, dropout, seed
        self.filters = [RowFilter(config) for config in configs]
        self.tag_ids = [[] if config.tag is None else [tokenizers.source.tag_id(config.tag)] for config in configs]

    def prepare(self, number: int, rows: list[PlacedRow]) -> PairPool:
        """Filter rows and cut them into subwords."""
        dropped = Counter[str]()
        kept: list[tuple[int, int, str, str]] = []
        for corpus, place, row in rows:
            reason = self.filters[corpus].reason(row)
            if reason is not None:
                dropped[reason] += 1
                continue
            assert not isinstance(row, ValueError)
            source, target = row
            assert source is not None
            assert target is not None
            kept.append((corpus, place, source, target))
        sources, targets = self._encode(number, kept)
        room, num_cut, fitting = self.limit - 1, 0, []
        for index, (corpus, place, _, _) in enumerate(kept):
            length = max(len(sources[index]), len(targets[index]))
            if length > room:
                if self.batching.over_long == "error":
                    where = self.sources[corpus].where(place)
                    raise ValueError(f"{where}: this pair has {length + 1} tokens, more than {self.limit}.")
                if self.batching.over_long != "truncate":
                    dropped["too long"] += 1
                    continue
                num_cut += 1
            fitting.append(index)
        numbers = torch.tensor([kept[index][0] << CORPUS_BITS | kept[index][1] for index in fitting], dtype=torch.int64)
        cut_sources = Ragged.of([sources[index][:room] for index in fitting])
        cut_targets = Ragged.of([targets[index][:room] for index in fitting])
        return PairPool(numbers, cut_sources, cut_targets, len(rows), dict(dropped), num_cut)

    def _encode(self, number: int, kept: list[tuple[int, int, str, str]]) -> tuple[list[list[int]], list[list[int]]]:
        sources = self.tokenizers.source.encode_batch([source for _, _, source, _ in kept])
        targets = self.tokenizers.target.encode_batch([target for _, _, _, target in kept])
        sources = [[*self.tag_ids[corpus], *ids] for (corpus, _, _, _), ids in zip(kept, sources, strict=True)]
        if self.dropout > 0:
            random = example_random(self.seed, number, 0)
            for index, (corpus, _, source, target) in enumerate(kept):
                source_ids = [*self.tag_ids[corpus], *self.tokenizers.source.sampled(source, self.dropout, random)]
                target_ids = self.tokenizers.target.sampled(target, self.dropout, random)
                if max(len(source_ids), len(target_ids)) < self.limit:  # smaller pieces are more: take those that fit
                    sources[index], targets[index] = source_ids, target_ids
        return sources, targets

    def open(self, pool: Pool, ranks: int) -> PoolBatches:
        """The batches of a pool, for so many ranks."""
        content = pool.content
        assert isinstance(content, PairPool)
        pairs = MemoryPairs(content.sources.rows(), content.targets.rows())
        packed = self.width if self.batching.packing else None
        examples = PairExamples(pairs, self.tokenizers, packed_width=packed)

        def make(plan: object) -> TranslationBatch:
            batch = examples[BatchPlan(0, plan)]
            return batch._replace(index_B=content.numbers[batch.index_B])

        seed = (self.seed << 20) + pool.number
        plans: list[object] = []
        if len(pairs):
            epochs = Epochs([len(pairs)], None, seed)
            plans += pair_batches(pairs.lengths_N2, self.batching, self.width, epochs, seed, ranks).epoch(0)
        return PoolBatches(plans, make, content.num_rows, content.dropped, content.num_cut)
