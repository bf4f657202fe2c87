"""From settings to what a run trains: its data, its tokenizers, its model with its task."""

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from transformer.bundle import Bundle, BundleConfig, build_model
from transformer.data.batches.pairs import PairTokenizers
from transformer.data.config import TextDataConfig, TranslationDataConfig
from transformer.data.corpora.document_config import TextCorpusConfig
from transformer.data.datamodule import RunData
from transformer.data.preparation.report import PreparationReport
from transformer.data.preparation.texts import Progress
from transformer.data.run_preparation import RunLimits
from transformer.data.subwords.config import FileTokenizerConfig
from transformer.data.subwords.tokenizer_files import load_tokenizers, save_tokenizers
from transformer.data.text_data import prepare_text
from transformer.data.translation_data import prepare_translation
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.training.config import TrainConfig
from transformer.training.language_model import LanguageModelTask
from transformer.training.task import Task
from transformer.training.translation import TranslationTask

TOKENIZERS = "tokenizers"


class RunParts(NamedTuple):
    """What a trainer needs, the tokenizers, and how the training set was made (None for a stream)."""

    task: Task
    data: RunData
    tokenizers: PairTokenizers
    report: PreparationReport | None


def build_parts(config: TrainConfig, folder: Path, progress: Progress, *, resume: bool = False) -> RunParts:
    """Prepare the corpus, learn the tokenizers (or load those of a run that goes on), make the model.

    The model's initial weights depend on ``config.seed`` alone.

    Args:
        config: the run's settings.
        folder: the run's own.
        progress: told how far preparation is.
        resume: use the tokenizers in the folder, which the run's weights were trained with.
    """
    if isinstance(config.data, TextCorpusConfig):
        return _language_model_parts(config, config.data, folder, progress, resume)
    return _translation_parts(config, config.data, folder, progress, resume)


def _translation_parts(
    config: TrainConfig, data: TranslationDataConfig, folder: Path, progress: Progress, resume: bool
) -> RunParts:
    setup = prepare_translation(
        data,
        config.tokenizer,
        config.batching,
        config.preparation,
        run_limits(config),
        stored=_stored(config, folder) if resume else None,
        progress=progress,
    )
    _store(setup.tokenizers, folder)
    torch.manual_seed(config.seed)
    model = build_model(config.model, *setup.tokenizers)
    assert isinstance(model, EncoderDecoder)
    pairs = [(source, target) for source, target in setup.validation.rows]
    task = TranslationTask(config, model, setup.tokenizers.target, pairs, setup.validation.sizes)
    return RunParts(task, setup.data, setup.tokenizers, setup.report)


def _language_model_parts(
    config: TrainConfig, data: TextDataConfig, folder: Path, progress: Progress, resume: bool
) -> RunParts:
    stored = _stored(config, folder) if resume else None
    setup = prepare_text(
        data,
        config.tokenizer,
        config.batching,
        config.preparation,
        run_limits(config),
        stored=None if stored is None else stored.source,
        progress=progress,
    )
    tokenizers = PairTokenizers(setup.tokenizer, setup.tokenizer)
    _store(tokenizers, folder)
    torch.manual_seed(config.seed)
    model = build_model(config.model, *tokenizers)
    assert isinstance(model, DecoderOnly)
    task = LanguageModelTask(config, model, setup.tokenizer, setup.validation, setup.num_scored)
    return RunParts(task, setup.data, tokenizers, setup.report)


def as_bundle(config: TrainConfig, model: EncoderDecoder | DecoderOnly, tokenizers: PairTokenizers) -> Bundle:
    """A run's model and tokenizers with what its bundle says of them."""
    bundle_config = BundleConfig(
        model=config.model,
        data=config.data,
        decoding=config.decoding,
        mark_documents=isinstance(config.data, TextCorpusConfig) and config.data.marks_documents,
        packing=config.batching.packing,
        special_tokens=tokenizers.target.special_tokens,
    )
    return Bundle(bundle_config, model, *tokenizers)


def untrained_bundle(config: TrainConfig, folder: Path) -> Bundle:
    """The bundle of a run that exists, with weights yet to be filled in.

    Args:
        config: the run's settings.
        folder: the run's own.
    """
    tokenizers = _stored(config, folder)
    return as_bundle(config, build_model(config.model, *tokenizers).eval(), tokenizers)


def run_limits(config: TrainConfig) -> RunLimits:
    """How long the run is, and what its model takes."""
    steps, accumulation = config.trainer.max_steps, config.trainer.accumulate_grad_batches
    max_batches = None if steps is None else steps * accumulation
    return RunLimits(config.model.max_length, config.seed, max_batches, config.trainer.max_epochs)


def _stored(config: TrainConfig, folder: Path) -> PairTokenizers:
    special = config.tokenizer.special_tokens if isinstance(config.tokenizer, FileTokenizerConfig) else None
    return load_tokenizers(folder / TOKENIZERS, special)


def _store(tokenizers: PairTokenizers, folder: Path) -> None:
    """Write the tokenizers at once, or not at all; other ones of an earlier start give way."""
    target = folder / TOKENIZERS
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=f".{TOKENIZERS}") as partial:
        save_tokenizers(Path(partial), *tokenizers)
        if target.exists() and _contents(target) != _contents(Path(partial)):
            shutil.rmtree(target)
        if not target.exists():
            Path(partial).chmod(0o755)  # temporary folders are the user's alone
            try:
                Path(partial).rename(target)
            except OSError:
                if not target.exists():  # or another rank was faster
                    raise


def _contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.json")}
