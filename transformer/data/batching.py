"""From token ids to batches: shifting, padding, and choosing which examples share a batch.

Which examples make which batch, and in which order, is a function of (seed, epoch) alone: not of the number of
workers or ranks, and not of whether the run was interrupted.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

IntArray = npt.NDArray[np.int64]
BatchT = TypeVar("BatchT", IntArray, list[int])


class TranslationBatch(NamedTuple):
    """Padded source and target of B examples. Padding is on the right and decided by the masks, not by ids.

    Attributes:
        index_B: place of each example in its split.
        source_BS, source_mask_BS: source ids ending with the end token; True for real tokens.
        target_BT: decoder input, the target shifted right, beginning with the start token.
        labels_BT, scored_BT: the target ending with the end token; True where it counts.
    """

    index_B: Tensor
    source_BS: Tensor
    source_mask_BS: Tensor
    target_BT: Tensor
    labels_BT: Tensor
    scored_BT: Tensor


class TextBatch(NamedTuple):
    """B windows of text.

    Attributes:
        index_B: position of each window's first token in its stream.
        tokens_BL, labels_BL, scored_BL: input ids, the id after each, and True where it counts.
    """

    index_B: Tensor
    tokens_BL: Tensor
    labels_BL: Tensor
    scored_BL: Tensor


def shift_targets(ids: Sequence[int], bos_id: int, eos_id: int) -> tuple[list[int], list[int]]:
    """Decoder input and labels of one target: ``a b`` gives ``BOS a b`` and ``a b EOS``."""
    return [bos_id, *ids], [*ids, eos_id]


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """Rows of ids to (rows, longest) padded on the right, and the mask of real ones."""
    longest = max((len(row) for row in rows), default=0)
    ids = np.full((len(rows), longest), pad_id, dtype=np.int64)
    real = np.zeros((len(rows), longest), dtype=np.bool_)
    for place, row in enumerate(rows):
        ids[place, : len(row)] = row
        real[place, : len(row)] = True
    return torch.from_numpy(ids), torch.from_numpy(real)


def collate_translation(
    examples: Sequence[tuple[int, Sequence[int], Sequence[int]]], *, pad_id: int, bos_id: int, eos_id: int
) -> TranslationBatch:
    """Batch (index, source ids, target ids), both without start and end tokens."""
    shifted = [shift_targets(target, bos_id, eos_id) for _, _, target in examples]
    source_BS, source_mask_BS = pad([[*source, eos_id] for _, source, _ in examples], pad_id)
    target_BT, _ = pad([target for target, _ in shifted], pad_id)
    labels_BT, scored_BT = pad([labels for _, labels in shifted], pad_id)
    index_B = torch.tensor([index for index, _, _ in examples])
    return TranslationBatch(index_B, source_BS, source_mask_BS, target_BT, labels_BT, scored_BT)


def batches_by_length(lengths_NK: IntArray, max_tokens: int) -> list[IntArray]:
    """Cut examples, already in order, into batches of at most ``max_tokens`` padded tokens.

    Args:
        lengths_NK: lengths of N examples on K sides; the longest of a batch on any side times its rows counts.
        max_tokens: the budget. An example longer than it alone makes a batch of one.

    Returns:
        Ranges of places in the given order, each place exactly once.
    """
    batches, start, longest = [], 0, 0
    for place, length in enumerate(lengths_NK.max(axis=1).tolist()):
        longest = max(longest, length)
        if place > start and longest * (place - start + 1) > max_tokens:
            batches.append(np.arange(start, place))
            start, longest = place, length
    if start < len(lengths_NK):
        batches.append(np.arange(start, len(lengths_NK)))
    return batches


def split_until_divisible(batches: list[BatchT], ranks: int) -> list[BatchT]:
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

    All examples are sorted by length (last column first) with ties in random order, cut by the budget, and the batches
    shuffled. So every epoch has the same number of batches and each example exactly once.
    """

    def __init__(self, lengths_NK: IntArray, max_tokens: int, *, seed: int, ranks: int) -> None:
        self.lengths_NK, self.max_tokens, self.seed, self.ranks = lengths_NK, max_tokens, seed, ranks
        ordered = lengths_NK[np.lexsort(lengths_NK.T)]
        self.num_batches = len(split_until_divisible(batches_by_length(ordered, max_tokens), ranks))

    def epoch(self, epoch: int) -> list[list[int]]:
        """All batches of one epoch, over all ranks."""
        generator = np.random.default_rng((self.seed, epoch))
        order = generator.permutation(len(self.lengths_NK))
        order = order[np.lexsort(self.lengths_NK[order].T)]  # a stable sort: ties stay shuffled
        places = split_until_divisible(batches_by_length(self.lengths_NK[order], self.max_tokens), self.ranks)
        return [order[places[place]].tolist() for place in generator.permutation(len(places))]


class WindowBatches:
    """Batches of windows of a token stream, from a random offset and in an order shuffled for every epoch.

    A window is named by the position of its first token. Windows of one epoch do not overlap; the offset, less than two
    windows, lets other tokens stand at the borders, and before and after all windows, in the next epoch.
    """

    def __init__(self, num_tokens: int, window: int, rows: int, *, seed: int, ranks: int) -> None:
        # A window needs one more token than its length, for the last label.
        self.num_windows = max((num_tokens - window) // window, 1)
        self.max_offset = max(num_tokens - 1 - self.num_windows * window, 0)
        self.window, self.rows, self.seed, self.ranks = window, rows, seed, ranks
        self.num_batches = len(self._cut(np.arange(self.num_windows)))

    def epoch(self, epoch: int) -> list[list[int]]:
        """All batches of one epoch, over all ranks."""
        generator = np.random.default_rng((self.seed, epoch))
        offset = int(generator.integers(self.max_offset + 1))
        starts = offset + self.window * generator.permutation(self.num_windows)
        return [starts[places].tolist() for places in self._cut(np.arange(self.num_windows))]

    def _cut(self, places: IntArray) -> list[IntArray]:
        batches = [places[start : start + self.rows] for start in range(0, len(places), self.rows)]
        return split_until_divisible(batches, self.ranks)


class FixedBatches:
    """The same batches in the same order every epoch, as evaluation wants them."""

    def __init__(self, batches: list[list[int]]) -> None:
        self.batches, self.num_batches = batches, len(batches)

    def epoch(self, epoch: int) -> list[list[int]]:
        """The batches, whatever the epoch."""
        return self.batches


Batches = LengthBucketBatches | WindowBatches | FixedBatches


class RunSampler(torch.utils.data.Sampler[list[int]]):
    """The batches of a whole run, epoch after epoch, for one rank, from any position.

    Attributes:
        position: number of batches that this rank has already taken; set it before iterating to resume there.
    """

    def __init__(self, batches: Batches, num_batches: int, *, rank: int = 0, ranks: int = 1) -> None:
        self.batches, self.num_batches, self.rank, self.ranks = batches, num_batches, rank, ranks
        self.position = 0

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[list[int]]:
        per_epoch = self.batches.num_batches // self.ranks
        position = self.position
        while position < self.num_batches:
            epoch, place = divmod(position, per_epoch)
            for batch in self.batches.epoch(epoch)[self.rank :: self.ranks][place:]:
                if position >= self.num_batches:
                    return
                yield batch
                position += 1
