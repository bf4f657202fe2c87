"""Decides on the device, without waiting for it, which updates may reach the weights."""

from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

RUNNING_MEAN_STEPS = 100
LEAST_LOSS = 1.0  # nats; a model that knows its data by heart has losses whose ratios say nothing


class GuardReading(NamedTuple):
    """What a guard has seen so far.

    Attributes:
        lowest_mean: lowest running mean of the loss per token, in nats.
        skipped: updates skipped in the whole run.
        in_a_row: updates skipped since the last one that was made.
    """

    lowest_mean: float
    skipped: int
    in_a_row: int


class UpdateGuard:
    """Skips an update whose loss or gradient is not finite, or whose loss explodes.

    A loss explodes above ``loss_factor`` times its lowest running mean over about 100 updates, which counts as one nat
    per token if it is less. The mean is the lowest and not the latest one, so that a loss that rises slowly explodes
    too. Skipped updates leave weights, moments and the mean as they are.

    A fused Adam gets the verdict as a tensor and leaves everything as it is by itself; for other optimizers the host
    waits for the verdict, which costs nothing on a CPU.

    Args:
        loss_factor: see above.
        judge_gradients: whether a gradient that is not finite counts; not with the gradient scaler of float16, which
            provokes such gradients to find its scale, and skips them itself.
    """

    def __init__(self, loss_factor: float, *, judge_gradients: bool = True) -> None:
        self.loss_factor, self.judge_gradients = loss_factor, judge_gradients
        self._window: Tensor | None = None  # summed loss and number of tokens since the last update
        # The running mean and its lowest value so far; updates skipped, and those of them in a row.
        self._seen: Tensor = torch.tensor([torch.inf, torch.inf, 0.0, 0.0])

    def add(self, nll: Tensor, num_tokens: Tensor) -> None:
        """Take note of a batch: its summed loss in nats and its number of tokens."""
        sums = torch.stack([nll.detach().float(), num_tokens.float()])
        self._window = sums if self._window is None else self._window + sums

    def judge(self, parameters: Iterable[nn.Parameter], optimizer: Optimizer, gradient_norm: Tensor | None) -> None:
        """Let the coming update pass or not. To be called by all ranks, when the gradients are complete.

        Args:
            parameters: what is trained.
            optimizer: what is about to update them.
            gradient_norm: of all their gradients together; measured if it is not known.
        """
        assert self._window is not None
        window, self._window = self._window, None
        parameters = list(parameters)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(window)
        loss = window[0] / window[1]
        mean, lowest, skipped, in_a_row = self._seen.to(loss.device, non_blocking=True).unbind()
        fits = loss.isfinite() & (loss <= self.loss_factor * lowest.clamp(min=LEAST_LOSS))
        if self.judge_gradients:
            if gradient_norm is None:
                gradient_norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
            fits &= gradient_norm.isfinite()
        bad = (~fits).float()
        following = torch.where(mean.isfinite(), mean.lerp(loss, 1 / RUNNING_MEAN_STEPS), loss)
        mean = torch.where(fits, following, mean)
        self._seen = torch.stack([mean, torch.minimum(lowest, mean), skipped + bad, (in_a_row + bad) * bad])
        if isinstance(optimizer, Adam | AdamW) and all(group["fused"] for group in optimizer.param_groups):
            optimizer.found_inf = bad  # type: ignore[attr-defined]
        elif bool(bad):
            for parameter in parameters:
                parameter.grad = None  # an optimizer passes over those

    def limit(self, lowest_mean: float) -> float:
        """The greatest loss per token that does not explode."""
        return self.loss_factor * max(lowest_mean, LEAST_LOSS)

    def read(self) -> GuardReading:
        """What it has seen; waits for the device."""
        _, lowest, skipped, in_a_row = self._seen.tolist()
        return GuardReading(lowest, int(skipped), int(in_a_row))

    def restart(self) -> None:
        """Begin a new row: the weights are others now."""
        _, lowest, skipped, _ = self._seen.unbind()
        self._seen = torch.stack([lowest, lowest, skipped, torch.zeros_like(skipped)])

    def state_dict(self) -> dict[str, Tensor]:
        return {"seen": self._seen}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self._seen = state["seen"]
