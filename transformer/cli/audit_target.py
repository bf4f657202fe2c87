"""What ``transformer-audit`` is pointed at: a bundle, a run, a checkpoint, or settings for new weights."""

import string
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, assert_never

import torch
from omegaconf import OmegaConf

from transformer.audit.model import AuditedModel
from transformer.audit.project import audited
from transformer.bundle import CONFIG as BUNDLE_CONFIG
from transformer.bundle import load_bundle
from transformer.cli.compose import allow_new_keys, compose_all, config_folder, expand, load_yaml, parse
from transformer.cli.train import CONFIG as RUN_CONFIG
from transformer.cli.train import refuse_mixture
from transformer.data.subwords.config import (
    BpeConfig,
    ByteConfig,
    CharConfig,
    FileTokenizerConfig,
    TokenizerConfig,
    UnigramConfig,
    WordPieceConfig,
)
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.training.averaging import MODEL
from transformer.training.checkpoints import LAST, load_checkpoint
from transformer.training.config import TrainConfig
from transformer.training.parts import untrained_bundle
from transformer.training.run import CHECKPOINTS


class Target(NamedTuple):
    """A model to be audited.

    Attributes:
        name: what it is, for the report.
        model: as the audit calls it.
        notes: what stands in for something else.
    """

    name: str
    model: AuditedModel
    notes: tuple[str, ...] = ()


def _is_setting(argument: str) -> bool:
    """Whether it is no path; those of checkpoints have a `=`, too: checkpoints/best-step=2000.ckpt."""
    name, equals, _ = argument.partition("=")
    if "/" in name or argument.endswith(".ckpt") or Path(argument).exists():
        return False
    return bool(equals) or argument.startswith("~")


def find_target(arguments: Sequence[str], config_dir: Path | None) -> Target:
    """Load what the arguments name.

    Args:
        arguments: one path, or settings of a training run as ``NAME=VALUE``.
        config_dir: a folder with YAML files of the user's own.

    Raises:
        ValueError: there is no such thing, or it cannot be read; with settings that do not fit.
    """
    settings = [each for each in arguments if _is_setting(each)]
    if settings and len(settings) < len(arguments):
        other = next(each for each in arguments if each not in settings)
        raise ValueError(f"a path and settings exclude each other, but there are {other} and {settings[0]}.")
    if settings:
        return _with_new_weights(settings, config_dir)
    if config_dir is not None:
        raise ValueError("--config-dir has no effect on a model that has weights; leave it out.")
    if len(arguments) > 1:
        raise ValueError(f"one model is audited at a time, but there are {len(arguments)} paths.")
    path = Path(arguments[0])
    if (path / BUNDLE_CONFIG).is_file():
        bundle = load_bundle(path)
        return Target(f"bundle {path}", audited(bundle.model, pad_id=bundle.target_tokenizer.pad_id))
    if (path / RUN_CONFIG).is_file():
        return _checkpoint(path, path / CHECKPOINTS / LAST)
    if path.is_file():
        folder = path.resolve().parent.parent
        if not (folder / RUN_CONFIG).is_file():
            raise ValueError(f"{path} must be in the folder `{CHECKPOINTS}` of a run, whose {RUN_CONFIG} it needs.")
        return _checkpoint(folder, path)
    if path.exists():
        raise ValueError(f"{path} is neither a bundle, with its {BUNDLE_CONFIG}, nor a run, with its {RUN_CONFIG}.")
    raise ValueError(
        f"{path} must be a bundle, a run, a checkpoint, or settings such as experiment=NAME; no such file."
    )


def _checkpoint(folder: Path, path: Path) -> Target:
    bundle = untrained_bundle(parse(TrainConfig, load_yaml(folder / RUN_CONFIG)), folder)
    checkpoint = load_checkpoint(path)
    weights = {name.removeprefix(MODEL): tensor for name, tensor in checkpoint["state_dict"].items()}
    try:
        bundle.model.load_state_dict(weights)
    except RuntimeError as error:
        raise ValueError(f"{path} does not fit the run's model: {' '.join(str(error).split())}") from error
    step = int(checkpoint["global_step"])
    return Target(f"{path}, step {step:,}", audited(bundle.model, pad_id=bundle.target_tokenizer.pad_id))


def _with_new_weights(settings: Sequence[str], config_dir: Path | None) -> Target:
    refuse_mixture(settings)
    if config_dir is not None and not config_dir.is_dir():
        raise ValueError(f"--config-dir must be a folder, but {config_dir} is none.")
    folder = config_folder()
    overrides = allow_new_keys(settings, folder)
    if len(expand(overrides)) > 1:
        raise ValueError("one model is audited at a time, but there are several values of one setting.")
    [composed] = compose_all(folder, "train", overrides, config_dir)
    # The data that the experiment leaves to its user are not needed.
    for key in OmegaConf.missing_keys(composed):
        if key.startswith("data."):
            OmegaConf.update(composed, key, "data")
    config = parse(TrainConfig, composed)
    source_size, target_size, notes = _vocabulary_sizes(config.tokenizer)
    torch.manual_seed(config.seed)
    model = _build(config.model, source_size, target_size)
    return Target(f"{' '.join(settings)}, new weights", audited(model, fresh=True), notes)


def _build(
    config: EncoderDecoderConfig | DecoderOnlyConfig, source_size: int, target_size: int
) -> EncoderDecoder | DecoderOnly:
    match config:
        case EncoderDecoderConfig():
            return EncoderDecoder(config, source_size, target_size)
        case DecoderOnlyConfig():
            return DecoderOnly(config, target_size)
        case _:
            assert_never(config)


def _vocabulary_sizes(config: TokenizerConfig) -> tuple[int, int, tuple[str, ...]]:
    """Source's and target's; nothing is learnt."""
    match config:
        case BpeConfig() | UnigramConfig() | WordPieceConfig():
            multiple = config.pad_vocab_to_multiple_of
            size = -(-config.vocab_size // multiple) * multiple
            return size, size, (f"the vocabulary has the {size:,} tokens of the settings; no tokenizer is learnt",)
        case ByteConfig():
            size = Tokenizer.train(config, []).vocab_size
            return size, size, ()
        case CharConfig():
            size = Tokenizer.train(config, [string.printable]).vocab_size
            return size, size, (f"the {size} characters of ASCII stand in for those of the texts",)
        case FileTokenizerConfig():
            source, target = Tokenizer.from_file_config(config)
            return source.vocab_size, target.vocab_size, ()
        case _:
            assert_never(config)
