"""Exponential moving average of the weights: validated, kept and bundled in place of the weights that are trained."""

from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from transformer.training.trainer_config import EmaConfig

RAW = "raw_weights"


class ExponentialMovingAverage(Callback):
    """Keeps ``average = decay * average + (1 - decay) * weights`` and shows it to everything but the training.

    From the beginning of a validation to its end, samples included, the model has the averaged weights. A checkpoint
    has them as its ``state_dict``, and the trained ones beside for a run that goes on. Until the first update of the
    average, which copies the weights, all have the weights as they are.

    Not Lightning's ``WeightAveraging``: that copies the whole module with its texts, averages tables that never change,
    waits for the device at every step, and gives the weights back before the samples are made.

    Args:
        config: decay, and when the average is updated.
    """

    def __init__(self, config: EmaConfig) -> None:
        self.config = config
        self._average: list[Tensor] | None = None
        self._trained: list[Tensor] | None = None  # while the model has the average

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._average is not None:  # a checkpoint is loaded before the model is on its device
            pairs = zip(self._average, _weights(pl_module), strict=True)
            self._average = [average.to(weight) for average, weight in pairs]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches != 0 and not trainer.is_last_batch:
            return  # in the middle of an accumulation window
        step = trainer.global_step
        if step < self.config.start_step or step % self.config.every_n_steps != 0:
            return
        weights = _weights(pl_module)
        if self._average is None:
            self._average = [weight.clone() for weight in weights]
        else:
            torch._foreach_lerp_(self._average, weights, 1 - self.config.decay)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._average is not None:
            weights = _weights(pl_module)
            self._trained = [weight.clone() for weight in weights]
            torch._foreach_copy_(weights, self._average)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._trained is not None:
            torch._foreach_copy_(_weights(pl_module), self._trained)
            self._trained = None

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        if self._average is None:
            return
        assert self._trained is None, "checkpoints are written after a validation, not during it"
        averages = {id(w): average for w, average in zip(pl_module.parameters(), self._average, strict=True)}
        checkpoint[RAW] = checkpoint["state_dict"]
        named = pl_module.named_parameters(remove_duplicate=False)
        checkpoint["state_dict"] = checkpoint[RAW] | {name: averages[id(weight)] for name, weight in named}

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Take the average from a checkpoint whose ``state_dict`` the module has already loaded."""
        self._average = None
        if RAW in checkpoint:
            self._average = [weight.clone() for weight in _weights(pl_module)]
            pl_module.load_state_dict(checkpoint[RAW])


def _weights(module: LightningModule) -> list[Tensor]:
    """The trained tensors themselves, each once however often it is tied."""
    return [parameter.detach() for parameter in module.parameters()]
