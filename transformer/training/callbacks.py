"""What a run shows while it goes on, and how it ends."""

import math
import time
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table
from rich.text import Text
from torch import Tensor
from torch.optim import Optimizer

from transformer.data.batches.collate import TextBatch, TranslationBatch
from transformer.training.task import Task
from transformer.training.time_left import TimeLeft, clock

NARROW = 100  # characters of a terminal in which a bar has no room for everything


class StopAtEnd(Callback):
    """Ends the run at its last step or when its time is up, with a validation: Lightning makes one when asked to stop.

    Time is looked at between optimizer steps only, so that no step is cut in half; a resumed run goes on counting.

    Args:
        max_seconds: wall-clock limit of the whole run, or None.
    """

    def __init__(self, max_seconds: float | None) -> None:
        self.max_seconds = max_seconds
        self._earlier = 0.0  # seconds before the run was resumed
        self._started = time.monotonic()

    def state_dict(self) -> dict[str, float]:
        return {"seconds": self._seconds()}

    def load_state_dict(self, state_dict: dict[str, float]) -> None:
        self._earlier = state_dict["seconds"]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._started = time.monotonic()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (batch_idx + 1) % trainer.accumulate_grad_batches != 0 and not trainer.is_last_batch:
            return  # in the middle of an accumulation window
        if trainer.global_step >= trainer.estimated_stepping_batches:
            trainer.should_stop = True
        elif self.max_seconds is not None:
            over = self._seconds() >= self.max_seconds
            # All ranks must stop at the same step, and their clocks differ.
            if trainer.world_size > 1:
                over = trainer.strategy.reduce_boolean_decision(over, all=False)
            trainer.should_stop = trainer.should_stop or over

    def seconds_left(self) -> float:
        """Seconds until the time is up; infinity without a limit."""
        return math.inf if self.max_seconds is None else max(0.0, self.max_seconds - self._seconds())

    def _seconds(self) -> float:
        return self._earlier + time.monotonic() - self._started


class Patience(EarlyStopping):
    """Early stopping whose settings are the configuration's, also when a run is resumed with others than it had."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})


class ProgressReport(Callback):
    """A progress bar with loss, learning rate, tokens per second and time left, and a line for each validation.

    Without a terminal the bar becomes plain lines, one every ``plain_every_n_steps`` optimizer steps.

    Args:
        console: where to draw; standard error for the commands.
        end: knows when the time is up.
        every_n_steps: optimizer steps between new values; each waits for the device once.
        validate_every_n_steps: optimizer steps between validations.
        plain_every_n_steps: optimizer steps between plain lines.
    """

    def __init__(
        self,
        console: Console,
        end: StopAtEnd,
        *,
        every_n_steps: int,
        validate_every_n_steps: int,
        plain_every_n_steps: int = 100,
    ) -> None:
        self.console, self.end = console, end
        self.every_n_steps, self.plain_every_n_steps = every_n_steps, plain_every_n_steps
        self.validate_every_n_steps = validate_every_n_steps
        self._time_left = TimeLeft(0, validate_every_n_steps)
        self._progress: Progress | None = None
        self._bar = TaskID(0)
        self._tokens: Tensor | None = None  # since the last logging step
        self._seconds = 0.0
        self._mark = 0.0  # when the time of the next batch began
        self._loss = self._rate = self._speed = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        total = int(trainer.estimated_stepping_batches)
        self._time_left = TimeLeft(total, self.validate_every_n_steps)
        narrow = self.console.width < NARROW
        self._progress = Progress(
            TextColumn("step"),
            MofNCompleteColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[state]}"),
            *([] if narrow else [TimeElapsedColumn()]),
            TextColumn("left {task.fields[left]}"),
            console=self.console,
            expand=True,
            disable=not self.console.is_terminal,
        )
        self._progress.start()
        self._bar = self._progress.add_task("", total=total, completed=trainer.global_step, state="", left=clock(None))
        self._mark = time.perf_counter()

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        self._rate = optimizer.param_groups[0]["lr"]  # at the end of the batch it is the next update's

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.global_step
        in_window = (batch_idx + 1) % trainer.accumulate_grad_batches != 0
        is_logged = not in_window and trainer.is_global_zero and step % self.every_n_steps == 0
        if is_logged:
            # The only wait for the device; before the clock is read, which then tells of work that is done.
            self._loss = float(trainer.callback_metrics["train/loss"])
        now = time.perf_counter()
        self._seconds, self._mark = self._seconds + now - self._mark, now
        tokens = scored_tokens(batch)
        self._tokens = tokens if self._tokens is None else self._tokens + tokens
        if in_window or not trainer.is_global_zero:
            return
        self._time_left.step()
        if is_logged:
            self._speed = float(self._tokens) / max(self._seconds, 1e-9) * trainer.world_size
            pl_module.log("train/tokens_per_second", self._speed)
            pl_module.log("train/learning_rate", self._rate)
            self._tokens, self._seconds = None, 0.0
        state = f"loss {self._loss:.3f}  lr {self._rate:.2e}  {self._speed:,.0f} tokens/s"
        seconds = self._time_left.seconds(step)
        left = clock(None if seconds is None else min(seconds, self.end.seconds_left()))
        if self._progress is not None:
            self._progress.update(self._bar, completed=step, state=state, left=left)
        if not self.console.is_terminal and step % self.plain_every_n_steps == 0:
            steps = f"step {step}/{trainer.estimated_stepping_batches}"
            self.console.print(f"{steps}  {state}  left {left}", highlight=False)

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._time_left.pause()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._mark = time.perf_counter()  # tokens per second are of training alone
        self._time_left.validated()
        if trainer.sanity_checking or not trainer.is_global_zero or self._progress is None:
            return
        values = {
            name.removeprefix("validation/"): float(value)
            for name, value in trainer.callback_metrics.items()
            if name.startswith("validation/")
        }
        shown = "  ".join(f"{name} {value:.4g}" for name, value in values.items())
        self.console.print(f"validation at step {trainer.global_step}: {shown}", highlight=False)
        assert isinstance(pl_module, Task)
        if pl_module.samples:
            table = Table(show_header=True, box=None, padding=(0, 2))
            has_reference = pl_module.samples[0].reference is not None
            for heading in ("source", "output", "reference") if has_reference else ("prompt", "continuation"):
                table.add_column(heading, overflow="fold", ratio=1)
            for sample in pl_module.samples:
                cells = (sample.source, sample.output) + ((sample.reference,) if sample.reference is not None else ())
                table.add_row(*(visible(cell) for cell in cells))
            self.console.print(table)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._stop()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._stop()  # Lightning calls no teardown then

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None


def visible(text: str) -> Text:
    """A text for one cell of a table: line breaks as a sign, other control characters replaced, brackets kept."""
    shown = text.replace("\n", "⏎")
    return Text("".join(c if c.isprintable() else "�" for c in shown))


def scored_tokens(batch: TranslationBatch | TextBatch) -> Tensor:
    """Number of target tokens of a batch without padding, left on the device so that nothing waits for it."""
    return (batch.scored_BT if isinstance(batch, TranslationBatch) else batch.scored_BL).sum()
