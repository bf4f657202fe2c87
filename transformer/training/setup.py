"""From settings to the trainer of a run, its loggers and its callbacks."""

import importlib.util
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger

from transformer.nn.bfloat16 import computes_bf16
from transformer.training.callbacks import Patience
from transformer.training.checkpoints import AtomicCheckpointIO
from transformer.training.config import TrainConfig
from transformer.training.trainer_config import (
    CsvLoggerConfig,
    LoggerConfig,
    TensorBoardLoggerConfig,
    TrainerConfig,
    WandbLoggerConfig,
)

BEST, LATEST = "best-", "latest-"  # and the step


def build_trainer(
    config: TrainConfig, folder: Path, callbacks: list[Callback], files: CheckpointIO | None = None
) -> Trainer:
    """The Lightning trainer; the whole run is one of its epochs (see :class:`RunData`).

    Args:
        config: the run's settings.
        folder: the run's own.
        callbacks: what happens besides.
        files: writes and reads checkpoints; at once, unless given.
    """
    settings = config.trainer
    return Trainer(
        accelerator=settings.accelerator,
        devices=settings.devices,
        num_nodes=settings.num_nodes,
        strategy=choose_strategy(config),
        precision=choose_precision(settings),  # type: ignore[arg-type]
        max_epochs=1,
        max_steps=-1 if settings.max_steps is None else settings.max_steps,
        accumulate_grad_batches=settings.accumulate_grad_batches,
        gradient_clip_val=settings.gradient_clip_val,
        log_every_n_steps=settings.log_every_n_steps,
        val_check_interval=config.validation.every_n_steps * settings.accumulate_grad_batches,
        check_val_every_n_epoch=None,
        num_sanity_val_steps=1,
        use_distributed_sampler=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        plugins=[AtomicCheckpointIO() if files is None else files],
        logger=[_logger(logger, folder) for logger in config.loggers],
        callbacks=callbacks,
        default_root_dir=folder,
    )


def choose_strategy(config: TrainConfig) -> str:
    """Data parallelism waits for the gradients of all parameters, and layers that LayerDrop skips have none."""
    settings = config.trainer
    devices = settings.devices
    if devices == "auto":
        devices = 1 if settings.accelerator == "cpu" else max(torch.cuda.device_count(), 1)
    is_alone = settings.strategy == "auto" and devices * settings.num_nodes == 1
    if config.model.layer_dropout == 0 or is_alone:
        return settings.strategy
    return "ddp_find_unused_parameters_true"


def check_accelerator(settings: TrainerConfig) -> None:
    """Refuse hardware that this machine lacks, and a precision that it would silently replace."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    available = {"auto": True, "cpu": True, "cuda": cuda, "mps": mps, "gpu": cuda or mps}
    if not available[settings.accelerator]:
        raise ValueError(
            f"`trainer.accelerator` must be hardware that this machine has, but is {settings.accelerator}; "
            "trainer.accelerator=cpu runs on the CPU."
        )
    _check_devices(settings, torch.cuda.device_count() if cuda else int(mps))
    if settings.precision == "16-mixed" and (settings.accelerator == "cpu" or not cuda):
        raise ValueError("`trainer.precision: 16-mixed` needs a CUDA GPU; on a CPU use bf16-mixed or 32-true.")
    on_cpu = settings.accelerator == "cpu" or not (cuda or mps)
    compilers = [name for name in (os.environ.get("CXX"), "g++", "clang++") if name is not None]
    if settings.compile and on_cpu and not any(map(shutil.which, compilers)):
        raise ValueError("`trainer.compile: true` on a CPU needs a C++ compiler, such as g++, but there is none.")


def _check_devices(settings: TrainerConfig, num_gpus: int) -> None:
    on_gpu = settings.accelerator != "cpu" and num_gpus > 0
    if on_gpu and settings.devices != "auto" and settings.devices > num_gpus:
        raise ValueError(
            f"`trainer.devices` must be at most the number of GPUs of this machine ({num_gpus}), but is "
            f"{settings.devices}."
        )


def choose_precision(settings: TrainerConfig) -> str:
    """``auto`` is bfloat16 where the hardware multiplies it, else float32."""
    if settings.precision != "auto":
        return settings.precision
    if settings.accelerator != "cpu" and torch.cuda.is_available():
        return "bf16-mixed" if computes_bf16(torch.device("cuda")) else "32-true"
    if settings.accelerator in ("cpu", "auto") and not torch.backends.mps.is_available():
        return "bf16-mixed" if computes_bf16(torch.device("cpu")) else "32-true"
    return "32-true"


def check_loggers(loggers: Sequence[LoggerConfig]) -> None:
    """Refuse a logger whose package is not installed."""
    for logger in loggers:
        if not isinstance(logger, CsvLoggerConfig) and importlib.util.find_spec(logger.name) is None:
            raise ValueError(
                f"`logger={logger.name}` needs the package {logger.name}, which is not installed; in a clone: "
                "pip install -e '.[tracking]'"
            )


def _logger(config: LoggerConfig, folder: Path) -> Logger:
    match config:
        case CsvLoggerConfig():
            return CSVLogger(folder, name="csv")
        case TensorBoardLoggerConfig():
            return TensorBoardLogger(folder, name="tensorboard", version="")
        case WandbLoggerConfig():
            return WandbLogger(
                project=config.project, save_dir=folder, offline=config.offline, name=folder.name, log_model=False
            )


class KeptCheckpoints(ModelCheckpoint):
    """Keeps as many as the settings say, also when a run is resumed that kept more; Lightning would keep them all.

    A run that was killed between the removal of a checkpoint and the next ``last.ckpt`` still lists what is gone; when
    it is resumed, only what is there counts.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.best_k_models = {path: score for path, score in self.best_k_models.items() if Path(path).is_file()}
        ranking = sorted(self.best_k_models, key=self.best_k_models.__getitem__, reverse=self.mode == "max")
        if self.best_model_path and not Path(self.best_model_path).is_file():
            self.best_model_path = ranking[0] if ranking else ""
            self.best_model_score = self.best_k_models[ranking[0]] if ranking else None
        for path in ranking[self.save_top_k :]:
            del self.best_k_models[path]
            Path(path).unlink(missing_ok=True)
        if len(self.best_k_models) == self.save_top_k:
            self.kth_best_model_path = ranking[self.save_top_k - 1]
            self.kth_value = self.best_k_models[self.kth_best_model_path]


def best_and_stopping(config: TrainConfig, folder: Path) -> list[Callback]:
    """Keep the best checkpoints, and stop early if asked to."""
    callbacks: list[Callback] = [
        KeptCheckpoints(
            dirpath=folder,
            filename=f"{BEST}{{step}}",
            monitor=config.checkpoint.monitor,
            mode=config.direction(config.checkpoint.monitor),
            save_top_k=config.checkpoint.keep_best,
            enable_version_counter=False,
            save_on_train_epoch_end=False,
        )
    ]
    if config.early_stopping is not None:
        callbacks.append(
            Patience(
                monitor=config.early_stopping.monitor,
                mode=config.direction(config.early_stopping.monitor),
                patience=config.early_stopping.patience,
                min_delta=config.early_stopping.min_delta,
            )
        )
    return callbacks


def keep_latest(config: TrainConfig, folder: Path) -> list[Callback]:
    """Keep the checkpoints of the latest validations, if asked to."""
    if config.checkpoint.keep_latest == 0:
        return []
    return [
        KeptCheckpoints(
            dirpath=folder,
            filename=f"{LATEST}{{step}}",
            monitor="step",
            mode="max",
            save_top_k=config.checkpoint.keep_latest,
            enable_version_counter=False,
            save_on_train_epoch_end=False,
        )
    ]
