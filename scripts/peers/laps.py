"""What contestants in training are asked for and answer, and the loop of those without a trainer of their own."""

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from peers.machine import Memory, Precision, autocast, forget_peak, moved, peak, synchronize, taken
from transformer.data.batches.collate import TextBatch, TranslationBatch

Batch = TranslationBatch | TextBatch
CLIP = 1.0  # greatest gradient norm; of everybody


class Lap(NamedTuple):
    """Some training steps, one after another: the number of the first, and how many."""

    first: int
    steps: int


class Check(NamedTuple):
    """Loss per token of a batch without dropout: the contestant's, and our own model's with the same weights."""

    loss: float
    expected: float


class Amount(NamedTuple):
    """Tokens of some batches: real ones, and positions with padding, of either side."""

    source: int
    source_positions: int
    target: int
    target_positions: int

    def plus(self, other: "Amount") -> "Amount":
        """Both together."""
        return Amount(*(one + two for one, two in zip(self, other, strict=True)))


NOTHING = Amount(0, 0, 0, 0)


class Trained(NamedTuple):
    """A lap that was run: its seconds, what it trained on, the memory it took."""

    seconds: float
    amount: Amount
    memory: Memory


Contestant = Callable[[Lap | None], Any]
"""Runs a lap and answers with :class:`Trained`; for None, answers with a :class:`Check`, or None if it has none."""


def amount_of(batch: Batch) -> Amount:
    """Tokens of one batch, which is not yet on a GPU."""
    if isinstance(batch, TranslationBatch):
        return Amount(
            int(batch.source_mask_BS.sum()),
            batch.source_mask_BS.numel(),
            int(batch.scored_BT.sum()),
            batch.scored_BT.numel(),
        )
    return Amount(0, 0, int(batch.scored_BL.sum()), batch.scored_BL.numel())


Batches = Callable[[Lap], tuple[Iterable[Any], Callable[[], Amount]]]
"""The batches of a lap, made as they are asked for, and afterwards what they held."""


class Loop:
    """Zero the gradients, loss, backward, clip, update: nothing more, and no wait for the device.

    Args:
        model: in training mode.
        loss: mean loss per token of a batch.
        optimizer: of its parameters.
        batches: of each lap; what it does before it gives the first one is not timed.
        device, precision: of the steps.
        check: the contestant's answer to None.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[[Any], Tensor],
        optimizer: Optimizer,
        batches: Batches,
        device: torch.device,
        precision: Precision,
        check: Check | None,
    ) -> None:
        self.model, self.loss, self.optimizer, self.batches = model, loss, optimizer, batches
        self.device, self.precision, self.check = device, precision, check
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]

    def __call__(self, lap: Lap | None) -> Trained | Check | None:
        """See :data:`Contestant`."""
        if lap is None:
            return self.check
        batches, amount = self.batches(lap)
        before = taken(self.device)
        forget_peak(self.device)
        synchronize(self.device)
        start = time.perf_counter()
        for batch in moved(batches, self.device):
            self.step(batch)
        synchronize(self.device)
        seconds = time.perf_counter() - start
        return Trained(seconds, amount(), Memory(before, peak(self.device)))

    def step(self, batch: Any) -> None:
        """One update."""
        with autocast(self.device, self.precision):
            loss = self.loss(batch)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.parameters, CLIP)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def given(batches: Sequence[Batch], forms: Sequence[Any]) -> Batches:
    """Batches that are the same for everybody, each in a contestant's own form; a lap past the last begins anew."""

    def of(lap: Lap) -> tuple[Iterable[Any], Callable[[], Amount]]:
        numbers = [number % len(batches) for number in range(lap.first, lap.first + lap.steps)]
        return [forms[number] for number in numbers], lambda: total(batches[number] for number in numbers)

    return of


def total(batches: Iterable[Batch]) -> Amount:
    """Tokens of all batches."""
    return summed(map(amount_of, batches))


def summed(amounts: Iterable[Amount]) -> Amount:
    """All together."""
    return functools.reduce(Amount.plus, amounts, NOTHING)


def fused_adamw(model: nn.Module, **settings: Any) -> torch.optim.AdamW:
    """The fastest Adam that torch has, without weight decay."""
    return torch.optim.AdamW(model.parameters(), weight_decay=0.0, fused=True, **settings)
