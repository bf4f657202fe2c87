"""Which examples share a batch, and in which order batches come.

Both are functions of (seed, epoch) alone: not of the number of workers, and not of whether the run was interrupted.
"""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch

from transformer.data.batches.mixing import Epochs
from transformer.data.preparation.arrow import IntArray


class Divisible(Protocol):
    """A list or an array of examples."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Any: ...


BatchT = TypeVar("BatchT", bound=Divisible)

LENGTH_STEP = 0.07
SPLIT_SAVING, SPLIT_ROWS = 0.06, 16


class Batches(Protocol):
    """The batches of every epoch, over all ranks."""

    def num_batches(self, epoch: int) -> int:
        """How many batches an epoch has; the ranks divide it."""
        ...

    def epoch(self, epoch: int) -> Iterator[Any]:
        """The batches of an epoch, each a list or array of examples."""
        ...


class BatchPlan(NamedTuple):
    """One batch to be made.

    Attributes:
        epoch: which pass over the data it belongs to.
        examples: what it is made of, by number.
    """

    epoch: int
    examples: Any


def batches_by_length(lengths_NK: IntArray, max_tokens: int) -> list[slice]:
    """Cut examples, already in order, into batches of at most ``max_tokens`` padded tokens.

    Args:
        lengths_NK: lengths of N examples on K sides; the longest of a batch on any side times its rows counts.
        max_tokens: the budget. An example longer than it alone makes a batch of one.

    Returns:
        Ranges of places in the given order, each place exactly once.
    """
    longest_N = longest_side(lengths_NK).astype(np.int64)
    batches, start = [], 0
    while start < len(longest_N):
        first = max(int(longest_N[start]), 1)
        rows = max(max_tokens // first, 1)
        window = longest_N[start : start + rows]
        if window.max() <= first:  # as a rule, for the lengths are sorted
            rows = len(window)
        else:
            fits = np.maximum.accumulate(window) * np.arange(1, len(window) + 1) <= max_tokens
            rows = len(fits) if fits.all() else max(int(fits.argmin()), 1)
        batches.append(slice(start, start + rows))
        start += rows
    return batches


def longest_side(lengths_NK: IntArray) -> IntArray:
    """The greatest length of each example; much faster than a maximum along the short axis."""
    return functools.reduce(np.maximum, lengths_NK.T)


def split_until_divisible(batches: Sequence[BatchT], ranks: int) -> list[BatchT]:
    """Halve the largest batches until the ranks share them evenly; no example is repeated or lost."""
    batches = list(batches)
    while len(batches) % ranks != 0:
        largest = max(range(len(batches)), key=lambda place: len(batches[place]))
        batch = batches[largest]
        if len(batch) < 2:
            raise ValueError(f"{len(batches)} examples are too few for {ranks} ranks; use fewer devices.")
        batches[largest : largest + 1] = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
    return batches


class LengthBucketBatches:
    """Batches of examples of like length within a token budget, in an order shuffled for every epoch.

    Examples are sorted by the length of the last side in steps of 7 %, then by that of the first side, up and down in
    turn, with ties in random order; cut by the budget; halved by the first side where that saves more than 6 % of the
    padded tokens; and the batches are shuffled. Every epoch has each of its examples exactly once.

    Args:
        lengths_NK: lengths of N examples on K sides.
        max_tokens: padded tokens of a batch on any side, at most.
        epochs: which examples an epoch has.
        seed: decides the order.
        ranks: divide the number of batches.
    """

    def __init__(self, lengths_NK: IntArray, max_tokens: int, epochs: Epochs, *, seed: int, ranks: int) -> None:
        self.lengths_NK, self.max_tokens, self.epochs = lengths_NK, max_tokens, epochs
        self.seed, self.ranks = seed, ranks
        steps = [1]
        while steps[-1] <= int(lengths_NK[:, -1].max(initial=0)):
            steps.append(steps[-1] + max(1, round(steps[-1] * LENGTH_STEP)))
        self._steps = np.array(steps)
        self._counts: dict[int, int] = {}
        self._latest: tuple[int, list[IntArray]] | None = None

    def num_batches(self, epoch: int) -> int:
        """Number of batches over all ranks."""
        number = 0 if self.epochs.all_alike else epoch
        if number not in self._counts:
            self._counts[number] = len(self._batches(number))
        return self._counts[number]

    def epoch(self, epoch: int) -> Iterator[IntArray]:
        """All batches of one epoch, over all ranks, in their order."""
        return iter(self._batches(epoch))

    def _batches(self, epoch: int) -> list[IntArray]:
        if self._latest is None or self._latest[0] != epoch:
            generator = np.random.default_rng((self.seed, epoch))
            order = generator.permutation(self.epochs.examples(epoch))
            batches = split_until_divisible(self._cut(self._sorted(order)), self.ranks)
            shuffled = generator.permutation(len(batches))
            self._latest = epoch, [batches[place] for place in shuffled]
        return self._latest[1]

    def _sorted(self, order: IntArray) -> IntArray:
        first, last = self.lengths_NK[order, 0], self.lengths_NK[order, -1]
        step = np.searchsorted(self._steps, last)
        width = int(self.lengths_NK.max(initial=0)) + 1
        first = np.where(step % 2 == 0, first, width - first)  # no jump where the next step begins
        key = step.astype(np.int64, copy=False)  # in place: there may be many millions
        for size, part in ((width + 1, first), (width, last)):
            key *= size
            key += part
        return order[np.argsort(key, kind="stable")]

    def _cut(self, order: IntArray) -> list[IntArray]:
        lengths_NK = self.lengths_NK[order]
        batches = batches_by_length(lengths_NK, self.max_tokens)
        starts = np.array([batch.start for batch in batches], dtype=np.int64)
        # What is padding at all bounds what halving can save: most batches need no closer look.
        rows = np.diff(starts, append=len(order))
        padded = np.maximum.reduceat(lengths_NK, starts).sum(axis=1, dtype=np.int64) * rows
        wasteful = np.add.reduceat(lengths_NK.sum(axis=1, dtype=np.int64), starts) < (1 - SPLIT_SAVING) * padded
        parts: list[IntArray] = []
        for batch, is_wasteful in zip(batches, wasteful.tolist(), strict=True):
            parts += _halved(order[batch], lengths_NK[batch]) if is_wasteful else [order[batch]]
        return parts


def _halved(batch: IntArray, lengths_NK: IntArray) -> list[IntArray]:
    """A batch, or two by the length of the first side if that saves enough padding."""
    rows = len(batch)
    if rows < 2 * SPLIT_ROWS:
        return [batch]
    places = np.argsort(lengths_NK[:, 0], kind="stable")
    sorted_NK = lengths_NK[places].astype(np.int64)
    below = np.maximum.accumulate(sorted_NK).sum(axis=1)
    above = np.maximum.accumulate(sorted_NK[::-1])[::-1].sum(axis=1)
    cuts = np.arange(SPLIT_ROWS, rows - SPLIT_ROWS + 1)
    padded = below[cuts - 1] * cuts + above[cuts] * (rows - cuts)
    best = int(padded.argmin())
    if padded[best] > (1 - SPLIT_SAVING) * below[-1] * rows:
        return [batch]
    low, high = places[: cuts[best]], places[cuts[best] :]
    return [*_halved(batch[low], lengths_NK[low]), *_halved(batch[high], lengths_NK[high])]


class FixedBatches:
    """The same batches in the same order every epoch, as evaluation wants them."""

    def __init__(self, batches: Sequence[Sequence[int]]) -> None:
        self.batches = [list(batch) for batch in batches]

    def num_batches(self, epoch: int) -> int:
        """Their number."""
        return len(self.batches)

    def epoch(self, epoch: int) -> Iterator[list[int]]:
        """The batches, whatever the epoch."""
        return iter(self.batches)


class RunSampler(torch.utils.data.Sampler[BatchPlan]):
    """The batches of a whole run, epoch after epoch, for one rank, from any position.

    Attributes:
        position: number of batches that this rank has already taken; set it before iterating to resume there.
    """

    def __init__(self, batches: Batches, num_batches: int, *, rank: int = 0, ranks: int = 1) -> None:
        self.batches, self.num_batches, self.rank, self.ranks = batches, num_batches, rank, ranks
        self.position = 0

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[BatchPlan]:
        epoch, start = 0, 0
        while start < self.num_batches:
            count = self.batches.num_batches(epoch) // self.ranks
            assert count > 0, "an epoch without batches never ends"
            if start + count > self.position:
                for place, batch in enumerate(self.batches.epoch(epoch)):
                    number = start + place // self.ranks
                    if place % self.ranks == self.rank and self.position <= number < self.num_batches:
                        yield BatchPlan(epoch, batch)
            epoch, start = epoch + 1, start + count
