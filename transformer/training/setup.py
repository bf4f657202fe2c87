"""From settings to the trainer of a run, its loggers and its callbacks."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger

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


def build_trainer(config: TrainConfig, folder: Path, callbacks: list[Callback]) -> Trainer:
    """The Lightning trainer; the whole run is one of its epochs (see :class:`RunData`)."""
    settings = config.trainer
    return Trainer(
        accelerator=settings.accelerator,
        devices=settings.devices,
        num_nodes=settings.num_nodes,
        strategy=settings.strategy,
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
        plugins=[AtomicCheckpointIO()],
        logger=[_logger(logger, folder) for logger in config.loggers],
        callbacks=callbacks,
        default_root_dir=folder,
    )


def check_accelerator(settings: TrainerConfig) -> None:
    """Refuse hardware that this machine lacks, and a precision that it would silently replace."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    available = {"auto": True, "cpu": True, "cuda": cuda, "mps": mps, "gpu": cuda or mps}
    if not available[settings.accelerator]:
        raise ValueError(
            f"`trainer.accelerator` must be hardware that this machine has, but is {settings.accelerator}; "
            "trainer=cpu runs on the CPU."
        )
    if settings.precision == "16-mixed" and (settings.accelerator == "cpu" or not cuda):
        raise ValueError("`trainer.precision: 16-mixed` needs a CUDA GPU; on a CPU use bf16-mixed or 32-true.")


def choose_precision(settings: TrainerConfig) -> str:
    """``auto`` is bfloat16 where the hardware multiplies it, else float32."""
    if settings.precision != "auto":
        return settings.precision
    if settings.accelerator != "cpu" and torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    if settings.accelerator in ("cpu", "auto") and not torch.backends.mps.is_available():
        # Without these instructions bfloat16 is emulated and slower than float32.
        native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return "bf16-mixed" if native else "32-true"
    return "32-true"


def check_loggers(loggers: Sequence[LoggerConfig]) -> None:
    """Refuse a logger whose package is not installed."""
    for logger in loggers:
        if not isinstance(logger, CsvLoggerConfig) and importlib.util.find_spec(logger.name) is None:
            raise ValueError(
                f"`logger={logger.name}` needs the package {logger.name}, which is not installed: "
                f"pip install 'trueformer[tracking]'"
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


def best_and_stopping(config: TrainConfig, folder: Path) -> list[Callback]:
    """Keep the best checkpoints, and stop early if asked to."""
    callbacks: list[Callback] = [
        ModelCheckpoint(
            dirpath=folder,
            filename="best-{step}",
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
