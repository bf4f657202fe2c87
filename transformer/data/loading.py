"""A data loader that remembers its position, so that an interrupted run goes on with the very next batch."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader, Dataset

from transformer.data.batching import RunSampler


class ResumableLoader(DataLoader[Any]):
    """Yields the batches of a :class:`RunSampler`; its state is the number of batches taken so far.

    Batches that workers have prefetched but nobody has taken do not count, so any number of workers may resume the run
    of any other. Lightning stores and restores the state with its checkpoints.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        sampler: RunSampler,
        collate: Callable[[Sequence[Any]], Any],
        *,
        num_workers: int,
        pin_memory: bool,
    ) -> None:
        super().__init__(
            dataset,
            batch_sampler=sampler,
            collate_fn=collate,
            num_workers=num_workers,
            pin_memory=pin_memory,
            persistent_workers=num_workers > 0,
        )
        self.run_sampler = sampler
        self.taken = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self.taken = self.run_sampler.position
        for batch in super().__iter__():
            self.taken += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """The number of batches taken."""
        return {"taken": self.taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Start the next iteration after that many batches."""
        self.run_sampler.position = self.taken = state["taken"]
