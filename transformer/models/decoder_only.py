"""A causal language model: embedding, positions, layers, norm, output projection (Radford et al. 2018)."""

from typing import NamedTuple

from torch import Tensor, nn

from transformer.models.config import DecoderOnlyConfig
from transformer.models.init import initialize
from transformer.nn.attention import Backend
from transformer.nn.cache import DecoderCache
from transformer.nn.dropout import Dropout
from transformer.nn.embedding import TokenEmbedding
from transformer.nn.layers import LayerDrop, TransformerLayer, embedding_norm, final_norm
from transformer.nn.masks import causal_mask, padding_mask, segment_mask, sliding_window_mask
from transformer.nn.positions import build_position_encoding, place_segments, place_tokens


class Hidden(NamedTuple):
    """Final hidden states (B, L, D) and, with the explicit backend, each layer's attention weights (B, H, L, K)."""

    hidden_BLD: Tensor
    weights: list[Tensor | None]


class DecoderOnly(nn.Module):
    """Predicts each next token from the tokens before it. There is no encoder, hence nothing to leak through.

    Args:
        config: the architecture.
        vocab_size: number of token ids, from the tokenizer.
    """

    def __init__(self, config: DecoderOnlyConfig, vocab_size: int) -> None:
        super().__init__()
        self.config, self.vocab_size = config, vocab_size
        self.embedding = TokenEmbedding(vocab_size, config.d_model, scaled=config.scale_embeddings)
        self.position = build_position_encoding(
            config.position,
            max_length=config.max_length,
            d_model=config.d_model,
            num_heads=config.num_heads,
            rotary_base=config.rotary_base or 10000.0,
        )
        self.embedding_norm = embedding_norm(config)
        self.dropout = Dropout(config.embedding_dropout_rate)
        self.skips_layer = LayerDrop(config.layer_dropout)
        self.layers = nn.ModuleList(TransformerLayer(config, cross_attention=False) for _ in range(config.num_layers))
        self.norm = final_norm(config)
        self.output = nn.Linear(config.d_model, vocab_size, bias=False)
        initialize(self, config, num_residuals=2 * config.num_layers)
        if config.tie_embeddings:
            self.output.weight = self.embedding.weight

    def forward(self, tokens_BL: Tensor, mask_BL: Tensor | None = None, *, cache: DecoderCache | None = None) -> Tensor:
        """Logits (B, L, V) for the token after each position. Arguments as for :meth:`hidden`."""
        return self.output(self.hidden(tokens_BL, mask_BL, cache=cache).hidden_BLD)  # type: ignore[no-any-return]

    def next_logits(
        self, tokens_BL: Tensor, mask_BL: Tensor | None = None, *, cache: DecoderCache | None = None
    ) -> Tensor:
        """Logits (B, V) for the token after the last position; only that position is projected."""
        if mask_BL is not None and not bool(mask_BL[:, -1].all()):
            raise ValueError("the last token of every row must be real: pad on the left to predict the next token.")
        hidden_BLD = self.hidden(tokens_BL, mask_BL, cache=cache).hidden_BLD
        return self.output(hidden_BLD[:, -1])  # type: ignore[no-any-return]

    def hidden(
        self,
        tokens_BL: Tensor,
        mask_BL: Tensor | None = None,
        *,
        segments_BL: Tensor | None = None,
        cache: DecoderCache | None = None,
        backend: Backend = "fused",
    ) -> Hidden:
        """Final hidden states.

        Args:
            tokens_BL: token ids (batch, length); with a cache only the new ones.
            mask_BL: bool of the same shape, True for real tokens. Needed for left padding only: causality
                already hides padding on the right from every real token.
            segments_BL: for rows of several documents, instead of a mask and a cache: int of the same shape, 0 for
                padding, else the number of the document in its row, from 1 upwards. Each sees only itself and has
                positions from 0.
            cache: keys and values of earlier calls, extended by this one.
            backend: ``"explicit"`` also returns attention weights.

        Raises:
            ValueError: for ids outside the vocabulary, a mask or segments of another shape, or a sequence too long.
        """
        x_BLD = self.embedding(tokens_BL)
        max_length = self.config.max_length
        if segments_BL is None:
            query_positions, key_positions, key_mask_BK = place_tokens(tokens_BL, mask_BL, cache, max_length)
            mask, causal = None if key_mask_BK is None else padding_mask(key_mask_BK), True
        else:
            query_positions = place_segments(tokens_BL, segments_BL, mask_BL, cache, max_length)
            key_positions, num_tokens = query_positions, tokens_BL.shape[1]
            # Combined here, once for all layers.
            mask = segment_mask(segments_BL, segments_BL) & causal_mask(num_tokens, num_tokens, tokens_BL.device)
            causal = False
        if self.config.sliding_window is not None:
            num_queries, num_keys = tokens_BL.shape[1], key_positions.shape[1]
            window = sliding_window_mask(self.config.sliding_window, num_queries, num_keys, tokens_BL.device)
            mask = window if mask is None else mask & window
        x_BLD = self.dropout(self.embedding_norm(self.position.embed(x_BLD, query_positions)))
        signals = self.position.signals(query_positions, key_positions)
        weights = []
        for index, layer in enumerate(self.layers):
            if self.skips_layer():
                continue
            layer_cache = None if cache is None else cache.layers[index]
            output = layer(x_BLD, mask=mask, causal=causal, signals=signals, cache=layer_cache, backend=backend)
            x_BLD = output.hidden_BLD
            weights.append(output.self_weights_BHLL)
        return Hidden(self.norm(x_BLD), weights)

    def new_cache(self) -> DecoderCache:
        """An empty cache for one batch of prompts."""
        return DecoderCache(self.config.num_layers)
