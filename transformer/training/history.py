"""The run's own record of its metrics, and the picture drawn from it."""

import json
import math
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch.optim import Optimizer

METRICS = "metrics.jsonl"


class History(Callback):
    """Appends to ``metrics.jsonl`` in the run's folder: one object for each logging step and each validation.

    It is independent of the loggers, and a resumed run continues it: entries after the step resumed from are dropped.

    Args:
        folder: the run's folder.
        every_n_steps: optimizer steps between training entries.
    """

    def __init__(self, folder: Path, *, every_n_steps: int) -> None:
        self.path, self.every_n_steps = folder / METRICS, every_n_steps
        self._rate = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        kept = [entry for entry in read_history(self.path) if entry["step"] <= trainer.global_step]
        self.path.write_text("".join(json.dumps(entry) + "\n" for entry in kept), encoding="utf-8")

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        self._rate = optimizer.param_groups[0]["lr"]  # at the end of the batch it is the next update's

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        window_ends = (batch_idx + 1) % trainer.accumulate_grad_batches == 0
        if window_ends and trainer.global_step % self.every_n_steps == 0:
            loss = float(trainer.callback_metrics["train/loss"])
            self.record(trainer, {"train/loss": loss, "learning_rate": self._rate})

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking and trainer.state.fn == "fit":
            values = {
                name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("validation/")
            }
            self.record(trainer, values)

    def record(self, trainer: Trainer, values: dict[str, float]) -> None:
        """Append an entry of the present step, without values that JSON has no number for."""
        values = {name: value for name, value in values.items() if math.isfinite(value)}
        if trainer.is_global_zero:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": trainer.global_step, **values}) + "\n")


def read_history(path: Path) -> list[dict[str, float]]:
    """All complete entries; a last line cut by a kill is left out."""
    if not path.exists():
        return []
    entries = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            entries.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return entries


def draw_curve(history: list[dict[str, float]], path: Path, *, title: str) -> None:
    """A picture (PNG) of the training and validation loss, and of a score where there is one, against the step."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, losses = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for name, style in (("train/loss", {"alpha": 0.5, "linewidth": 1.0}), ("validation/loss", {"marker": "o"})):
        points = [(entry["step"], entry[name]) for entry in history if name in entry]
        if points:
            losses.plot(*zip(*points, strict=True), label=name, **style)
    losses.set(title=title, xlabel="optimizer step", ylabel="loss (nats per token)")
    losses.grid(alpha=0.3)
    handles, labels = losses.get_legend_handles_labels()
    points = [(entry["step"], entry["validation/bleu"]) for entry in history if "validation/bleu" in entry]
    if points:
        scores = losses.twinx()
        scores.plot(*zip(*points, strict=True), color="tab:green", marker="s", label="validation/bleu (right)")
        scores.set(ylabel="BLEU", ylim=(0, 100))
        more_handles, more_labels = scores.get_legend_handles_labels()
        handles, labels = handles + more_handles, labels + more_labels
    if handles:
        losses.legend(handles, labels, loc="center right")
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
