"""`torch.nn.Transformer` as a translation model: embeddings, positions and output projection around it, by hand."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from peers.settings import LAYERS, check_settings, position_table
from peers.stored import flat_loss, ignored_labels
from transformer.data.batches.collate import TranslationBatch
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.layers import TransformerLayer


class TorchBatch(NamedTuple):
    """Ids, True for padding of the source, and labels."""

    source_BS: Tensor
    padding_BS: Tensor
    target_BT: Tensor
    labels_BT: Tensor


class TorchTranslator(nn.Module):
    """Shared embeddings, sinusoidal positions, Pre-Norm layers; logits (B, T, V) for the token after each position.

    Args:
        like: our model; this one gets its sizes and its weights.
        everywhere: dropout also on attention weights and inside the feed-forward, as `nn.Transformer` has it.
    """

    table_LD: Tensor

    def __init__(self, like: EncoderDecoder, *, everywhere: bool) -> None:
        super().__init__()
        config = like.config
        only = {"activation": ("relu",), "tie_embeddings": ("all",), "position": ("sinusoidal",)}
        check_settings(config, LAYERS | only, "torch.nn.Transformer")
        sizes = config.d_model, config.num_heads, config.ff_width, config.dropout
        settings = {"norm_first": True, "batch_first": True, "layer_norm_eps": config.norm_eps}
        # The encoder by hand: `nn.Transformer` would warn that it packs no padding away for Pre-Norm.
        encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(*sizes, **settings),
            config.num_encoder_layers,
            nn.LayerNorm(config.d_model, eps=config.norm_eps),
            enable_nested_tensor=False,
        )
        self.transformer = nn.Transformer(
            config.d_model,
            config.num_heads,
            num_decoder_layers=config.num_decoder_layers,
            dim_feedforward=config.ff_width,
            dropout=config.dropout,
            custom_encoder=encoder,
            **settings,
        )
        self.embedding = nn.Embedding(like.vocab_size, config.d_model)
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.dropout = nn.Dropout(config.dropout)
        self.register_buffer("table_LD", position_table(like.source_position).clone(), persistent=False)
        self._take(like)
        if not everywhere:
            for module in self.modules():
                if isinstance(module, nn.MultiheadAttention):
                    module.dropout = 0.0
                if isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                    module.dropout.p = 0.0  # after the activation; those of the residuals have other names

    def forward(self, batch: TorchBatch) -> Tensor:
        return F.linear(self.hidden(batch), self.embedding.weight)

    def hidden(self, batch: TorchBatch) -> Tensor:
        """What tokens are predicted from."""
        length = batch.target_BT.shape[1]
        future_TT = torch.ones(length, length, dtype=torch.bool, device=batch.target_BT.device).triu_(1)
        hidden_BTD: Tensor = self.transformer(
            self._embed(batch.source_BS),
            self._embed(batch.target_BT),
            tgt_mask=future_TT,
            src_key_padding_mask=batch.padding_BS,
            memory_key_padding_mask=batch.padding_BS,
            tgt_is_causal=True,
        )
        return hidden_BTD

    def loss(self, batch: TorchBatch, smoothing: float) -> Tensor:
        """Mean per token."""
        return flat_loss(self(batch), batch.labels_BT, smoothing)

    def _embed(self, ids_BL: Tensor) -> Tensor:
        return self.dropout(self.embedding(ids_BL) * self.scale + self.table_LD[: ids_BL.shape[1]])

    @torch.no_grad()
    def _take(self, like: EncoderDecoder) -> None:
        self.embedding.weight.copy_(like.target_embedding.weight)
        for theirs, layers, norm in (
            (self.transformer.encoder, like.encoder_layers, like.encoder_norm),
            (self.transformer.decoder, like.decoder_layers, like.decoder_norm),
        ):
            theirs.norm.load_state_dict(norm.state_dict())
            for layer, ours in zip(theirs.layers, layers, strict=True):
                _take_layer(layer, ours)


def torch_form(batch: TranslationBatch) -> TorchBatch:
    """The same ids for :class:`TorchTranslator`."""
    labels_BT = ignored_labels(batch.labels_BT, batch.scored_BT)
    return TorchBatch(batch.source_BS, ~batch.source_mask_BS, batch.target_BT, labels_BT)


def _take_layer(theirs: nn.TransformerEncoderLayer | nn.TransformerDecoderLayer, ours: TransformerLayer) -> None:
    own = ours.self_attention
    theirs.self_attn.in_proj_weight.copy_(own.query_key_value.weight)
    theirs.self_attn.in_proj_bias.copy_(own.query_key_value.bias)
    theirs.self_attn.out_proj.load_state_dict(own.output.state_dict())
    norms = [ours.self_residual.norm]
    if isinstance(theirs, nn.TransformerDecoderLayer):
        cross = ours.cross_attention
        assert cross is not None
        theirs.multihead_attn.in_proj_weight.copy_(torch.cat([cross.query.weight, cross.key_value.weight]))
        theirs.multihead_attn.in_proj_bias.copy_(torch.cat([cross.query.bias, cross.key_value.bias]))
        theirs.multihead_attn.out_proj.load_state_dict(cross.output.state_dict())
        norms.append(ours.cross_residual.norm)
    norms.append(ours.feed_forward_residual.norm)
    theirs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    theirs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
    for number, norm in enumerate(norms, 1):
        getattr(theirs, f"norm{number}").load_state_dict(norm.state_dict())
