"""Hugging Face's models in training, in loops as their users write them well: no cache, torch's own smoothed loss."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel
from transformers.trainer_pt_utils import LengthGroupedSampler

from peers.hugging_face import sizes, to_gpt2, to_m2m100, translation_layer
from peers.laps import Batches, Check, Loop, fused_adamw, given
from peers.machine import Precision
from peers.settings import LAYERS, check_settings, position_table
from peers.stored import (
    Special,
    StoredPairs,
    expected_loss,
    flat_loss,
    ignored_labels,
    load_batches,
    load_continuing,
    load_pairs,
    load_translating,
)
from transformer.data.batches.collate import TextBatch, TranslationBatch
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder


class HuggingFaceBatch(NamedTuple):
    """Ids, 1 for real tokens of the source, and labels, -100 where nothing counts."""

    input_ids: Tensor
    attention_mask: Tensor
    decoder_input_ids: Tensor
    labels: Tensor


def hugging_face_form(batch: TranslationBatch) -> HuggingFaceBatch:
    """The same ids for their models."""
    labels = ignored_labels(batch.labels_BT, batch.scored_BT)
    return HuggingFaceBatch(batch.source_BS, batch.source_mask_BS.long(), batch.target_BT, labels)


def to_marian(model: EncoderDecoder, special: Special) -> MarianMTModel:
    """A Post-Norm translation model of ours as Marian (Junczys-Dowmunt et al. 2018), in evaluation mode.

    Raises:
        ValueError: for settings that Marian does not have.
    """
    config = model.config
    check_settings(config, LAYERS | {"norm_position": ("post",), "tie_embeddings": ("all",)}, "Hugging Face's Marian")
    theirs = MarianMTModel(
        MarianConfig(
            **sizes(model),
            pad_token_id=special.pad_id,
            bos_token_id=special.bos_id,
            eos_token_id=special.eos_id,
            forced_eos_token_id=special.eos_id,
            decoder_start_token_id=special.bos_id,
        )
    ).eval()
    weights = {"shared.weight": model.target_embedding.weight}
    tables = position_table(model.source_position), position_table(model.target_position)
    for side, layers, table_LD in zip(
        ("encoder", "decoder"), (model.encoder_layers, model.decoder_layers), tables, strict=True
    ):
        weights[f"{side}.embed_positions.weight"] = table_LD
        for number, layer in enumerate(layers):
            weights |= translation_layer(f"{side}.layers.{number}", layer)
    missing, unexpected = theirs.model.load_state_dict(weights, strict=False)
    assert not unexpected, f"they have no {unexpected}"
    assert set(missing) == {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}, missing
    for module in theirs.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = config.norm_eps
    return theirs


def m2m100(folder: Path) -> tuple[nn.Module, EncoderDecoder]:
    """Their Pre-Norm model with our first weights, and ours."""
    ours, special = load_translating(folder), load_pairs(folder).special
    return to_m2m100(ours, **special._asdict()), ours


def marian(folder: Path) -> tuple[nn.Module, EncoderDecoder]:
    """Marian, which is Post-Norm, and our model of that kind with the same random weights."""
    stored = load_translating(folder)
    torch.manual_seed(0)
    config = stored.config.model_copy(update={"norm_position": "post"})
    ours = EncoderDecoder(config, stored.vocab_size, stored.vocab_size).eval()
    return to_marian(ours, load_pairs(folder).special), ours


Models = Callable[[Path], tuple[nn.Module, EncoderDecoder]]


def translating(
    models: Models, folder: Path, smoothing: float, device: torch.device, precision: Precision, batches: Batches | None
) -> Loop:
    """A loop over the given batches, or others of its own."""
    theirs, ours = models(folder)
    stored = load_batches(folder, TranslationBatch)
    forms = [hugging_face_form(batch) for batch in stored]

    def loss(batch: HuggingFaceBatch) -> Tensor:
        output = theirs(
            input_ids=batch.input_ids,
            attention_mask=batch.attention_mask,
            decoder_input_ids=batch.decoder_input_ids,
            use_cache=False,
        )
        return flat_loss(output.logits, batch.labels, smoothing)

    with torch.inference_mode():
        check = Check(float(loss(forms[0])), expected_loss(ours, stored[0], smoothing))
    theirs.to(device).train()
    chosen = given(stored, forms) if batches is None else batches
    return Loop(theirs, loss, fused_adamw(theirs, lr=1e-4), chosen, device, precision, check)


def grouped(pairs: StoredPairs, rows: int) -> Callable[[torch.Generator], Iterable[int]]:
    """Orders of an epoch as `group_by_length` of their trainer makes them."""
    lengths = [len(source) + 1 for source in pairs.sources]
    return lambda generator: LengthGroupedSampler(rows, lengths=lengths, generator=generator)


def continuing(folder: Path, device: torch.device, precision: Precision) -> Loop:
    """GPT-2 with our first weights; it always has biases, which are 0 at first where ours has none."""
    stored = load_continuing(folder)
    ours = DecoderOnly(stored.config.model_copy(update={"bias": True}), stored.vocab_size).eval()
    missing, unexpected = ours.load_state_dict(stored.state_dict(), strict=False)
    assert not unexpected
    assert all(name.endswith("bias") for name in missing), missing
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            if name in missing:
                parameter.zero_()
    theirs = to_gpt2(ours)
    batches = load_batches(folder, TextBatch)

    def loss(batch: TextBatch) -> Tensor:
        return flat_loss(theirs(input_ids=batch.tokens_BL, use_cache=False).logits, batch.labels_BL, 0.0)

    with torch.inference_mode():
        check = Check(float(loss(batches[0])), expected_loss(stored, batches[0], 0.0))
    theirs.to(device).train()
    optimizer = fused_adamw(theirs, lr=1e-3, betas=(0.9, 0.99))
    return Loop(theirs, loss, optimizer, given(batches, batches), device, precision, check)
