"""The Lightning data module of a run: its training batches, from a cache or a stream, and its validation batches."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import Dataset

from transformer.data.batches.buckets import Batches, FixedBatches, RunSampler, split_until_divisible
from transformer.data.batches.loading import ResumableLoader
from transformer.data.corpora.sources import Source
from transformer.data.streams.loader import PoolBatches, StreamLoader
from transformer.data.streams.pools import PlacedRow, Pool, PoolStream


class MappedTraining(NamedTuple):
    """Training examples that can be asked for by number.

    Attributes:
        examples: makes the batch of a plan.
        batches: gives the batches of all epochs for a number of ranks.
        checksum: changes when the examples do.
    """

    examples: Dataset[Any]
    batches: Callable[[int], Batches]
    checksum: str


class StreamedTraining(NamedTuple):
    """Training examples that are read from files as they come.

    Attributes:
        sources, shares: the corpora, and how they are mixed.
        pool_size: rows of the shuffle buffer.
        prepare, open_pool: see :class:`PoolStream` and :class:`StreamLoader`.
        identity: changes when the files do.
    """

    sources: Sequence[Source]
    shares: Sequence[float] | None
    pool_size: int
    prepare: Callable[[int, list[PlacedRow]], Any]
    open_pool: Callable[[Pool, int], PoolBatches]
    identity: str


class RunData(LightningDataModule):
    """The loaders of a run that may stop and go on anywhere.

    To Lightning the whole run is one epoch; the epochs of the data are the business of the sampler. So nothing special
    happens at the end of an epoch, and a resumed run cannot replay one.

    Args:
        training: what to train on.
        validation: makes the batches of the validation split.
        validation_batches: what they are made of, each example once.
        seed: decides the order of examples.
        num_workers: processes that put training batches together.
        max_batches, max_epochs: length of the run on each rank; the shorter counts, one may be None.
    """

    def __init__(
        self,
        training: MappedTraining | StreamedTraining,
        validation: Dataset[Any],
        validation_batches: Sequence[Sequence[Any]],
        *,
        seed: int,
        num_workers: int,
        max_batches: int | None,
        max_epochs: int | None,
    ) -> None:
        super().__init__()
        assert max_batches is not None or max_epochs is not None
        self.training, self.validation, self.validation_batches = training, validation, validation_batches
        self.seed, self.num_workers = seed, num_workers
        self.max_batches, self.max_epochs = max_batches, max_epochs
        self._batches: tuple[int, Batches] | None = None

    def num_batches(self) -> int:
        """Length of the whole run on each rank, in batches."""
        limits = [] if self.max_batches is None else [self.max_batches]
        if self.max_epochs is not None:
            ranks, _ = self._ranks()
            batches = self.train_batches(ranks)
            limits.append(sum(batches.num_batches(epoch) // ranks for epoch in range(self.max_epochs)))
        return min(limits)

    def train_batches(self, ranks: int) -> Batches:
        """The batches of the training epochs over all ranks."""
        assert isinstance(self.training, MappedTraining), "a stream has no epochs"
        if self._batches is None or self._batches[0] != ranks:
            self._batches = ranks, self.training.batches(ranks)
        return self._batches[1]

    def train_dataloader(self) -> ResumableLoader | StreamLoader:
        ranks, rank = self._ranks()
        training = self.training
        if isinstance(training, StreamedTraining):
            stream = PoolStream(
                training.sources,
                training.shares,
                training.pool_size,
                training.prepare,
                seed=self.seed,
            )
            return StreamLoader(
                stream,
                training.open_pool,
                self.num_batches(),
                rank=rank,
                ranks=ranks,
                identity=training.identity,
                num_workers=self.num_workers,
                pin_memory=self._pins_memory(),
            )
        sampler = RunSampler(self.train_batches(ranks), self.num_batches(), rank=rank, ranks=ranks)
        return ResumableLoader(
            training.examples,
            sampler,
            data_checksum=training.checksum,
            num_workers=self.num_workers,
            pin_memory=self._pins_memory(),
        )

    def val_dataloader(self) -> ResumableLoader:
        ranks, rank = self._ranks()
        # Equally many on every rank, for they wait for each other at every batch.
        batches = FixedBatches(split_until_divisible(self.validation_batches, ranks)[rank::ranks])
        sampler = RunSampler(batches, batches.num_batches(0))
        return ResumableLoader(self.validation, sampler, num_workers=0, pin_memory=self._pins_memory())

    def _ranks(self) -> tuple[int, int]:
        return (1, 0) if self.trainer is None else (self.trainer.world_size, self.trainer.global_rank)

    def _pins_memory(self) -> bool:
        return self.trainer is not None and self.trainer.strategy.root_device.type == torch.device("cuda").type
