"""What training means, whatever the task: one Lightning module whose loss is divided once, by all tokens of a step."""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from transformer.data.batches.pairs import mixed_seed
from transformer.data.datamodule import RunData
from transformer.metrics.running import TokenMean, perplexity
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.loss import LossSum
from transformer.training.config import TrainConfig
from transformer.training.optimizers import build_optimizer
from transformer.training.schedules import rate_factor
from transformer.training.update_guard import UpdateGuard


class Sample(NamedTuple):
    """One output of the last validation, to be looked at."""

    source: str
    output: str
    reference: str | None


class Task(LightningModule, ABC):
    """A model, its loss, its optimizer and its validation.

    Micro-batches of an accumulation window and of all ranks add up their gradients of *summed* losses; right before
    the update (after unscaling, before clipping) the sum is divided by the number of tokens behind it. So accumulation,
    devices and a short last window change nothing but the rounding.

    Args:
        config: the run's settings.
        model: what to train.
    """

    def __init__(self, config: TrainConfig, model: EncoderDecoder | DecoderOnly) -> None:
        super().__init__()
        self.config = config
        self.model = model
        self.validation_nll = TokenMean()
        # Keeps summed losses near 1 for float16; divided out again with the token count.
        self.nominal_tokens = float(config.batching.max_tokens_per_batch)
        self._window_tokens: Tensor | None = None
        self._logged: tuple[Tensor, Tensor] | None = None  # loss and tokens since the last logging step
        self.samples: list[Sample] = []
        self.guard: UpdateGuard | None = None  # skips updates that would do harm

    @abstractmethod
    def loss(self, batch: Any) -> LossSum:
        """The summed loss of a batch and its number of scored tokens."""

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        # Random numbers are a function of (seed, batch, rank): a resumed run needs no generator state to go on exactly.
        seed = mixed_seed(self.config.seed, batch_idx, self.global_rank)
        if self.device.type == "cpu":
            # `torch.manual_seed` would also take a stack trace for every GPU library, at every step.
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        total = self.loss(batch)
        tokens = total.num_tokens
        self._window_tokens = tokens if self._window_tokens is None else self._window_tokens + tokens
        if self.guard is not None:
            self.guard.add(total.nll, tokens)
        self._log_loss(total.nll, tokens, batch_idx)
        return total.loss / self.nominal_tokens

    def _log_loss(self, nll: Tensor, tokens: Tensor, batch_idx: int) -> None:
        """Log the mean loss per token since the last logging step: batches of like lengths differ a lot."""
        previous_nll, previous_tokens = (0, 0) if self._logged is None else self._logged
        self._logged = (previous_nll + nll, previous_tokens + tokens)
        settings = self.config.trainer
        window_ends = (batch_idx + 1) % settings.accumulate_grad_batches == 0
        if window_ends and (self.trainer.global_step + 1) % settings.log_every_n_steps == 0:
            sums = torch.stack([self._logged[0].float(), self._logged[1].float()])
            if self.trainer.world_size > 1:
                torch.distributed.all_reduce(sums)
            self.log("train/loss", sums[0] / sums[1])
            self._logged = None

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        # Only what the first rank saves is written, so it saves the sums over all ranks.
        logged = None if self._logged is None else tuple(value.clone() for value in self._logged)
        if logged is not None and self.trainer.world_size > 1:
            for value in logged:
                torch.distributed.all_reduce(value)
        checkpoint["logged_loss"] = logged

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        # All ranks are given the same file; what they have summed is added up again when it is logged.
        self._logged = checkpoint["logged_loss"] if self.global_rank == 0 else None

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Divide the gradients of the summed losses by the number of tokens behind them, and clip, in one pass.

        Lightning calls this before every update, with unscaled gradients. Its own clipping refuses a fused optimizer
        under mixed precision.
        """
        assert self._window_tokens is not None
        tokens, self._window_tokens = self._window_tokens, None
        if self.trainer.world_size > 1:
            torch.distributed.all_reduce(tokens)
        # Lightning has divided by the accumulation length, data parallelism by the number of ranks.
        divided = self.nominal_tokens * self.trainer.accumulate_grad_batches * self.trainer.world_size
        # Not `self.parameters()`, which goes through all modules.
        trained = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        gradients = [p.grad for p in trained]
        factor, norm = divided / tokens.to(torch.float32), None
        if gradient_clip_val is not None:
            norm = torch.nn.utils.get_total_norm(gradients) * factor
            factor = factor * (gradient_clip_val / (norm + 1e-6)).clamp(max=1.0)
        torch._foreach_mul_(gradients, factor)
        if self.guard is not None:
            self.guard.judge(trained, optimizer, norm)

    def on_train_start(self) -> None:
        self._window_tokens = None
        # A run that is resumed to become longer may have another schedule than the one that its stored rates are from.
        scheduler = self.lr_schedulers()
        assert isinstance(scheduler, LambdaLR)
        for group, peak, factor in zip(
            scheduler.optimizer.param_groups, scheduler.base_lrs, scheduler.lr_lambdas, strict=True
        ):
            group["lr"] = peak * factor(scheduler.last_epoch)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        total = self.loss(batch)
        self.validation_nll.update(total.nll, total.num_tokens)

    def on_validation_epoch_end(self) -> None:
        self.report_loss(float(self.validation_nll.compute()))
        self.validation_nll.reset()

    def report_loss(self, nll_per_token: float) -> None:
        """Log the validation loss and what follows from it."""
        self.log_validation("loss", nll_per_token)
        self.log_validation("perplexity", perplexity(nll_per_token))

    def log_validation(self, name: str, value: float) -> None:
        """Log a value that is the same on all ranks."""
        # Not moved to the device: some have no float64, and the value is already complete.
        self.log(f"validation/{name}", torch.tensor(value, dtype=torch.float32), rank_zero_only=False, sync_dist=False)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        fused = self.trainer.precision != "16-mixed" and self.device.type in ("cpu", "cuda")
        optimizer = build_optimizer(self.config.optimizer, self.model, fused=fused)
        # Not the trainer's own estimate: making it would start the loader before a resumed run's position is restored.
        data = self.trainer.datamodule  # type: ignore[attr-defined]
        assert isinstance(data, RunData)
        steps = math.ceil(data.num_batches() / self.trainer.accumulate_grad_batches)
        factor = rate_factor(self.config.scheduler, steps)
        scheduler = LambdaLR(optimizer, lambda steps_done: factor(steps_done + 1))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}
