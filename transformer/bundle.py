"""A trained model as one folder: configuration, weights, tokenizers and a model card. Nothing in it is pickled."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from transformer.config import Config
from transformer.data.config import DataConfig
from transformer.data.subwords.config import SpecialTokens
from transformer.data.subwords.tokenizer import Tokenizer
from transformer.data.subwords.tokenizer_files import load_tokenizers, save_tokenizers
from transformer.decoding.config import DecodingConfig
from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig, ModelConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "README.md"


class BundleConfig(Config):
    """What ``config.json`` holds.

    Attributes:
        format_version: of the folder.
        model: the architecture.
        data: what it was trained on; ``transformer-evaluate`` scores its test split by default.
        decoding: the search used unless another is asked for.
        mark_documents: language models: whether a text begins with the start token, as in training.
        packing: language models: whether each document was trained on, and is scored, by itself.
        special_tokens: what the special tokens are called in the tokenizers.
    """

    format_version: Literal[1] = 1
    model: ModelConfig
    data: DataConfig
    decoding: DecodingConfig
    mark_documents: bool = Field(False)
    packing: bool = Field(False)
    special_tokens: SpecialTokens = SpecialTokens()


@dataclass(frozen=True)
class Bundle:
    """A model and everything needed to use it. For one text, or a joint vocabulary, the two tokenizers are the same."""

    config: BundleConfig
    model: EncoderDecoder | DecoderOnly
    source_tokenizer: Tokenizer
    target_tokenizer: Tokenizer


def build_model(
    config: EncoderDecoderConfig | DecoderOnlyConfig, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer
) -> EncoderDecoder | DecoderOnly:
    """A freshly initialised model sized for its tokenizers."""
    match config:
        case EncoderDecoderConfig():
            return EncoderDecoder(config, source_tokenizer.vocab_size, target_tokenizer.vocab_size)
        case DecoderOnlyConfig():
            return DecoderOnly(config, target_tokenizer.vocab_size)


def save_bundle(folder: Path, bundle: Bundle, card: str) -> None:
    """Write the folder; ``card`` is its README.

    Its configuration comes last: a folder without one is no bundle, so one that is half written is never taken for one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).unlink(missing_ok=True)  # of a bundle that is written over
    save_tokenizers(folder, bundle.source_tokenizer, bundle.target_tokenizer)
    # named_parameters lists a tied parameter once, under its first name.
    tensors = {name: tensor.detach().contiguous().cpu() for name, tensor in bundle.model.named_parameters()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / CARD).write_text(card, encoding="utf-8")
    partial = folder / f".{CONFIG}.partial"
    partial.write_text(json.dumps(bundle.config.to_plain(), indent=2) + "\n", encoding="utf-8")
    os.replace(partial, folder / CONFIG)


def load_bundle(folder: Path | str) -> Bundle:
    """Read a folder that :func:`save_bundle` wrote; the model is on the CPU and in evaluation mode.

    Raises:
        ValueError: if it is not such a folder, or its parts do not fit together; the message names the file.
    """
    folder = Path(folder)
    if not (folder / CONFIG).is_file():
        raise ValueError(f"{folder} is not a bundle: it has no {CONFIG}.")
    try:
        config = BundleConfig.from_plain(json.loads((folder / CONFIG).read_text(encoding="utf-8")))
    except ValueError as error:
        raise ValueError(f"{folder / CONFIG} is not a bundle's configuration: {error}") from error
    source_tokenizer, target_tokenizer = load_tokenizers(folder, config.special_tokens)
    model = build_model(config.model, source_tokenizer, target_tokenizer)
    load_weights(model, folder / WEIGHTS)
    return Bundle(config, model.eval(), source_tokenizer, target_tokenizer)


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill every parameter from a safetensors file.

    A tied parameter may stand under any one of its names, or under several if all are equal.

    Raises:
        ValueError: for a missing or unreadable file, and for missing, unknown, differing or misshapen tensors.
    """
    if not path.is_file():
        raise ValueError(f"{path} does not exist.")
    try:
        with safe_open(path, framework="pt") as file:
            stored: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is not a readable safetensors file: {error}.") from error
    names: dict[int, list[str]] = {}
    parameters: dict[int, nn.Parameter] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
        parameters[id(parameter)] = parameter
    unknown = sorted(stored.keys() - {name for group in names.values() for name in group})
    if unknown:
        raise ValueError(f"{path} holds `{unknown[0]}`, which the model does not have.")
    for key, group in names.items():
        found = [name for name in group if name in stored]
        if not found:
            raise ValueError(f"{path} lacks `{group[0]}`, which the model needs.")
        first, parameter = stored[found[0]], parameters[key]
        if first.shape != parameter.shape:
            raise ValueError(
                f"`{found[0]}` must have shape {tuple(parameter.shape)}, but has {tuple(first.shape)} in {path}."
            )
        for other in found[1:]:
            if not torch.equal(first, stored[other]):
                raise ValueError(f"`{found[0]}` and `{other}` are tied in the model, but differ in {path}.")
        with torch.no_grad():
            parameter.copy_(first)
