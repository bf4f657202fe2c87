"""What a run does when it diverges: updates are skipped, then it goes back to a good checkpoint, then it stops."""

import math
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from rich.console import Console

from transformer.training.checkpoints import LastCheckpoint, load_checkpoint
from transformer.training.ema import ExponentialMovingAverage
from transformer.training.history import History
from transformer.training.trainer_config import DivergenceConfig
from transformer.training.update_guard import GuardReading, UpdateGuard

CURE = "Start anew with a smaller optimizer.learning_rate or a longer scheduler.warmup_steps."


class RollBack(Callback):
    """Reports the updates that an :class:`UpdateGuard` skips; after too many in a row the run goes back.

    It goes back to the weights, moments and averages of the last planned checkpoint, if no update was being skipped
    there, and on with the batches, the rates and the step numbers that follow. If it has gone back before within
    ``recovery_steps``, that checkpoint is not trusted, and it goes back to the best one. At last it stops.

    The guard is read every ``every_n_steps`` optimizer steps, for that waits for the device. So a few more updates than
    ``max_skips`` may be skipped; they would not have changed the weights.

    Args:
        config: the limits.
        guard: what skips.
        last: keeps the planned checkpoints.
        best: keeps the best ones.
        average: has an average of the weights to go back with, or None.
        history: records what happens.
        console: where to tell it.
        every_n_steps: optimizer steps between readings.
    """

    def __init__(
        self,
        config: DivergenceConfig,
        guard: UpdateGuard,
        last: LastCheckpoint,
        best: ModelCheckpoint,
        average: ExponentialMovingAverage | None,
        history: History,
        console: Console,
        *,
        every_n_steps: int,
    ) -> None:
        self.config, self.guard, self.last, self.best, self.average = config, guard, last, best, average
        self.history, self.console, self.every_n_steps = history, console, every_n_steps
        self._told = 0  # skipped updates
        self._steps: list[int] = []  # at which the run went back, as far as they count

    def state_dict(self) -> dict[str, Any]:
        return {"guard": self.guard.state_dict(), "told": self._told, "steps": list(self._steps)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.guard.load_state_dict(state_dict["guard"])
        self._told, self._steps = state_dict["told"], state_dict["steps"]

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches != 0 and not trainer.is_last_batch:
            return  # in the middle of an accumulation window
        step = trainer.global_step
        if step % self.every_n_steps != 0 and step < trainer.estimated_stepping_batches:
            return
        reading = self.guard.read()
        if reading.skipped > self._told:
            self._tell(trainer, reading)
        if reading.in_a_row >= self.config.max_skips:
            self._go_back(trainer, pl_module, reading)

    def _tell(self, trainer: Trainer, reading: GuardReading) -> None:
        new, self._told = reading.skipped - self._told, reading.skipped
        self.history.record(trainer, {"skipped_updates": new})
        if trainer.is_global_zero:
            self.console.print(
                f"step {trainer.global_step}: skipped {_updates(new)} with {self._fault(reading)}",
                highlight=False,
            )

    def _go_back(self, trainer: Trainer, pl_module: LightningModule, reading: GuardReading) -> None:
        step = trainer.global_step
        recent = [earlier for earlier in self._steps if step - earlier <= self.config.recovery_steps]
        checkpoint = None
        if len(recent) < self.config.max_rollbacks:
            checkpoint = self._latest_good(trainer, trusted=not recent)
        if checkpoint is None:
            raise ValueError(self._last_words(trainer, reading, len(recent)))
        pl_module.load_state_dict(checkpoint["state_dict"])
        if self.average is not None:
            self.average.on_load_checkpoint(trainer, pl_module, checkpoint)
        groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
        rates = [group["lr"] for group in groups]
        trainer.strategy.load_optimizer_state_dict(checkpoint)
        groups = [group for optimizer in trainer.optimizers for group in optimizer.param_groups]
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
        self.guard.restart()
        self._steps = [*recent, step]
        self.history.record(trainer, {"rolled_back_to": checkpoint["global_step"]})
        if trainer.is_global_zero:
            self.console.print(
                f"step {step}: {_updates(reading.in_a_row)} skipped in a row; back to the weights of step "
                f"{checkpoint['global_step']} and on with other batches (roll-back {len(self._steps)} of "
                f"{self.config.max_rollbacks})",
                highlight=False,
            )

    def _latest_good(self, trainer: Trainer, *, trusted: bool) -> dict[str, Any] | None:
        """The last planned checkpoint if it can be trusted, else the best; None if there is none."""
        planned = self.last.latest_planned()  # also waits for the best one to be written
        trainer.strategy.barrier()  # which one rank does, and all read
        if trusted and planned is not None:
            checkpoint = load_checkpoint(planned)
            own = checkpoint["callbacks"].get(self.state_key)
            guard = UpdateGuard(self.config.loss_factor)
            if own is not None:
                guard.load_state_dict(own["guard"])
            if guard.read().in_a_row == 0:
                return checkpoint
        return load_checkpoint(Path(self.best.best_model_path)) if self.best.best_model_path else None

    def _last_words(self, trainer: Trainer, reading: GuardReading, rollbacks: int) -> str:
        again = f" after {rollbacks} roll-back{'s' if rollbacks > 1 else ''}" if rollbacks else ""
        best = self.best.best_model_path
        kept = f"The best weights are kept in {best}." if best else "There is no checkpoint to go back to."
        return (
            f"the run has diverged: at step {trainer.global_step}{again}, {_updates(reading.in_a_row)} in a row came "
            f"with {self._fault(reading)}. {CURE} {kept}"
        )

    def _fault(self, reading: GuardReading) -> str:
        fault, limit = "a loss or gradient that is not finite", self.guard.limit(reading.lowest_mean)
        return f"{fault}, or a loss above {limit:.3g} nats per token" if math.isfinite(limit) else fault


def _updates(count: int) -> str:
    return f"{count} update{'' if count == 1 else 's'}"
