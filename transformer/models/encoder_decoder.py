"""The encoder-decoder Transformer (Vaswani et al. 2017)."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from transformer.models.config import EncoderDecoderConfig
from transformer.models.init import initialize
from transformer.nn.attention import Backend
from transformer.nn.cache import DecoderCache
from transformer.nn.dropout import Dropout
from transformer.nn.embedding import TokenEmbedding
from transformer.nn.layers import LayerDrop, TransformerLayer, embedding_norm, final_norm
from transformer.nn.masks import causal_mask, check_real, check_segments, padding_mask, segment_mask
from transformer.nn.memory import SharedMemories
from transformer.nn.positions import (
    build_position_encoding,
    check_length,
    place_segments,
    place_tokens,
    positions_of,
)


class Encoded(NamedTuple):
    """The encoder's output (B, S, D) and, with the explicit backend, each layer's weights (B, H, S, S)."""

    memory_BSD: Tensor
    weights: list[Tensor | None]


class Decoded(NamedTuple):
    """Final hidden states (B, T, D) and, with the explicit backend, each layer's self and cross weights."""

    hidden_BTD: Tensor
    self_weights: list[Tensor | None]
    cross_weights: list[Tensor | None]


class EncoderDecoder(nn.Module):
    """Reads a whole source, then predicts each next target token from the source and the target before it.

    Source and target are separate arguments: feeding one sequence to both sides would let the bidirectional encoder
    show the decoder the tokens that it is to predict.

    Args:
        config: the architecture.
        source_vocab_size, target_vocab_size: numbers of token ids, from the tokenizers; equal for
            ``tie_embeddings: all``.
    """

    def __init__(self, config: EncoderDecoderConfig, source_vocab_size: int, target_vocab_size: int) -> None:
        super().__init__()
        if config.tie_embeddings == "all" and source_vocab_size != target_vocab_size:
            raise ValueError(
                f"`tie_embeddings: all` needs one vocabulary for both sides, but the source has {source_vocab_size} "
                f"tokens and the target {target_vocab_size}."
            )
        self.config, self.vocab_size = config, target_vocab_size
        self.source_embedding = TokenEmbedding(source_vocab_size, config.d_model, scaled=config.scale_embeddings)
        self.target_embedding = TokenEmbedding(target_vocab_size, config.d_model, scaled=config.scale_embeddings)
        self.source_position, self.target_position = (
            build_position_encoding(
                config.position,
                max_length=config.max_length,
                d_model=config.d_model,
                num_heads=config.num_heads,
                rotary_base=config.rotary_base or 10000.0,
            )
            for _ in range(2)
        )
        self.source_embedding_norm, self.target_embedding_norm = embedding_norm(config), embedding_norm(config)
        self.dropout = Dropout(config.embedding_dropout_rate)
        self.skips_layer = LayerDrop(config.layer_dropout)
        self.encoder_layers = nn.ModuleList(
            TransformerLayer(config, cross_attention=False) for _ in range(config.num_encoder_layers)
        )
        self.encoder_norm = final_norm(config)
        self.decoder_layers = nn.ModuleList(
            TransformerLayer(config, cross_attention=True) for _ in range(config.num_decoder_layers)
        )
        self.decoder_norm = final_norm(config)
        self.output = nn.Linear(config.d_model, target_vocab_size, bias=False)
        initialize(self, config, num_residuals=2 * config.num_encoder_layers + 3 * config.num_decoder_layers)
        if config.tie_embeddings != "none":
            self.output.weight = self.target_embedding.weight
        if config.tie_embeddings == "all":
            self.source_embedding.weight = self.target_embedding.weight

    def forward(
        self,
        source_BS: Tensor,
        target_BT: Tensor,
        source_mask_BS: Tensor | None = None,
        target_mask_BT: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, T, V) for the token after each target position (teacher forcing).

        Args:
            source_BS: source ids.
            target_BT: decoder input ids: the target shifted right, starting with the start token.
            source_mask_BS: bool, True for real source tokens; None if all are.
            target_mask_BT: the same for the target; needed for left padding only.
        """
        memory_BSD = self.encode(source_BS, source_mask_BS).memory_BSD
        decoded = self.decode(target_BT, memory_BSD, source_mask_BS, target_mask_BT)
        return self.output(decoded.hidden_BTD)  # type: ignore[no-any-return]

    def encode(
        self,
        source_BS: Tensor,
        mask_BS: Tensor | None = None,
        *,
        segments_BS: Tensor | None = None,
        backend: Backend = "fused",
    ) -> Encoded:
        """Read the source; every real token sees every real token.

        Args:
            source_BS: source ids.
            mask_BS: bool of the same shape, True for real tokens; None if all are.
            segments_BS: for rows of several sources, instead of a mask: int of the same shape, 0 for padding, else the
                number of the source in its row, from 1 upwards. Each sees only itself and has positions from 0.
            backend: ``"explicit"`` also returns attention weights.

        Raises:
            ValueError: for ids outside the vocabulary, a mask or segments of another shape, or a source too long.
        """
        if segments_BS is None:
            check_length(source_BS.shape[-1], self.config.max_length)
        x_BSD = self.source_embedding(source_BS)
        check_real(mask_BS, source_BS)
        mask = None
        if segments_BS is not None:
            positions = place_segments(source_BS, segments_BS, mask_BS, None, self.config.max_length)
            mask = segment_mask(segments_BS, segments_BS)
        elif mask_BS is not None:
            positions, mask = positions_of(mask_BS), padding_mask(mask_BS)
        else:
            positions = torch.arange(source_BS.shape[1], device=source_BS.device)[None]
        x_BSD = self.dropout(self.source_embedding_norm(self.source_position.embed(x_BSD, positions)))
        signals = self.source_position.signals(positions, positions)
        weights = []
        for layer in self.encoder_layers:
            if self.skips_layer():
                continue
            output = layer(x_BSD, mask=mask, signals=signals, backend=backend)
            x_BSD = output.hidden_BLD
            weights.append(output.self_weights_BHLL)
        return Encoded(self.encoder_norm(x_BSD), weights)

    def decode(
        self,
        target_BT: Tensor,
        memory_BSD: Tensor,
        source_mask_BS: Tensor | None = None,
        target_mask_BT: Tensor | None = None,
        *,
        source_segments_BS: Tensor | None = None,
        target_segments_BT: Tensor | None = None,
        cache: DecoderCache | None = None,
        backend: Backend = "fused",
    ) -> Decoded:
        """Hidden states for the decoder input; with a cache, ``target_BT`` holds only the new positions.

        The first call with a cache leaves the memory and its mask there; later ones, which may be of other rows
        (:meth:`DecoderCache.select`), take them from it.

        With segments, which come together and instead of masks and a cache, each target sees only itself, up to the
        present token, and the source whose segment has the same number.

        Raises:
            ValueError: for ids outside the vocabulary, masks or segments of another shape, or a sequence too long.
        """
        x_BTD = self.target_embedding(target_BT)
        if source_segments_BS is None and target_segments_BT is None:
            query_positions, key_positions, key_mask_BK = place_tokens(
                target_BT, target_mask_BT, cache, self.config.max_length
            )
            mask = None if key_mask_BK is None else padding_mask(key_mask_BK)
            if cache is not None:
                if cache.memories is None:
                    cache.memories = SharedMemories(len(memory_BSD), source_mask_BS)
                source_mask_BS = cache.memories.mask_NS
            memory_mask, causal = None if source_mask_BS is None else padding_mask(source_mask_BS), True
        else:
            if source_segments_BS is None or target_segments_BT is None:
                raise ValueError("packed rows need segments of both sides, but those of one are missing.")
            any_mask = source_mask_BS if target_mask_BT is None else target_mask_BT
            query_positions = place_segments(target_BT, target_segments_BT, any_mask, cache, self.config.max_length)
            key_positions = query_positions
            check_segments(source_segments_BS, memory_BSD.shape[:2])
            mask = segment_mask(target_segments_BT, target_segments_BT)
            # Combined here, once for all layers.
            mask, causal = mask & causal_mask(target_BT.shape[1], target_BT.shape[1], target_BT.device), False
            memory_mask = segment_mask(target_segments_BT, source_segments_BS)
        x_BTD = self.dropout(self.target_embedding_norm(self.target_position.embed(x_BTD, query_positions)))
        signals = self.target_position.signals(query_positions, key_positions)
        self_weights, cross_weights = [], []
        for index, layer in enumerate(self.decoder_layers):
            if self.skips_layer():
                continue
            output = layer(
                x_BTD,
                mask=mask,
                causal=causal,
                signals=signals,
                memory_BSD=memory_BSD,
                memory_mask=memory_mask,
                cache=None if cache is None else cache.layers[index],
                backend=backend,
            )
            x_BTD = output.hidden_BLD
            self_weights.append(output.self_weights_BHLL)
            cross_weights.append(output.cross_weights_BHTS)
        return Decoded(self.decoder_norm(x_BTD), self_weights, cross_weights)

    def new_cache(self) -> DecoderCache:
        """An empty cache for one batch of sources."""
        return DecoderCache(self.config.num_decoder_layers)
