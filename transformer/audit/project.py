"""The project's own models, as the audit calls them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from transformer.audit.model import AuditedModel, CachedDecoding, CausalLanguageModel, ResidualBlock, SequenceToSequence
from transformer.data.batches.collate import shift_targets
from transformer.models.config import DecoderOnlyConfig, EncoderDecoderConfig
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.cache import DecoderCache
from transformer.nn.layers import Residual, TransformerLayer
from transformer.nn.loss import cross_entropy


def audited(model: EncoderDecoder | DecoderOnly, *, pad_id: int = 0, fresh: bool = False) -> AuditedModel:
    """One of the project's models with everything that the audit can check of it.

    Args:
        model: it stays as it is.
        pad_id: of its tokenizer.
        fresh: whether its weights are initial ones.
    """
    if isinstance(model, EncoderDecoder):
        return _translation_model(model, pad_id, fresh)
    return _language_model(model, pad_id, fresh)


def _language_model(model: DecoderOnly, pad_id: int, fresh: bool) -> CausalLanguageModel:
    config, size = model.config, model.vocab_size
    return CausalLanguageModel(
        model,
        vocab_size=size,
        max_length=config.max_length,
        pad_id=pad_id,
        masked_call=lambda module, ids_BL, mask_BL: module(ids_BL, mask_BL),
        loss_call=_language_model_loss,
        cache=CachedDecoding(
            start=lambda module, _source, _mask, _rows: module.new_cache(),
            step=lambda module, cache, new_BN, mask_BN: (module(new_BN, _if_padded(mask_BN), cache=cache), cache),
            select=lambda module, cache, rows_M: _selected(cache, rows_M),
        ),
        residuals=lambda module: _blocks("layers", module.layers),
        tied=(("embedding.weight", "output.weight"),) if config.tie_embeddings else (),
        has_dropout=_has_dropout(config),
        build=lambda: DecoderOnly(config, size),
        fresh=fresh,
    )


def _translation_model(model: EncoderDecoder, pad_id: int, fresh: bool) -> SequenceToSequence:
    config, source_size, size = model.config, model.source_embedding.num_embeddings, model.vocab_size
    tied = {
        "none": (),
        "decoder": (("target_embedding.weight", "output.weight"),),
        "all": (("target_embedding.weight", "output.weight", "source_embedding.weight"),),
    }[config.tie_embeddings]
    return SequenceToSequence(
        model,
        vocab_size=size,
        source_vocab_size=source_size,
        max_length=config.max_length,
        pad_id=pad_id,
        call=lambda module, source_BS, source_mask_BS, target_BT, target_mask_BT: module(
            source_BS, target_BT, _if_padded(source_mask_BS), _if_padded(target_mask_BT)
        ),
        pads_target=("right", "left"),
        memory=lambda module: module.encoder_norm,
        loss_call=_translation_loss,
        cache=CachedDecoding(start=_start_translation, step=_step_translation, select=_select_translation),
        residuals=lambda module: [
            *_blocks("encoder_layers", module.encoder_layers),
            *_blocks("decoder_layers", module.decoder_layers),
        ],
        tied=tied,
        has_dropout=_has_dropout(config),
        build=lambda: EncoderDecoder(config, source_size, size),
        fresh=fresh,
    )


def _language_model_loss(model: DecoderOnly, ids_BL: Tensor, scored_BL: Tensor) -> Tensor:
    tokens_BL, labels_BL, scored_BL = _shifted(ids_BL, scored_BL)
    return cross_entropy(model.hidden(tokens_BL).hidden_BLD, model.output.weight, labels_BL, scored_BL).loss


def _translation_loss(
    model: EncoderDecoder, source_BS: Tensor, source_mask_BS: Tensor, ids_BL: Tensor, scored_BL: Tensor
) -> Tensor:
    target_BT, labels_BT, scored_BT = _shifted(ids_BL, scored_BL)
    mask = _if_padded(source_mask_BS)
    decoded = model.decode(target_BT, model.encode(source_BS, mask).memory_BSD, mask)
    return cross_entropy(decoded.hidden_BTD, model.output.weight, labels_BT, scored_BT).loss


def _shifted(ids_BL: Tensor, scored_BL: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, labels, and which labels count: the first token of each row is its start token, the last one ends it."""
    pairs = [shift_targets(row[1:-1], row[0], row[-1]) for row in ids_BL.tolist()]
    inputs, labels = (torch.tensor(side, device=ids_BL.device) for side in zip(*pairs, strict=True))
    return inputs, labels, scored_BL[:, 1:]


def _start_translation(
    model: EncoderDecoder, source_BS: Tensor | None, source_mask_BS: Tensor | None, _rows: int
) -> tuple[DecoderCache, Tensor, Tensor | None]:
    assert source_BS is not None
    assert source_mask_BS is not None
    mask = _if_padded(source_mask_BS)
    return model.new_cache(), model.encode(source_BS, mask).memory_BSD, mask


def _step_translation(
    model: EncoderDecoder, state: tuple[DecoderCache, Tensor, Tensor | None], new_BN: Tensor, mask_BN: Tensor
) -> tuple[Tensor, tuple[DecoderCache, Tensor, Tensor | None]]:
    cache, memory_BSD, mask = state
    decoded = model.decode(new_BN, memory_BSD, mask, _if_padded(mask_BN), cache=cache)
    return model.output(decoded.hidden_BTD), state


def _select_translation(
    model: EncoderDecoder, state: tuple[DecoderCache, Tensor, Tensor | None], rows_M: Tensor
) -> tuple[DecoderCache, Tensor, Tensor | None]:
    # The memory stays as it is: the cache keeps which row looks at which.
    return _selected(state[0], rows_M), state[1], state[2]


def _selected(cache: DecoderCache, rows_M: Tensor) -> DecoderCache:
    cache.select(rows_M)
    return cache


def _blocks(name: str, layers: Sequence[TransformerLayer]) -> list[ResidualBlock]:
    """The residual connection around each sublayer, in order."""
    blocks = []
    for number, layer in enumerate(layers):
        parts = [("self_residual", layer.self_residual, layer.self_attention.output)]
        if layer.cross_attention is not None:
            parts.append(("cross_residual", layer.cross_residual, layer.cross_attention.output))
        parts.append(("feed_forward_residual", layer.feed_forward_residual, layer.feed_forward.outer))
        for part, residual, output in parts:
            blocks.append(
                ResidualBlock(f"{name}.{number}.{part}", residual, list(output.parameters()), _post_norm(residual))
            )
    return blocks


def _post_norm(residual: Residual) -> torch.nn.Module | None:
    return residual.norm if residual.position == "post" else None


def _has_dropout(config: EncoderDecoderConfig | DecoderOnlyConfig) -> bool:
    rates = (config.dropout, config.embedding_dropout_rate, config.attention_dropout, config.activation_dropout)
    return max(*rates, config.layer_dropout) > 0


def _if_padded(mask: Tensor) -> Tensor | None:
    """Without any padding the models take their fast path."""
    return None if bool(mask.all()) else mask
