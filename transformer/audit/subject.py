"""What the checks work on: copies of the audited module, inputs, and how exact a comparison can be."""

import copy
import dataclasses
import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import numpy as np
import torch
from torch import Tensor, nn

from transformer.audit.model import AuditedModel, Inputs, Side
from transformer.audit.sampling import Sampling

SEED = 20_170_612
# Differences below these shares of the largest logit are rounding, whatever the model.
ROUNDING = {torch.float64: 1e-10, torch.float32: 2e-5}
SAFETY = 100.0  # times the rounding measured in the model itself
WOKEN_STD = 0.02


class CannotCopyError(ValueError):
    """The module cannot be copied, so it cannot be audited."""


class Subject:
    """One audit's view of a model. The module that was given is copied, never called.

    Comparisons run in evaluation mode and in float64 where the module allows it: what should be equal then differs by
    rounding alone, and any leak stands out. Matrices that are all zero, as some projections are at the beginning, hide
    whatever is behind them and are given small random values first.

    Args:
        model: what is audited.
        sampling: how much of it.
        device: where the copies are.
    """

    def __init__(self, model: AuditedModel, sampling: Sampling, device: torch.device) -> None:
        self.given, self.sampling, self.device = model, sampling, device
        self.woken: list[str] = []

    def copy(self, dtype: torch.dtype | None = None, *, wake: bool = True) -> AuditedModel:
        """A copy in evaluation mode, in another precision on request.

        Args:
            dtype: of parameters and buffers; None keeps theirs.
            wake: fill matrices that are all zero.

        Raises:
            CannotCopyError: the module cannot be copied.
        """
        try:
            module = copy.deepcopy(self.given.module)
        except Exception as error:  # whatever a foreign module's parts do
            raise CannotCopyError(f"the module cannot be copied, which the audit must do: {error}") from error
        module = module.to(self.device).eval() if dtype is None else module.to(self.device, dtype).eval()
        for parameter in module.parameters():
            parameter.grad = None
        if wake:
            self.woken = _wake(module, self.generator(0))
        return dataclasses.replace(self.given, module=module)

    @cached_property
    def plain(self) -> AuditedModel:
        """A copy in the module's own precision, for checks of its modes."""
        return self.copy()

    @cached_property
    def exact(self) -> AuditedModel:
        """The copy that outputs are compared of; checks that change a module make a copy of their own."""
        if self.sampling.exact:
            model = self.copy(torch.float64)
            try:
                self.logits(self.inputs(), model)
            except Exception:  # it mixes in tensors of another precision; if it is something else, `runs` will tell
                pass
            else:
                return model
        return self.copy(torch.float32)

    @property
    def exact_dtype(self) -> torch.dtype:
        """The precision of :attr:`exact`."""
        for parameter in self.exact.module.parameters():
            if parameter.dtype.is_floating_point:
                return parameter.dtype
        return torch.float32

    @cached_property
    def tolerance(self) -> float:
        """How far apart two logits may be that should be equal.

        The rounding of the model itself is measured: moving all weights by a share d of themselves, there and back,
        changes a smooth function by ``f(w + d) + f(w - d) - 2 f(w)``, which for a d of the size of the precision's
        square root is as small as rounding; a module that computes inside in less precision than its weights have
        shows it here.
        """
        inputs, generator = self.inputs(), self.generator(1)
        centre = self.logits(inputs)
        moved = self.copy(self.exact_dtype).module
        weights = [parameter for parameter in moved.parameters() if parameter.is_floating_point()]
        step = torch.finfo(self.exact_dtype).eps ** 0.5
        moves = [step * _randn_like(weight, generator) * weight for weight in weights]
        sums = torch.zeros_like(centre)
        for sign in (1.0, -2.0):
            with torch.no_grad():
                for weight, move in zip(weights, moves, strict=True):
                    weight.add_(move, alpha=sign)
            sums += self.logits(inputs, dataclasses.replace(self.exact, module=moved))
        noise = float((sums - 2 * centre).abs().max())
        return max(ROUNDING[self.exact_dtype] * float(centre.abs().max()), SAFETY * noise)

    def seed(self, seed: int = SEED) -> None:
        """Start torch's own random numbers anew where the copies are, and nowhere else."""
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            with torch.cuda.device(self.device):
                torch.cuda.manual_seed(seed)

    def generator(self, salt: int) -> torch.Generator:
        """A generator of the audit's own, on the CPU; the same for the same salt."""
        return torch.Generator().manual_seed(SEED + salt)

    def ids(self, rows: int, length: int, size: int, salt: int) -> Tensor:
        """Random ids but the padding's, on the audit's device."""
        drawn = torch.randint(0, size - 1, (rows, length), generator=self.generator(salt))
        return (drawn + (drawn >= self.given.pad_id)).to(self.device)

    def inputs(
        self, rows: int | None = None, target_length: int | None = None, source_length: int | None = None, salt: int = 2
    ) -> Inputs:
        """A batch without padding."""
        rows = self.sampling.rows if rows is None else rows
        length = self.sampling.target_length if target_length is None else target_length
        target_BT = self.ids(rows, length, self.given.vocab_size, salt)
        real_BT = torch.ones_like(target_BT, dtype=torch.bool)
        if self.given.source_size is None:
            return Inputs(target_BT, real_BT)
        length = self.sampling.source_length if source_length is None else source_length
        source_BS = self.ids(rows, length, self.given.source_size, salt + 1)
        return Inputs(target_BT, real_BT, source_BS, torch.ones_like(source_BS, dtype=torch.bool))

    def logits(self, inputs: Inputs, model: AuditedModel | None = None, *, seed: int = SEED) -> Tensor:
        """Logits without gradients, always with the same random numbers."""
        self.seed(seed)
        with torch.no_grad():
            return (self.exact if model is None else model).logits(inputs)


def other_ids(ids: Tensor, size: int, pad_id: int, step: int = 1) -> Tensor:
    """Different ids, none of them the padding's, for ids none of which is."""
    place = ids - (ids > pad_id).long()  # among the ids but the padding's
    moved = (place + step) % (size - 1)
    return moved + (moved >= pad_id).long()


def padded(ids: Tensor, real: Tensor, count: int, side: Side, filler: int) -> tuple[Tensor, Tensor]:
    """Ids and their mask with so many tokens of padding on one side."""
    extra = ids.new_full((len(ids), count), filler)
    masked = torch.zeros_like(extra, dtype=torch.bool)
    if side == "right":
        return torch.cat([ids, extra], dim=1), torch.cat([real, masked], dim=1)
    return torch.cat([extra, ids], dim=1), torch.cat([masked, real], dim=1)


def largest(difference: Tensor) -> float:
    """The largest absolute value: NaN if there is one, 0 of nothing."""
    return float(difference.abs().max()) if difference.numel() else 0.0


def larger(one: float, other: float) -> float:
    """The larger of two deviations; NaN, which keeps no bound, if either is: Python's own ``max`` may lose it."""
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


def smaller(one: float, other: float) -> float:
    """The smaller of two, or NaN."""
    return -larger(-one, -other)


@contextmanager
def untouched_random_numbers(device: torch.device) -> Iterator[None]:
    """Put all random number generators back to where they were; gradients are on inside, whatever the caller has."""
    python, numpy = random.getstate(), np.random.get_state()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices), torch.enable_grad():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def _wake(module: nn.Module, generator: torch.Generator) -> list[str]:
    """Fill matrices that are all zero; returns their names."""
    woken = []
    for name, parameter in module.named_parameters():
        if parameter.dim() >= 2 and parameter.dtype.is_floating_point and not bool(parameter.any()):
            with torch.no_grad():
                parameter.copy_(WOKEN_STD * _randn_like(parameter, generator))
            woken.append(name)
    return woken


def _randn_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(tensor.shape, generator=generator, dtype=torch.float32).to(tensor.device, tensor.dtype)
