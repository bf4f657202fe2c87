"""Data loaders that remember their position, so that an interrupted run goes on with the very next batch."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from torch.utils.data import DataLoader, Dataset

from transformer.data.batches.buckets import RunSampler

BatchT = TypeVar("BatchT")


class ResumableLoader(DataLoader[Any]):
    """Yields the batches that a :class:`RunSampler` plans; its state is the number of batches taken so far.

    Batches that workers have prefetched but nobody has taken do not count, so any number of workers may resume the run
    of any other. Lightning stores and restores the state with its checkpoints.

    Args:
        dataset: makes the batch of a plan.
        sampler: gives the plans.
        data_checksum: changes when the examples do; a run is not resumed with others.
        num_workers: processes that make batches.
        pin_memory: put batches where a GPU fetches them fastest.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        sampler: RunSampler,
        *,
        data_checksum: str = "",
        num_workers: int,
        pin_memory: bool,
    ) -> None:
        super().__init__(
            dataset,
            sampler=sampler,
            batch_size=None,  # the data set makes whole batches
            collate_fn=as_it_is,
            num_workers=num_workers,
            worker_init_fn=leave_signals_to_the_run,
            pin_memory=pin_memory,
            persistent_workers=num_workers > 0,
        )
        self.run_sampler, self.data_checksum = sampler, data_checksum
        self.taken = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.taken = self.run_sampler.position
        for batch in super().__iter__():
            self.taken += 1
            yield batch

    def state_dict(self) -> dict[str, Any]:
        """The number of batches taken, and of which data."""
        return {"taken": self.taken, "data_checksum": self.data_checksum, "ranks": self.run_sampler.ranks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Start the next iteration after that many batches.

        Raises:
            ValueError: The data, or the number of ranks, are others than those that the state is of.
        """
        check_same_data(state["data_checksum"], self.data_checksum)
        check_same_ranks(state["ranks"], self.run_sampler.ranks)
        self.run_sampler.position = self.taken = state["taken"]


def check_same_data(stored: str, present: str) -> None:
    """Refuse to go on with other examples."""
    if stored != present:
        raise ValueError(
            "the training data, or how they are filtered or cut into subwords, have changed since this run was saved, "
            "so it cannot go on where it was; start a new run."
        )


def check_same_ranks(stored: int, present: int) -> None:
    """Refuse to share the batches among another number of devices: some would be lost."""
    if stored != present:
        raise ValueError(
            f"this run was saved with {stored} devices, which share the batches, and cannot go on with {present}."
        )


def leave_signals_to_the_run(worker: int) -> None:
    """Of a signal that reaches all processes, as at the end of a job's time, the training process makes what it means.

    A worker that died of it would end the run before it is saved. Workers end with the process that they work for.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # torch asks for the parent of the process, which is another one where workers come from a fork server.
    run = multiprocessing.parent_process()
    assert run is not None, "called in a worker"
    threading.Thread(target=_end_with, args=(run,), daemon=True).start()


def _end_with(process: BaseProcess) -> None:
    process.join()
    os._exit(1)


def as_it_is(batch: BatchT) -> BatchT:
    """Batches are made whole: nothing to collate."""
    return batch
