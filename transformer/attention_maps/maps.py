"""The attention weights of a model for one example: every layer's and head's, with the tokens of both sides."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from transformer.attention_maps.token_texts import Token
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.nn.masks import causal_mask, sliding_window_mask

# Encoder self-attention, decoder self-attention (the only kind of a language model), cross-attention.
Kind = Literal["encoder", "decoder", "cross"]
KINDS: tuple[Kind, ...] = ("encoder", "decoder", "cross")


class AttentionMap(NamedTuple):
    """All attention weights of one kind for one example.

    Attributes:
        kind: which attention.
        query_tokens: (Q) what rows are of. Self-attention: the token that stands at the position. Cross-attention: the
            token that is predicted there, which is the next one; the last is the end token.
        key_tokens: (K) what columns are of: the tokens that are attended to, a tag, start and end tokens included.
        weights_LHQK: float32 on the CPU: weights of each layer and head. A row adds up to 1.
        visible_QK: bool: True where the query may attend to the key; the weight is exactly 0 elsewhere.
    """

    kind: Kind
    query_tokens: list[Token]
    key_tokens: list[Token]
    weights_LHQK: Tensor
    visible_QK: Tensor

    @property
    def num_layers(self) -> int:
        """L."""
        return self.weights_LHQK.shape[0]

    @property
    def num_heads(self) -> int:
        """H."""
        return self.weights_LHQK.shape[1]


@torch.inference_mode()
def translation_maps(
    model: EncoderDecoder,
    source: Sequence[Token],
    target: Sequence[Token],
) -> list[AttentionMap]:
    """Encoder, decoder and cross-attention in a forced pass over a pair, through the model's own explicit attention.

    Args:
        model: in evaluation mode: dropout and skipped layers would show another model.
        source: S tokens as the encoder reads them, a tag and the end token included.
        target: start token, target, and end token: the decoder reads all but the last and predicts all but the first.
    """
    assert not model.training, "with dropout it is another model"
    device = model.output.weight.device
    source_1S = torch.tensor([[token.id for token in source]], device=device)
    target_1T = torch.tensor([[token.id for token in target[:-1]]], device=device)
    encoded = model.encode(source_1S, backend="explicit")
    decoded = model.decode(target_1T, encoded.memory_BSD, backend="explicit")
    num_queries, num_keys = target_1T.shape[1], source_1S.shape[1]
    read, predicted = list(target[:-1]), list(target[1:])
    return [
        _map("encoder", source, source, encoded.weights, torch.ones(num_keys, num_keys, dtype=torch.bool)),
        _map("decoder", read, read, decoded.self_weights, causal_mask(num_queries, num_queries)[0, 0]),
        _map("cross", predicted, source, decoded.cross_weights, torch.ones(num_queries, num_keys, dtype=torch.bool)),
    ]


@torch.inference_mode()
def text_maps(model: DecoderOnly, text: Sequence[Token]) -> list[AttentionMap]:
    """The self-attention of a language model, a list of one map.

    Args:
        model: in evaluation mode.
        text: tokens as the model reads them, a start token included if it was trained with one.
    """
    assert not model.training, "with dropout it is another model"
    tokens_1L = torch.tensor([[token.id for token in text]], device=model.output.weight.device)
    hidden = model.hidden(tokens_1L, backend="explicit")
    visible = causal_mask(len(text), len(text))
    if model.config.sliding_window is not None:
        visible = visible & sliding_window_mask(model.config.sliding_window, len(text), len(text))
    return [_map("decoder", text, text, hidden.weights, visible[0, 0])]


def _map(
    kind: Kind, queries: Sequence[Token], keys: Sequence[Token], weights: Sequence[Tensor | None], visible_QK: Tensor
) -> AttentionMap:
    layers = []
    for weights_1HQK in weights:
        assert weights_1HQK is not None, "the explicit backend returns the weights"
        layers.append(weights_1HQK[0].float().cpu())
    return AttentionMap(kind, list(queries), list(keys), torch.stack(layers), visible_QK)
