"""Packing: several examples share a row, and each attends only to itself.

A row holds up to ``capacity`` tokens on each of its sides (source and target, or one text). Which examples share a row
is a function of (seed, epoch) alone. Models tell the examples of a row apart by their segments: numbers from 1 in each
row, 0 for padding.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from transformer.data.batches.collate import TextBatch, TranslationBatch
from transformer.data.batches.mixing import Epochs
from transformer.data.preparation.arrow import IntArray

CHUNK = 2048  # examples that are packed together; all at once would save less than 1% of the rows, and take far longer
BLOCK = 32 * CHUNK  # examples whose chunks are packed side by side, which spreads the cost of each array operation

Row: TypeAlias = IntArray
"""The examples of one row, by index."""


def pack(lengths_NK: IntArray, capacity: int) -> list[Row]:
    """Put examples into few rows, each example exactly once.

    Best-fit decreasing: from the longest example on, each goes where the roomiest side keeps the least room. It is done
    within chunks of about 2,000 examples, taken at regular distances, so the time grows only linearly with N.

    Args:
        lengths_NK: tokens of N examples on K sides, from 1 to ``capacity``.
        capacity: tokens of a row on each side.

    Returns:
        For each row the indices of its examples.
    """
    if len(lengths_NK) == 0:
        return []
    assert lengths_NK.min() >= 1
    assert lengths_NK.max() <= capacity, "an example is longer than a row"
    blocks = np.array_split(np.arange(len(lengths_NK)), -(-len(lengths_NK) // BLOCK))
    return [block[row] for block in blocks for row in _pack_block(lengths_NK[block], capacity)]


def _pack_block(lengths_NK: IntArray, capacity: int) -> list[Row]:
    """Pack the C chunks of a block in step: first the longest example of every chunk, then the second longest, ..."""
    num_examples, num_sides = lengths_NK.shape
    num_chunks = -(-num_examples // CHUNK)
    size = -(-num_examples // num_chunks)
    padded = np.zeros((size * num_chunks, num_sides), dtype=np.uint32)  # by examples of length 0, which go last
    padded[:num_examples] = lengths_NK
    lengths_ICK = padded.reshape(size, num_chunks, num_sides)
    order_IC = np.argsort(-lengths_ICK.sum(axis=2, dtype=np.int64), axis=0, kind="stable")
    lengths_IKC = np.take_along_axis(lengths_ICK, order_IC[:, :, None], axis=0).transpose(0, 2, 1)
    chunks_C = np.arange(num_chunks)
    rows_IC = np.empty((size, num_chunks), dtype=np.int64)
    room_KCR = np.full((num_sides, num_chunks, 64), capacity, dtype=np.uint32)
    candidates = 1  # rows in use and, in every chunk, at least one that is still empty
    for step, lengths_KC in enumerate(lengths_IKC):
        # Unsigned: where an example does not fit, the difference wraps around to more than any room.
        left_KCR = room_KCR[:, :, :candidates] - lengths_KC[:, :, None]
        rows_C = left_KCR.max(axis=0).argmin(axis=1)
        room_KCR[:, chunks_C, rows_C] -= lengths_KC
        rows_IC[step] = rows_C
        candidates = max(candidates, int(rows_C.max()) + 2)
        if candidates > room_KCR.shape[2]:
            room_KCR = np.concatenate([room_KCR, np.full_like(room_KCR, capacity)], axis=2)
    index_IC = order_IC * num_chunks + chunks_C
    real_IC = index_IC < num_examples
    index_N, row_N = index_IC[real_IC], (rows_IC + chunks_C * room_KCR.shape[2])[real_IC]
    by_row_N = np.argsort(row_N, kind="stable")
    return np.split(index_N[by_row_N], np.flatnonzero(np.diff(row_N[by_row_N])) + 1)


class PackedBatches:
    """Batches of packed rows, of another composition in every epoch; each example exactly once in each.

    All examples are shuffled, then packed block by block while the epoch is read, and the rows of a block shuffled. So
    beside the lengths only one permutation and one block of rows are in memory.

    Args:
        lengths_NK: tokens of N examples on K sides, from 1 to ``capacity``.
        capacity: tokens of a row on each side.
        rows: rows of a batch.
        seed: decides the order.
        ranks: every epoch's number of batches is a multiple of it.
        epochs: which examples an epoch has; None: all of them.

    Raises:
        ValueError: if there are fewer examples than ranks.
    """

    def __init__(
        self,
        lengths_NK: IntArray,
        *,
        capacity: int,
        rows: int,
        seed: int,
        ranks: int,
        epochs: Epochs | None = None,
    ) -> None:
        if len(lengths_NK) < ranks:
            raise ValueError(f"{len(lengths_NK)} examples are too few for {ranks} ranks; use fewer devices.")
        self.lengths_NK, self.capacity, self.rows, self.seed, self.ranks = lengths_NK, capacity, rows, seed, ranks
        self.epochs = Epochs([len(lengths_NK)], None, seed) if epochs is None else epochs
        self._counts: dict[int, int] = {}

    def num_batches(self, epoch: int) -> int:
        """Number of batches of one epoch over all ranks; it may differ between epochs. Takes the time of packing."""
        if epoch not in self._counts:
            self._counts[epoch] = sum(1 for _ in self.epoch(epoch))
        return self._counts[epoch]

    def epoch(self, epoch: int) -> Iterator[list[Row]]:
        """All batches of one epoch, over all ranks, each a list of rows."""
        held: list[list[Row]] = []  # enough to be divided among the ranks at the end
        for batch in self._batches(epoch):
            held.append(batch)
            if len(held) == 2 * self.ranks:
                if self.rows == 1:
                    held.sort(key=_num_examples)  # only rows of several examples can be divided
                yield from held[: self.ranks]
                del held[: self.ranks]
        yield from _divide(held, self.ranks)

    def _batches(self, epoch: int) -> Iterator[list[Row]]:
        generator = np.random.default_rng((self.seed, epoch))
        order = generator.permutation(self.epochs.examples(epoch))
        waiting: list[Row] = []
        for block in np.array_split(order, -(-len(order) // BLOCK)):
            rows = pack(self.lengths_NK[block], self.capacity)
            waiting += [block[rows[place]] for place in generator.permutation(len(rows))]
            num_ready = len(waiting) // self.rows * self.rows
            for start in range(0, num_ready, self.rows):
                yield waiting[start : start + self.rows]
            waiting = waiting[num_ready:]
        if waiting:
            yield waiting


def _num_examples(batch: list[Row]) -> int:
    return sum(map(len, batch))


def _divide(batches: list[list[Row]], ranks: int) -> list[list[Row]]:
    """Halve batches, the one of most rows first and a single row by its examples, until the ranks share them evenly."""
    batches = list(batches)
    while len(batches) % ranks != 0:
        largest = max(range(len(batches)), key=lambda place: (len(batches[place]), _num_examples(batches[place])))
        batch = batches[largest]
        if len(batch) == 1:
            if len(batch[0]) == 1:
                raise ValueError(
                    f"{ranks} ranks cannot share the rows evenly, for too few hold several examples; use fewer devices."
                )
            middle = len(batch[0]) // 2
            batch = [batch[0][:middle], batch[0][middle:]]
        batches[largest : largest + 1] = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
    return batches


class Pieces(NamedTuple):
    """Parts of documents: piece p is tokens ``start_P[p]`` to ``start_P[p] + length_P[p]`` of ``document_P[p]``.

    All but the last token are the model's input and all but the first its labels: in a row, a piece takes
    ``length_P[p] - 1`` places.
    """

    document_P: IntArray
    start_P: IntArray
    length_P: IntArray


def split_long(lengths_N: IntArray, capacity: int) -> Pieces:
    """Cut documents into pieces that fit into rows.

    A document of n tokens, its marks included, gives n - 1 predictions: in one piece if n - 1 is within ``capacity``.
    A longer one is cut after every ``capacity`` predictions. Each piece begins with the last token of the one before,
    so every token but a document's first is predicted exactly once. A document of a single token has nothing to
    predict, hence no piece.

    Args:
        lengths_N: tokens of each document.
        capacity: places of a row.
    """
    predictions_N = np.maximum(lengths_N - 1, 0)
    counts_N = -(-predictions_N // capacity)
    document_P = np.repeat(np.arange(len(lengths_N)), counts_N)
    start_P = capacity * (np.arange(len(document_P)) - (counts_N.cumsum() - counts_N)[document_P])
    length_P = np.minimum(lengths_N[document_P] - start_P, capacity + 1)
    return Pieces(document_P, start_P, length_P)


def collate_packed_pairs(
    rows: Sequence[Sequence[tuple[int, npt.ArrayLike, npt.ArrayLike]]],
    width: int,
    *,
    pad_id: int,
    bos_id: int,
    eos_id: int,
) -> TranslationBatch:
    """Batch rows of (index, source ids, target ids), both without start and end tokens.

    Args:
        rows: the examples of each row, at least one. Each takes one place more than its ids on either side.
        width: places of a row on either side.
        pad_id, bos_id, eos_id: ids of the marks.
    """
    sources = [_to_array(source) for row in rows for _, source, _ in row]
    targets = [_to_array(target) for row in rows for _, _, target in row]
    source, target = (_lay_out([len(ids) + 1 for ids in side], rows, width) for side in (sources, targets))
    source_ids, target_ids, labels = np.full((3, len(rows) * width), pad_id)
    source_ids[source.without_last], source_ids[source.last_N] = np.concatenate(sources), eos_id
    labels[target.without_last], labels[target.last_N] = np.concatenate(targets), eos_id
    target_ids[target.without_last + 1], target_ids[target.first_N] = np.concatenate(targets), bos_id
    return TranslationBatch(
        torch.tensor([index for row in rows for index, _, _ in row]),
        torch.from_numpy(source_ids.reshape(-1, width)),
        torch.from_numpy(source.segments_BL > 0),
        torch.from_numpy(target_ids.reshape(-1, width)),
        torch.from_numpy(labels.reshape(-1, width)),
        torch.from_numpy(target.segments_BL > 0),
        torch.from_numpy(source.segments_BL),
        torch.from_numpy(target.segments_BL),
    )


def collate_packed_texts(rows: Sequence[Sequence[tuple[int, npt.ArrayLike]]], width: int, *, pad_id: int) -> TextBatch:
    """Batch rows of (index, ids); all but an example's last id are input, all but its first are labels.

    Args:
        rows: the examples of each row, at least one, each of at least two ids. It takes one place less than its ids.
        width: places of a row.
        pad_id: fills the rest of a row.
    """
    texts = [_to_array(ids) for row in rows for _, ids in row]
    assert min(map(len, texts)) >= 2, "a text has nothing to predict"
    layout = _lay_out([len(ids) - 1 for ids in texts], rows, width)
    tokens, labels = np.full((2, len(rows) * width), pad_id)
    tokens[layout.every] = np.concatenate([ids[:-1] for ids in texts])
    labels[layout.every] = np.concatenate([ids[1:] for ids in texts])
    return TextBatch(
        torch.tensor([index for row in rows for index, _ in row]),
        torch.from_numpy(tokens.reshape(-1, width)),
        torch.from_numpy(labels.reshape(-1, width)),
        torch.from_numpy(layout.segments_BL > 0),
        torch.from_numpy(layout.segments_BL),
    )


class _Layout(NamedTuple):
    """Places in the rows, written one after the other: each example's first and last, those of all its tokens and of
    all but the last; and the segments."""

    first_N: IntArray
    last_N: IntArray
    every: IntArray
    without_last: IntArray
    segments_BL: IntArray


def _to_array(ids: npt.ArrayLike) -> IntArray:
    return np.asarray(ids, dtype=np.int64)  # an empty list would be floats


def _lay_out(lengths: Sequence[int], rows: Sequence[Sequence[object]], width: int) -> _Layout:
    lengths_N, counts_B = np.array(lengths), np.array([len(row) for row in rows])
    assert counts_B.min() >= 1, "a row is empty"
    row_N = np.repeat(np.arange(len(rows)), counts_B)
    begin_N = lengths_N.cumsum() - lengths_N
    first_in_row_N = (counts_B.cumsum() - counts_B)[row_N]
    offset_N = begin_N - begin_N[first_in_row_N]
    assert (offset_N + lengths_N).max() <= width, "a row is longer than its width"
    first_N = row_N * width + offset_N
    every = _runs(first_N, lengths_N)
    segments_BL = np.zeros(len(rows) * width, dtype=np.int64)
    segments_BL[every] = np.repeat(np.arange(len(lengths_N)) - first_in_row_N + 1, lengths_N)
    last_N = first_N + lengths_N - 1
    return _Layout(first_N, last_N, every, _runs(first_N, lengths_N - 1), segments_BL.reshape(-1, width))


def _runs(first_N: IntArray, lengths_N: IntArray) -> IntArray:
    """``first``, ``first + 1``, ... for each run, one run after the other."""
    begin_N = lengths_N.cumsum() - lengths_N
    return np.repeat(first_N - begin_N, lengths_N) + np.arange(int(lengths_N.sum()))
