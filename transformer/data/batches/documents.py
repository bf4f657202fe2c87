"""Documents as token ids, in memory or on disk, and the batches that are made of them for a language model."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from torch.utils.data import Dataset

from transformer.data.batches.buckets import BatchPlan, split_until_divisible
from transformer.data.batches.collate import TextBatch, collate_texts
from transformer.data.batches.packing import Pieces, collate_packed_texts, split_long
from transformer.data.preparation.arrow import Ids, IdTable, IntArray, TokenIds
from transformer.data.preparation.ids import encode_all
from transformer.data.subwords.tokenizer import Tokenizer


class Documents(NamedTuple):
    """The documents of a split in memory.

    Attributes:
        ids: of each document, its start and end token included if documents are marked.
        num_bytes: of all their texts as UTF-8.
    """

    ids: list[list[int]]
    num_bytes: int


def encode_documents(texts: Sequence[str], tokenizer: Tokenizer, *, mark_documents: bool) -> Documents:
    """Token ids of documents; with ``mark_documents`` each stands between start and end tokens."""
    ids = encode_all(tokenizer, texts)
    if mark_documents:
        ids = [[tokenizer.bos_id, *document, tokenizer.eos_id] for document in ids]
    return Documents(ids, sum(len(text.encode()) for text in texts))


class TokenStream:
    """Documents one after another as one sequence of ids, wherever they lie.

    Args:
        chunks: consecutive parts of the sequence.
    """

    def __init__(self, chunks: Sequence[Ids]) -> None:
        self.chunks = [chunk for chunk in chunks if len(chunk)]
        self._starts = np.cumsum([0, *map(len, self.chunks)])

    @classmethod
    def of(cls, documents: Sequence[Sequence[int]]) -> "TokenStream":
        """From documents in memory."""
        return cls([np.array([index for document in documents for index in document], dtype=np.int32)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def part(self, start: int, stop: int) -> Ids:
        """The ids from `start` up to, but not with, `stop`, or fewer at the end of the sequence."""
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        parts = []
        for number in range(first, len(self.chunks)):
            offset = int(self._starts[number])
            if offset >= stop:
                break
            parts.append(self.chunks[number][max(start - offset, 0) : stop - offset])
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


class Windows(Dataset[TextBatch]):
    """Makes batches of windows of a stream; a window is named by the position of its first token.

    Args:
        stream: the tokens.
        length: of a window; one token more is read, for the last label.
        pad_id: fills up a last, shorter window.
        sizes: tokens of the corpora that the stream is made of, which no window reads beyond; None: it is one.
    """

    def __init__(self, stream: TokenStream, length: int, pad_id: int, sizes: Sequence[int] | None = None) -> None:
        self.stream, self.length, self.pad_id = stream, length, pad_id
        self.ends = np.cumsum([len(stream)] if sizes is None else sizes)

    def __len__(self) -> int:
        return len(self.stream)

    def __getitem__(self, plan: BatchPlan) -> TextBatch:
        starts = np.asarray(plan.examples)
        stops = np.minimum(starts + self.length + 1, self.ends[np.searchsorted(self.ends, starts, side="right")])
        windows = zip(starts.tolist(), stops.tolist(), strict=True)
        return collate_texts([(start, self.stream.part(start, stop)) for start, stop in windows], self.pad_id)


class Segments:
    """Documents cut into pieces that fit into packed rows, numbered across several tables.

    Args:
        tables: the documents; each table one side of ids, or a list of documents in memory.
        capacity: places of a row.

    Attributes:
        lengths_P1: places that each piece takes.
        num_of_table: pieces of each table.
    """

    def __init__(self, tables: Sequence[IdTable | list[list[int]]], capacity: int) -> None:
        self.tables = list(tables)
        pieces = [split_long(_lengths(table), capacity) for table in self.tables]
        self.num_of_table = [len(piece.document_P) for piece in pieces]
        self.table_P = np.repeat(np.arange(len(pieces)), self.num_of_table)
        self.pieces = Pieces(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
        self.lengths_P1 = (self.pieces.length_P - 1)[:, None]

    def __len__(self) -> int:
        return len(self.table_P)

    def ids(self, number: int) -> TokenIds:
        """The ids of a piece."""
        table, document = self.tables[self.table_P[number]], int(self.pieces.document_P[number])
        whole = table.ids(document, 0) if isinstance(table, IdTable) else table[document]
        start = int(self.pieces.start_P[number])
        return whole[start : start + int(self.pieces.length_P[number])]


def _lengths(table: IdTable | list[list[int]]) -> IntArray:
    if isinstance(table, IdTable):
        return table.lengths_NK[:, 0].astype(np.int64)
    return np.array([len(document) for document in table], dtype=np.int64)


class PackedDocuments(Dataset[TextBatch]):
    """Makes batches of packed rows of pieces of documents; each attends only to itself."""

    def __init__(self, segments: Segments, width: int, pad_id: int) -> None:
        self.segments, self.width, self.pad_id = segments, width, pad_id

    def __len__(self) -> int:
        return len(self.segments)

    def __getitem__(self, plan: BatchPlan) -> TextBatch:
        rows = [[(int(number), self.segments.ids(int(number))) for number in row] for row in plan.examples]
        return collate_packed_texts(rows, width=self.width, pad_id=self.pad_id)


class WindowBatches:
    """Batches of windows of token streams, from random offsets and in an order shuffled for every epoch.

    A window is named by the position of its first token. In one pass over a corpus its windows do not overlap; the
    offset, less than two windows, lets other tokens stand at the borders, and before and after all windows, in the next
    pass. Without shares an epoch is one pass over every corpus. With shares an epoch has as many windows, but of each
    corpus its share, taken from an endless sequence of passes over it.

    Args:
        sizes: tokens of each corpus; their positions follow one another.
        window: tokens of a window.
        rows: windows of a batch.
        shares: of each corpus, adding up to 1, or None.
        seed: decides offsets and order.
        ranks: divide the number of batches.
    """

    def __init__(
        self, sizes: Sequence[int], window: int, rows: int, shares: Sequence[float] | None, *, seed: int, ranks: int
    ) -> None:
        # A window needs one more token than its length, for the last label.
        self.counts = [max((size - window) // window, 1) for size in sizes]
        self.max_offsets = [max(size - 1 - count * window, 0) for size, count in zip(sizes, self.counts, strict=True)]
        self.starts = np.cumsum([0, *sizes])
        self.window, self.rows, self.shares, self.seed, self.ranks = window, rows, shares, seed, ranks
        total = sum(self.counts)
        self.taken = self.counts if shares is None else [max(1, round(total * share)) for share in shares]
        self._num_batches = len(self._cut(np.arange(sum(self.taken))))

    def num_batches(self, epoch: int) -> int:
        """Number of batches over all ranks."""
        return self._num_batches

    def epoch(self, epoch: int) -> Iterator[IntArray]:
        """All batches of one epoch, over all ranks."""
        starts = np.concatenate([self._of_corpus(corpus, epoch) for corpus in range(len(self.counts))])
        if len(self.counts) > 1:
            starts = np.random.default_rng((self.seed, epoch)).permutation(starts)
        return iter(self._cut(starts))

    def _of_corpus(self, corpus: int, epoch: int) -> IntArray:
        """The windows of one corpus in an epoch."""
        count, taken = self.counts[corpus], self.taken[corpus]
        first, stop = epoch * taken, (epoch + 1) * taken
        passes = [
            self._pass(corpus, number)[max(first - number * count, 0) : stop - number * count]
            for number in range(first // count, (stop - 1) // count + 1)
        ]
        return np.concatenate(passes)

    def _pass(self, corpus: int, number: int) -> IntArray:
        key = (self.seed, number) if corpus == 0 else (self.seed, number, corpus)
        generator = np.random.default_rng(key)
        offset = int(self.starts[corpus]) + int(generator.integers(self.max_offsets[corpus] + 1))
        windows: IntArray = offset + self.window * generator.permutation(self.counts[corpus])
        return windows

    def _cut(self, starts: IntArray) -> list[IntArray]:
        batches = [starts[place : place + self.rows] for place in range(0, len(starts), self.rows)]
        return split_until_divisible(batches, self.ranks)
