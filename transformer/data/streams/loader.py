"""The loader of a run that streams: batches made of pools, from any position."""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from torch.utils.data import DataLoader

from transformer.data.batches.loading import (
    as_it_is,
    check_same_data,
    check_same_ranks,
    leave_signals_to_the_run,
)
from transformer.data.streams.pools import Cursor, Pool, PoolStream

log = logging.getLogger(__name__)

MAX_EMPTY_POOLS = 100


class PoolBatches(NamedTuple):
    """The batches of a pool, and how many rows were left out of it for what reason.

    Attributes:
        plans: what each batch is made of; the ranks divide their number.
        make: makes a batch of a plan.
        num_rows: rows that were read.
        dropped: number of rows left out, by reason.
        num_cut: number of rows that were too long and are cut.
    """

    plans: list[Any]
    make: Callable[[Any], Any]
    num_rows: int
    dropped: Mapping[str, int]
    num_cut: int = 0


class StreamLoader:
    """Yields the batches of the pools of a stream; its state is the pool and the number of its batches taken.

    Any number of workers may resume the run of any other. Rows left out are counted in the log: at the first one, and
    whenever their number has doubled.

    Args:
        stream: gives pools.
        open_pool: turns a pool into its batches, in their order, for a number of ranks.
        num_batches: length of the run on each rank.
        rank, ranks: which of them are this rank's.
        identity: changes when the files do; a run is not resumed with others.
        num_workers: processes that read, filter and cut texts into subwords.
        pin_memory: put batches where a GPU fetches them fastest.
    """

    def __init__(
        self,
        stream: PoolStream,
        open_pool: Callable[[Pool, int], PoolBatches],
        num_batches: int,
        *,
        rank: int = 0,
        ranks: int = 1,
        identity: str,
        num_workers: int,
        pin_memory: bool,
    ) -> None:
        self.stream, self.open_pool, self.num_batches = stream, open_pool, num_batches
        self.identity, self.num_workers, self.pin_memory = identity, num_workers, pin_memory
        self.rank, self.ranks, self.taken = rank, ranks, 0
        self._pool: tuple[int, tuple[Cursor, ...]] = stream.start
        self._taken_of_pool = 0
        self._num_rows, self._num_cut, self._dropped, self._reported = 0, 0, Counter[str](), 0

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[Any]:
        self.stream.start = self._pool
        skip, num_empty = self._taken_of_pool, 0
        loader: DataLoader[Pool] = DataLoader(
            self.stream,
            batch_size=None,
            collate_fn=as_it_is,
            num_workers=self.num_workers,
            worker_init_fn=leave_signals_to_the_run,
            prefetch_factor=1 if self.num_workers else None,
        )
        pools = iter(loader)
        try:
            while self.taken < self.num_batches:
                pool = next(pools)
                if isinstance(pool.content, ValueError):
                    raise pool.content
                self._pool, self._taken_of_pool = (pool.number, pool.cursors), skip
                batches = self.open_pool(pool, self.ranks)
                self._count(batches)
                num_empty = 0 if batches.plans else num_empty + 1
                if num_empty == MAX_EMPTY_POOLS:
                    raise ValueError(f"no training example is left: {self._summary()}.")
                for plan in batches.plans[self.rank :: self.ranks][skip:]:
                    if self.taken == self.num_batches:
                        break
                    batch = batches.make(plan)
                    self.taken += 1
                    self._taken_of_pool += 1
                    yield _pinned(batch) if self.pin_memory else batch
                skip = 0
        finally:
            del pools  # its workers end now, and not when the traceback of an error is forgotten

    def _count(self, batches: PoolBatches) -> None:
        self._num_rows += batches.num_rows
        self._num_cut += batches.num_cut
        self._dropped.update(batches.dropped)
        num_touched = self._dropped.total() + self._num_cut
        if num_touched >= max(1, 2 * self._reported):
            self._reported = num_touched
            log.warning("%s.", self._summary())

    def _summary(self) -> str:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self._dropped.most_common())
        parts = [f"left out: {reasons}"] if reasons else []
        if self._num_cut:
            parts.append(f"cut: {self._num_cut:,} too long")
        return f"of {self._num_rows:,} training examples read so far, {', '.join(parts)}"

    def state_dict(self) -> dict[str, Any]:
        """Where the run is."""
        number, cursors = self._pool
        return {
            "taken": self.taken,
            "pool": number,
            "cursors": [list(cursor) for cursor in cursors],
            "taken_of_pool": self._taken_of_pool,
            "identity": self.identity,
            "ranks": self.ranks,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on there.

        Raises:
            ValueError: The files, or the number of ranks, are others than those that the state is of.
        """
        check_same_data(state["identity"], self.identity)
        check_same_ranks(state["ranks"], self.ranks)
        self.taken, self._taken_of_pool = state["taken"], state["taken_of_pool"]
        self._pool = state["pool"], tuple(tuple(cursor) for cursor in state["cursors"])


def _pinned(batch: Any) -> Any:
    """A batch in pinned memory; its fields are tensors or None."""
    return type(batch)(*(None if field is None else field.pin_memory() for field in batch))
