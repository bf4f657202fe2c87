"""From settings to the parts of a run: data, tokenizers, task, loggers, trainer."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger, WandbLogger

from transformer.bundle import build_model, load_tokenizers, save_tokenizers
from transformer.data.config import DataConfig, TextDataConfig, TranslationDataConfig
from transformer.data.corpora import load_pairs, load_texts
from transformer.data.datamodule import RunData, TextData, TranslationData, encode_documents
from transformer.data.document_config import PlainTextConfig, TextCorpusConfig
from transformer.data.tokenizer import Tokenizer
from transformer.data.tokenizer_config import TokenizerConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.training.callbacks import Patience
from transformer.training.checkpoints import AtomicCheckpointIO
from transformer.training.config import (
    CsvLoggerConfig,
    LoggerConfig,
    TensorBoardLoggerConfig,
    TrainConfig,
    TrainerConfig,
    WandbLoggerConfig,
)
from transformer.training.language_model import LanguageModelTask
from transformer.training.task import Task
from transformer.training.translation import TranslationTask

TOKENIZERS = "tokenizers"


class RunParts(NamedTuple):
    """What a trainer needs, and the tokenizers."""

    task: Task
    data: RunData
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer


def build_parts(config: TrainConfig, folder: Path) -> RunParts:
    """Load the corpus, train the tokenizers (or load those that an earlier start left in the folder), make the model.

    The model's initial weights depend on ``config.seed`` alone.
    """
    if isinstance(config.data, TextCorpusConfig):
        return _language_model_parts(config, config.data, folder)
    return _translation_parts(config, config.data, folder)


def _translation_parts(config: TrainConfig, data_config: TranslationDataConfig, folder: Path) -> RunParts:
    splits = load_pairs(data_config)
    sources, targets = list(splits.train["source"]), list(splits.train["target"])
    source_tokenizer, target_tokenizer = _tokenizers(config.tokenizer, sources, targets, folder / TOKENIZERS)
    data = TranslationData(
        splits.train,
        splits.validation,
        source_tokenizer,
        target_tokenizer,
        config.batching,
        max_length=config.model.max_length,
        seed=config.seed,
        max_batches=_max_batches(config.trainer),
        max_epochs=config.trainer.max_epochs,
    )
    torch.manual_seed(config.seed)
    model = build_model(config.model, source_tokenizer, target_tokenizer)
    assert isinstance(model, EncoderDecoder)
    pairs = list(zip(splits.validation["source"], splits.validation["target"], strict=True))
    return RunParts(TranslationTask(config, model, target_tokenizer, pairs), data, source_tokenizer, target_tokenizer)


def _language_model_parts(config: TrainConfig, data_config: TextDataConfig, folder: Path) -> RunParts:
    splits = load_texts(data_config)
    texts = list(splits.train["text"])
    tokenizer, _ = _tokenizers(config.tokenizer, texts, None, folder / TOKENIZERS)
    marked = marks_documents(data_config)
    train = encode_documents(texts, tokenizer, mark_documents=marked)
    validation = encode_documents(list(splits.validation["text"]), tokenizer, mark_documents=marked)
    data = TextData(
        train,
        validation,
        tokenizer,
        config.batching,
        max_length=config.model.max_length,
        seed=config.seed,
        max_batches=_max_batches(config.trainer),
        max_epochs=config.trainer.max_epochs,
    )
    torch.manual_seed(config.seed)
    model = build_model(config.model, tokenizer, tokenizer)
    assert isinstance(model, DecoderOnly)
    return RunParts(LanguageModelTask(config, model, tokenizer, validation), data, tokenizer, tokenizer)


def marks_documents(config: DataConfig) -> bool:
    """Whether texts stand between start and end tokens: not where a split is one long text, read as it is."""
    if isinstance(config, PlainTextConfig):
        return config.documents == "line"
    return isinstance(config, TextCorpusConfig)


def _max_batches(trainer: TrainerConfig) -> int | None:
    return None if trainer.max_steps is None else trainer.max_steps * trainer.accumulate_grad_batches


def _tokenizers(
    config: TokenizerConfig, sources: list[str], targets: list[str] | None, folder: Path
) -> tuple[Tokenizer, Tokenizer]:
    if (folder / "complete").exists():
        return load_tokenizers(folder)
    if targets is None:
        source = target = Tokenizer.train(config, sources)
    elif config.joint:
        source = target = Tokenizer.train(config, [*sources, *targets])
    else:
        source, target = Tokenizer.train(config, sources), Tokenizer.train(config, targets)
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizers(folder, source, target)
    (folder / "complete").touch()  # a run killed before this trains them anew
    return source, target


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
