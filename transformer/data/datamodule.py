"""Lightning data modules: the tokenised examples and the batches of one run."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset as Table
from lightning.pytorch import LightningDataModule
from torch.utils.data import Dataset

from transformer.data.batching import (
    Batches,
    FixedBatches,
    LengthBucketBatches,
    RunSampler,
    TextBatch,
    TranslationBatch,
    WindowBatches,
    batches_by_length,
    collate_translation,
    pad,
    split_until_divisible,
)
from transformer.data.batching_config import BatchingConfig
from transformer.data.loading import ResumableLoader
from transformer.data.tokenizer import Tokenizer

log = logging.getLogger(__name__)


class RunData(LightningDataModule, ABC):
    """What both tasks share: the loaders of a run that may stop and go on anywhere.

    To Lightning the whole run is one epoch; the epochs of the data are the business of the sampler. So nothing special
    happens at the end of an epoch, and a resumed run cannot replay one.

    Args:
        batching: the token budget and the workers.
        seed: decides the order of examples.
        max_batches, max_epochs: length of the run on each rank; the shorter counts, one may be None.
    """

    def __init__(self, batching: BatchingConfig, *, seed: int, max_batches: int | None, max_epochs: int | None) -> None:
        super().__init__()
        assert max_batches is not None or max_epochs is not None
        self.batching, self.seed = batching, seed
        self.max_batches, self.max_epochs = max_batches, max_epochs

    @abstractmethod
    def train_batches(self, ranks: int) -> Batches:
        """The batches of one training epoch over all ranks."""

    @abstractmethod
    def validation_batches(self) -> FixedBatches:
        """The batches of the validation split, each example once."""

    @abstractmethod
    def examples(self, split: str) -> Dataset[Any]:
        """The examples of ``train`` or ``validation``."""

    @abstractmethod
    def collate(self, examples: Sequence[Any]) -> Any:
        """Make a batch of examples."""

    def num_batches(self) -> int:
        """Length of the whole run on each rank, in batches."""
        ranks, _ = self._ranks()
        limits = [] if self.max_batches is None else [self.max_batches]
        if self.max_epochs is not None:
            limits.append(self.max_epochs * (self.train_batches(ranks).num_batches // ranks))
        return min(limits)

    def train_dataloader(self) -> ResumableLoader:
        ranks, rank = self._ranks()
        sampler = RunSampler(self.train_batches(ranks), self.num_batches(), rank=rank, ranks=ranks)
        return self._loader("train", sampler, self.batching.num_workers)

    def val_dataloader(self) -> ResumableLoader:
        ranks, rank = self._ranks()
        # Equally many on every rank, for they wait for each other at every batch.
        batches = FixedBatches(split_until_divisible(self.validation_batches().batches, ranks)[rank::ranks])
        return self._loader("validation", RunSampler(batches, batches.num_batches), num_workers=0)

    def _ranks(self) -> tuple[int, int]:
        return (1, 0) if self.trainer is None else (self.trainer.world_size, self.trainer.global_rank)

    def _loader(self, split: str, sampler: RunSampler, num_workers: int) -> ResumableLoader:
        on_gpu = self.trainer is not None and self.trainer.strategy.root_device.type == "cuda"
        return ResumableLoader(self.examples(split), sampler, self.collate, num_workers=num_workers, pin_memory=on_gpu)


class EncodedPairs(Dataset[tuple[int, list[int], list[int]]]):
    """Token ids of sentence pairs, without start and end tokens."""

    def __init__(self, sources: list[list[int]], targets: list[list[int]]) -> None:
        assert len(sources) == len(targets)
        self.sources, self.targets = sources, targets
        # What a side takes in a batch: its ids and one start or end token.
        self.lengths_N2 = np.array(
            [[len(source) + 1, len(target) + 1] for source, target in zip(sources, targets, strict=True)],
            dtype=np.int64,
        ).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self.sources)

    def __getitem__(self, index: int) -> tuple[int, list[int], list[int]]:
        return index, self.sources[index], self.targets[index]


class TranslationData(RunData):
    """Batches of sentence pairs.

    Args:
        train, validation: tables with columns ``source`` and ``target``.
        source_tokenizer, target_tokenizer: the same object for a joint vocabulary.
        max_length: of the model; longer training pairs are treated as ``batching.over_long`` says, longer validation
            pairs are cut.
        batching, seed, max_batches, max_epochs: as for :class:`RunData`.

    Raises:
        ValueError: with ``over_long: error`` and a pair that is too long, or if nothing is left to train on.
    """

    def __init__(
        self,
        train: Table,
        validation: Table,
        source_tokenizer: Tokenizer,
        target_tokenizer: Tokenizer,
        batching: BatchingConfig,
        *,
        max_length: int,
        seed: int,
        max_batches: int | None = None,
        max_epochs: int | None = None,
    ) -> None:
        super().__init__(batching, seed=seed, max_batches=max_batches, max_epochs=max_epochs)
        self.source_tokenizer, self.target_tokenizer, self.max_length = (
            source_tokenizer,
            target_tokenizer,
            max_length,
        )
        self._train = self._fit(self._encode(train), "training", batching.over_long or "skip")
        self._validation = self._fit(self._encode(validation), "validation", "truncate")
        if len(self._train) == 0:
            raise ValueError(f"no training pair is within `max_length` ({max_length} tokens).")
        for split, examples in (("training", self._train), ("validation", self._validation)):
            longest = int(examples.lengths_N2.max())
            if longest > batching.max_tokens_per_batch:
                place = int(examples.lengths_N2.max(axis=1).argmax())
                log.warning(
                    "%s pair %d has %d tokens, more than `max_tokens_per_batch` (%d): such pairs make batches of one.",
                    split, place + 1, longest, batching.max_tokens_per_batch,
                )  # fmt: skip

    def train_batches(self, ranks: int) -> Batches:
        budget = self.batching.max_tokens_per_batch
        return LengthBucketBatches(self._train.lengths_N2, budget, seed=self.seed, ranks=ranks)

    def validation_batches(self) -> FixedBatches:
        lengths_N2 = self._validation.lengths_N2
        order = np.lexsort(lengths_N2.T)
        places = batches_by_length(lengths_N2[order], self.batching.max_tokens_per_batch)
        return FixedBatches([order[batch].tolist() for batch in places])

    def examples(self, split: str) -> EncodedPairs:
        return self._train if split == "train" else self._validation

    def collate(self, examples: Sequence[tuple[int, list[int], list[int]]]) -> TranslationBatch:
        tokenizer = self.target_tokenizer  # both sides have the same special ids
        return collate_translation(examples, pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id)

    def _encode(self, table: Table) -> EncodedPairs:
        return EncodedPairs(
            self.source_tokenizer.encode_batch(list(table["source"])),
            self.target_tokenizer.encode_batch(list(table["target"])),
        )

    def _fit(self, pairs: EncodedPairs, split: str, over_long: str) -> EncodedPairs:
        too_long = np.flatnonzero(pairs.lengths_N2.max(axis=1) > self.max_length)
        if len(too_long) == 0:
            return pairs
        first = int(too_long[0])
        found = (
            f"{len(too_long)} of {len(pairs)} {split} pairs are longer than `max_length` ({self.max_length} tokens), "
            f"the first is number {first + 1} of those kept so far, with {int(pairs.lengths_N2[first].max())} tokens"
        )
        if over_long == "error":
            raise ValueError(f"{found}.")
        if over_long == "skip":
            log.warning("%s; they are left out.", found)
            keep = np.flatnonzero(pairs.lengths_N2.max(axis=1) <= self.max_length)
            return EncodedPairs([pairs.sources[i] for i in keep], [pairs.targets[i] for i in keep])
        log.warning("%s; they are cut.", found)
        room = self.max_length - 1
        return EncodedPairs([ids[:room] for ids in pairs.sources], [ids[:room] for ids in pairs.targets])


class Stream(NamedTuple):
    """All documents of a split as one sequence of ids, and how many bytes of text they were."""

    ids: np.ndarray[Any, np.dtype[np.int32]]
    num_bytes: int


def encode_documents(texts: Sequence[str], tokenizer: Tokenizer, *, mark_documents: bool) -> Stream:
    """Concatenate documents; with ``mark_documents`` each stands between start and end tokens."""
    ids: list[int] = []
    for document in tokenizer.encode_batch(list(texts)):
        ids += [tokenizer.bos_id, *document, tokenizer.eos_id] if mark_documents else document
    return Stream(np.array(ids, dtype=np.int32), sum(len(text.encode()) for text in texts))


class Windows(Dataset[tuple[int, list[int]]]):
    """Windows of a token stream, named by the position of their first token; one id longer than the model's input."""

    def __init__(self, ids: np.ndarray[Any, np.dtype[np.int32]], length: int) -> None:
        self.ids, self.length = ids, length

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, start: int) -> tuple[int, list[int]]:
        return start, self.ids[start : start + self.length + 1].tolist()


class TextData(RunData):
    """Batches of windows of ``max_length`` tokens.

    Args:
        train, validation: token streams.
        tokenizer: for the padding id of a last, shorter window.
        max_length: of the model, hence of each window.
        batching, seed, max_batches, max_epochs: as for :class:`RunData`; a batch has
            ``max_tokens_per_batch // max_length`` windows.

    Validation windows do not overlap and cover every token but the first exactly once.
    """

    def __init__(
        self,
        train: Stream,
        validation: Stream,
        tokenizer: Tokenizer,
        batching: BatchingConfig,
        *,
        max_length: int,
        seed: int,
        max_batches: int | None = None,
        max_epochs: int | None = None,
    ) -> None:
        super().__init__(batching, seed=seed, max_batches=max_batches, max_epochs=max_epochs)
        self.tokenizer, self.max_length = tokenizer, max_length
        self.rows = batching.max_tokens_per_batch // max_length
        if self.rows == 0:
            raise ValueError(
                f"`max_tokens_per_batch` must be at least the model's `max_length` ({max_length}), but is "
                f"{batching.max_tokens_per_batch}."
            )
        for split, stream in (("training", train), ("validation", validation)):
            if len(stream.ids) < 2:
                raise ValueError(f"the {split} text has {len(stream.ids)} tokens; at least 2 are needed.")
        self._train, self._validation = Windows(train.ids, max_length), Windows(validation.ids, max_length)
        self.validation_bytes = validation.num_bytes

    def train_batches(self, ranks: int) -> Batches:
        return WindowBatches(len(self._train), self.max_length, self.rows, seed=self.seed, ranks=ranks)

    def validation_batches(self) -> FixedBatches:
        starts = list(range(0, len(self._validation) - 1, self.max_length))
        rows = self.rows * 4  # no gradients to keep: larger batches are faster
        return FixedBatches([starts[place : place + rows] for place in range(0, len(starts), rows)])

    def examples(self, split: str) -> Windows:
        return self._train if split == "train" else self._validation

    def collate(self, examples: Sequence[tuple[int, list[int]]]) -> TextBatch:
        tokens_BL, _ = pad([ids[:-1] for _, ids in examples], self.tokenizer.pad_id)
        labels_BL, scored_BL = pad([ids[1:] for _, ids in examples], self.tokenizer.pad_id)
        return TextBatch(torch.tensor([start for start, _ in examples]), tokens_BL, labels_BL, scored_BL)
