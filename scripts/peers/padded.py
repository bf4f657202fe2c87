"""Batches of a fixed number of pairs, in any order, padded to the longest: what a loop without buckets does."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from peers.laps import Amount, Batches, Lap, amount_of, summed
from peers.stored import StoredPairs
from transformer.data.batches.collate import TranslationBatch, collate_translation

Order = Callable[[torch.Generator], Iterable[int]]
"""The numbers of an epoch's pairs; those of a batch follow each other."""


def padded_batches(
    pairs: StoredPairs, rows: int, form: Callable[[TranslationBatch], Any], order: Order | None = None
) -> Batches:
    """Epoch after epoch, in a form of the contestant's.

    Args:
        pairs: the examples.
        rows: of a batch; what is left at the end of an epoch makes none.
        form: of the batches.
        order: of an epoch; None shuffles.
    """
    made: list[Amount] = []

    def collate(numbers: list[int]) -> Any:
        examples = [(number, pairs.sources[number], pairs.targets[number]) for number in numbers]
        batch = collate_translation(examples, **pairs.special._asdict())
        made.append(amount_of(batch))
        return form(batch)

    def forever() -> Iterator[Any]:
        generator, numbers = torch.Generator().manual_seed(0), range(len(pairs.sources))
        while True:
            drawn: Any = (
                torch.randperm(len(numbers), generator=generator).tolist() if order is None else order(generator)
            )
            yield from DataLoader(numbers, batch_size=rows, sampler=drawn, collate_fn=collate, drop_last=True)  # type: ignore[arg-type]

    stream = forever()

    def of(lap: Lap) -> tuple[Iterable[Any], Callable[[], Amount]]:
        made.clear()
        return (next(stream) for _ in range(lap.steps)), lambda: summed(made)

    return of


def rows_for(pairs: StoredPairs, max_tokens: int) -> int:
    """Pairs of a batch with as many target tokens, without padding, as a batch of ours has padded ones."""
    tokens = sum(len(target) + 1 for target in pairs.targets)
    return max(1, min(round(max_tokens * len(pairs.targets) / tokens), len(pairs.targets)))
