"""Pools of documents: filtered and cut into subwords by a worker, made into batches by the main process."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from transformer.data.batches.buckets import BatchPlan, split_until_divisible
from transformer.data.batches.collate import TextBatch
from transformer.data.batches.documents import PackedDocuments, Segments, TokenStream, Windows
from transformer.data.batches.packing import PackedBatches
from transformer.data.batches.pairs import example_random
from transformer.data.corpora.document_config import DocumentCorpusConfig
from transformer.data.preparation.arrow import IntArray
from transformer.data.preparation.ids import encode_all
from transformer.data.preparation.texts import RowFilter
from transformer.data.streams.loader import PoolBatches
from transformer.data.streams.pairs import Ragged
from transformer.data.streams.pools import PlacedRow, Pool
from transformer.data.subwords.tokenizer import Tokenizer


class TextPool(NamedTuple):
    """The documents of a pool that are left, and what was left out for what reason."""

    documents: Ragged
    num_rows: int
    dropped: Mapping[str, int]


class TextPools:
    """Makes pools of rows, and batches of pools: windows of their text, or packed documents.

    The documents of a pool stand in a random order, pieces of running text in their own. The last window of a pool may
    be shorter than the others.

    Args:
        configs: the settings of the corpora.
        tokenizer: cuts the texts.
        length: tokens of a window, or of a packed row.
        rows: windows or rows of a batch.
        packing: whether documents are packed, each attending only to itself.
        dropout: of merges, for subwords drawn at random.
        seed: decides orders and subwords.
    """

    def __init__(
        self,
        configs: Sequence[DocumentCorpusConfig],
        tokenizer: Tokenizer,
        *,
        length: int,
        rows: int,
        packing: bool,
        dropout: float,
        seed: int,
    ) -> None:
        self.tokenizer, self.length, self.rows, self.packing = tokenizer, length, rows, packing
        self.dropout, self.seed = dropout, seed
        self.marked = [config.marks_documents for config in configs]
        self.filters = [RowFilter(config) for config in configs]

    def prepare(self, number: int, rows: list[PlacedRow]) -> TextPool:
        """Filter rows and cut them into subwords."""
        dropped = Counter[str]()
        texts: list[str] = []
        for corpus, _, row in rows:
            reason = self.filters[corpus].reason(row)
            if reason is not None:
                dropped[reason] += 1
                continue
            assert not isinstance(row, ValueError)
            (text,) = row
            assert text is not None
            texts.append(text)
        if self.dropout > 0:
            random = example_random(self.seed, number, 0)
            ids = [self.tokenizer.sampled(text, self.dropout, random) for text in texts]
        else:
            ids = encode_all(self.tokenizer, texts)
        if self.marked[0]:  # of a mixture all are, or none
            order = np.random.default_rng((self.seed, number)).permutation(len(ids)).tolist()
            ids = [[self.tokenizer.bos_id, *ids[place], self.tokenizer.eos_id] for place in order]
        return TextPool(Ragged.of(ids), len(rows), dict(dropped))

    def open(self, pool: Pool, ranks: int) -> PoolBatches:
        """The batches of a pool, for so many ranks."""
        content = pool.content
        assert isinstance(content, TextPool)
        seed = (self.seed << 20) + pool.number
        if self.packing:
            segments = Segments([[row.tolist() for row in content.documents.rows()]], self.length)
            packed = PackedDocuments(segments, self.length, self.tokenizer.pad_id)
            lengths_P1, plans = segments.lengths_P1, list[object]()
            if len(segments):
                batches = PackedBatches(lengths_P1, capacity=self.length, rows=self.rows, seed=seed, ranks=ranks)
                plans += batches.epoch(0)
            return PoolBatches(plans, lambda plan: packed[BatchPlan(0, plan)], content.num_rows, content.dropped)
        windows = Windows(TokenStream([content.documents.values.numpy()]), self.length, self.tokenizer.pad_id)
        starts: IntArray = self.length * np.random.default_rng(seed).permutation(
            -(-max(len(windows) - 1, 0) // self.length)
        )
        cut = [starts[place : place + self.rows] for place in range(0, len(starts), self.rows)]

        def make(plan: object) -> TextBatch:
            return windows[BatchPlan(0, plan)]

        shared = split_until_divisible(cut, ranks) if cut else []
        return PoolBatches(list(shared), make, content.num_rows, content.dropped)
