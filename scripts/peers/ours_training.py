"""Our own training: the task's loss in a plain loop, the Lightning trainer on given batches, `transformer-train`."""

import csv
import gc
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from torch import Tensor
from torch.utils.data import Dataset

from peers.laps import Batch, Check, Lap, Loop, Trained, given, total
from peers.machine import Memory, Precision, forget_peak, peak, synchronize, taken
from peers.stored import expected_loss
from transformer.cli.compose import compose_all, config_folder, parse
from transformer.data.batches.buckets import BatchPlan, FixedBatches
from transformer.data.batches.collate import TranslationBatch
from transformer.data.datamodule import MappedTraining, RunData
from transformer.models.decoder_only import DecoderOnly
from transformer.training.compilation import CompiledLayers
from transformer.training.config import TrainConfig
from transformer.training.history import History
from transformer.training.host_memory import keep_freed_memory
from transformer.training.optimizers import build_optimizer
from transformer.training.parts import RunParts, build_parts
from transformer.training.run import train
from transformer.training.setup import build_trainer
from transformer.training.task import Task
from transformer.training.update_guard import UpdateGuard

QUIET = Console(quiet=True)


class Way(NamedTuple):
    """One way to train our model: by Lightning or in a plain loop, with settings of its own."""

    lightning: bool
    overrides: tuple[str, ...] = ()


# One line for each; their names are the first column of the tables.
WAYS = {
    "ours, plain loop": Way(lightning=False),
    "ours, Lightning": Way(lightning=True),
    "ours, Lightning, compiled": Way(lightning=True, overrides=("++trainer.compile=true",)),
}


def configured(overrides: Sequence[str]) -> TrainConfig:
    """The settings of a command line."""
    return parse(TrainConfig, next(iter(compose_all(config_folder(), "train", list(overrides), None))))


def precision_overrides(device: torch.device, precision: Precision) -> list[str]:
    """What a run on the device in the precision is told."""
    wanted = "bf16-mixed" if precision == Precision.BF16 else "32-true"
    return [f"trainer={'gpu' if device.type == 'cuda' else 'cpu'}", f"++trainer.precision={wanted}"]


def prepared(overrides: Sequence[str], folder: Path, *, resume: bool) -> tuple[TrainConfig, RunParts]:
    """Task, data and tokenizers of a run; with ``resume`` those tokenizers that the folder already has."""
    config = configured(overrides)
    return config, build_parts(config, folder, lambda what, done, total: None, resume=resume)


def contestant(
    way: Way,
    overrides: Sequence[str],
    run_folder: Path,
    batches: Sequence[Batch],
    device: torch.device,
    precision: Precision,
    *,
    weights: DecoderOnly | None = None,
) -> "Loop | LightningLaps":
    """Our model with its first weights, on given batches; or a model with weights and a vocabulary of its own."""
    keep_freed_memory()  # as transformer-train does
    told = [*overrides, *precision_overrides(device, precision), *way.overrides]
    config, parts = prepared(told, run_folder, resume=True)
    task = parts.task
    if weights is not None:
        task.model = weights
    task.train()
    task.model.eval()
    with torch.inference_mode():
        check = Check(
            float(_mean_loss(task, batches[0])), expected_loss(task.model, batches[0], config.label_smoothing)
        )
    task.train()
    if way.lightning:
        return LightningLaps(config, task, batches, run_folder, device, check)
    task.to(device)
    optimizer = build_optimizer(config.optimizer, task.model, fused=True)
    chosen = given(batches, batches)
    return Loop(task.model, lambda batch: _mean_loss(task, batch), optimizer, chosen, device, precision, check)


def _mean_loss(task: Task, batch: Batch) -> Tensor:
    sums = task.loss(batch)
    return sums.loss / sums.num_tokens


class LightningLaps:
    """Laps of the real trainer, which also writes its history; the first step of each is not timed.

    Args:
        config: of the run.
        task: what to train.
        batches: all there are; a lap past the last begins anew.
        folder: for the trainer's files.
        device: where it trains.
        check: the answer to None.
    """

    def __init__(
        self,
        config: TrainConfig,
        task: Task,
        batches: Sequence[Batch],
        folder: Path,
        device: torch.device,
        check: Check,
    ) -> None:
        self.config, self.task, self.batches, self.folder = config, task, batches, folder
        self.device, self.check = device, check

    def __call__(self, lap: Lap | None) -> Trained | Check:
        """See :data:`peers.laps.Contestant`."""
        if lap is None:
            return self.check
        gc.collect()  # the trainer of the lap before, as at the start of transformer-train
        numbers = [number % len(self.batches) for number in range(lap.first - 1, lap.first + lap.steps)]
        watch = Stopwatch(self.device)
        settings = self.config.trainer.model_copy(update={"max_steps": len(numbers)})
        config = self.config.model_copy(update={"trainer": settings})
        history = History(self.folder, every_n_steps=settings.log_every_n_steps)
        compiled = [CompiledLayers()] if settings.compile else []
        if config.divergence is not None:
            self.task.guard = UpdateGuard(config.divergence.loss_factor)  # as transformer-train has it
        trainer = build_trainer(config, self.folder, [watch, history, *compiled])
        stored = Stored(self.batches)
        data = RunData(
            MappedTraining(stored, lambda ranks: FixedBatches([[number] for number in numbers]), ""),
            stored,
            [[0]],
            seed=1,
            num_workers=0,
            max_batches=len(numbers),
            max_epochs=None,
        )
        forget_peak(self.device)
        before = taken(self.device)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            trainer.fit(self.task, datamodule=data)
        amount = total(self.batches[number] for number in numbers[1:])
        return Trained(watch.seconds, amount, Memory(before, peak(self.device)))


class Stored(Dataset[Batch]):
    """Batches that are there already, by number."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self.batches = batches

    def __getitem__(self, plan: BatchPlan) -> Batch:
        [number] = plan.examples
        return self.batches[number]


class Stopwatch(Callback):
    """Seconds from the end of the first batch to the end of the last."""

    def __init__(self, device: torch.device) -> None:
        self.device, self._start, self.seconds = device, 0.0, 0.0

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if batch_idx == 0:
            synchronize(self.device)
            self._start = time.perf_counter()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        synchronize(self.device)
        self.seconds = time.perf_counter() - self._start


class WholeRuns:
    """`transformer-train` from its settings to its bundle; the speed is the one that it reports of the second half.

    Args:
        overrides: its command line.
        folder: for the runs.
        device, precision: of the steps; None is what it chooses by itself.
    """

    def __init__(
        self, overrides: Sequence[str], folder: Path, device: torch.device, precision: Precision | None
    ) -> None:
        accelerator = f"trainer={'gpu' if device.type == 'cuda' else 'cpu'}"
        told = [accelerator] if precision is None else precision_overrides(device, precision)
        # The log is where a run tells its speed.
        self.overrides, self.folder, self.device, self.runs = [*overrides, *told, "logger=csv"], folder, device, 0

    def __call__(self, lap: Lap | None) -> Trained | None:
        """See :data:`peers.laps.Contestant`."""
        if lap is None:
            return None
        self.runs += 1
        keep_freed_memory()
        folder = self.folder / f"run {self.runs}"
        length = [f"++trainer.max_steps={2 * lap.steps}", f"++trainer.log_every_n_steps={lap.steps}"]
        config = configured([*self.overrides, *length])
        forget_peak(self.device)
        before = taken(self.device)
        train(config, folder, QUIET)
        highest = peak(self.device)
        [log] = folder.glob("csv/**/metrics.csv")
        with log.open(encoding="utf-8", newline="") as file:
            speeds = [speed for row in csv.DictReader(file) if (speed := row.get("train/tokens_per_second"))]
        # The same batches once more, without training, to know what they hold.
        parts = build_parts(config, folder, lambda what, done, total: None, resume=True)
        batches = [batch for _, batch in zip(range(2 * lap.steps), parts.data.train_dataloader(), strict=False)]
        amount = total(batches[lap.steps :])
        assert isinstance(batches[0], TranslationBatch)
        return Trained(amount.target / float(speeds[-1]), amount, Memory(before, highest))
