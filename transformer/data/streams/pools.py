"""Examples straight from the files of a corpus, however large: read, shuffled and cut into subwords pool by pool.

The rows of all corpora are mixed into one endless sequence, and the sequence is cut into *pools* of a fixed number of
rows. A pool is the shuffle buffer: its batches are made together. The shards of a corpus come in another order in every
pass over it. All this is a function of the seed alone. The pools go round the workers; each worker reads past the pools
of the others, and they arrive in their order whatever the number of workers. All ranks make all pools and share the
batches of each, so they stay together. A pool's number and the place where its rows begin are all that a run needs to
go on.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import IterableDataset, get_worker_info

from transformer.data.corpora.rows import Row
from transformer.data.corpora.sources import Source, place

Cursor = tuple[int, int, int]
"""Where a corpus is read: pass over it, shard (in the order of that pass), row of the shard."""

BEGINNING: Cursor = (0, 0, 0)


class PlacedRow(NamedTuple):
    """A row, its corpus, and its place there."""

    corpus: int
    place: int
    row: Row | ValueError


class Pool(NamedTuple):
    """What a worker hands over: one pool, made ready.

    Attributes:
        number: of the pool.
        cursors: where each corpus stood when the pool began.
        content: what ``prepare`` made of its rows, or the ValueError that it ended with: workers cannot raise one that
            stays one sentence.
    """

    number: int
    cursors: tuple[Cursor, ...]
    content: Any


class EndlessRows:
    """The rows of one corpus, pass after pass, from a cursor on.

    Args:
        source: the corpus.
        seed: decides the order of the shards in each pass.
        cursor: where to begin.
    """

    def __init__(self, source: Source, seed: int, cursor: Cursor) -> None:
        self.source, self.seed, self.cursor = source, seed, cursor
        self._rows = self._read()

    def take(self, count: int) -> Iterator[tuple[int, Row | ValueError]]:
        """The next rows with their places."""
        return itertools.islice(self._rows, count)

    def _read(self) -> Iterator[tuple[int, Row | ValueError]]:
        number, shard, skip = self.cursor
        while True:
            order = np.random.default_rng((self.seed, number)).permutation(len(self.source.shards))
            num_rows = skip
            for index in range(shard, len(order)):
                chosen = int(order[index])
                for row_number, row in enumerate(self.source.shards[chosen].read(skip=skip), start=skip):
                    self.cursor = number, index, row_number + 1
                    num_rows += 1
                    yield place(chosen, row_number), row
                skip = 0
            if num_rows == 0 and shard == 0:
                raise ValueError(f"The training split of {self.source.name} must have examples, but is empty.")
            number, shard = number + 1, 0


class PoolStream(IterableDataset[Pool]):
    """The endless sequence of pools.

    Args:
        sources: the corpora.
        shares: of each corpus in a pool; None only for a single corpus.
        size: rows of a pool.
        seed: decides the order of shards and the mixture.
        prepare: makes a pool's content of its rows; called in the worker.

    Attributes:
        start: number of the first pool to give and the cursors there; set it before iterating to resume.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        shares: Sequence[float] | None,
        size: int,
        prepare: Callable[[int, list[PlacedRow]], Any],
        *,
        seed: int,
    ) -> None:
        assert shares is not None or len(sources) == 1
        self.sources, self.shares, self.size, self.seed = list(sources), shares, size, seed
        self.prepare = prepare
        self.start: tuple[int, tuple[Cursor, ...]] = (0, (BEGINNING,) * len(self.sources))

    def __iter__(self) -> Iterator[Pool]:
        worker = get_worker_info()
        number_of_worker, num_workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        if worker is not None:
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the workers share the cores already
        first, cursors = self.start
        streams = [
            EndlessRows(source, self.seed + corpus, cursor)
            for corpus, (source, cursor) in enumerate(zip(self.sources, cursors, strict=True))
        ]
        for number in itertools.count(first):
            cursors = tuple(stream.cursor for stream in streams)
            counts = self._counts(number)
            try:
                rows = [
                    PlacedRow(corpus, at, row)
                    for corpus, (stream, count) in enumerate(zip(streams, counts, strict=True))
                    for at, row in stream.take(count)
                ]
                if (number - first) % num_workers == number_of_worker:
                    yield Pool(number, cursors, self.prepare(number, rows))
            except ValueError as error:
                yield Pool(number, cursors, error)
                return

    def _counts(self, number: int) -> Sequence[int]:
        """Rows of each corpus in a pool."""
        if self.shares is None:
            return [self.size]
        counts: list[int] = np.random.default_rng((self.seed, number)).multinomial(self.size, self.shares).tolist()
        return counts
