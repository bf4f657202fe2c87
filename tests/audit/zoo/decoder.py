"""A causal language model without faults, and how the audit calls it and its faulty kin."""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.audit.model import CachedDecoding, CausalLanguageModel, ResidualBlock
from zoo.parts import MAX_LENGTH, PAD, VOCAB, WIDTH, Attention, FeedForward, Past, Residual, causal, positions, start


@dataclass
class Session:
    """What a decoding session keeps: of each layer its keys and values, and which tokens are real."""

    layers: list[Past] = field(default_factory=lambda: [{}, {}])
    real: Tensor | None = None


class Decoder(nn.Module):
    """Two layers, learned positions, tied embeddings, a cache."""

    attention: type[Attention] = Attention

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(VOCAB, WIDTH), nn.Embedding(MAX_LENGTH, WIDTH)
        self.layers = nn.ModuleList(
            nn.ModuleList([Residual(self.attention()), Residual(FeedForward())]) for _ in range(2)
        )
        self.norm, self.output = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        start(self)
        self.output.weight = self.embedding.weight

    def forward(self, ids: Tensor, mask: Tensor | None = None, session: Session | None = None) -> Tensor:
        new = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        real = new if session is None or session.real is None else torch.cat([session.real, new], dim=1)
        if session is not None:
            session.real = real
        x = self.embedding(ids) + self.position(self.places(real, ids.shape[1]))
        visible = self.visible(real, ids.shape[1])
        for number, (attention, feed_forward) in enumerate(self.layers):
            x = attention(x, visible=visible, past=None if session is None else session.layers[number])
            x = feed_forward(x)
        return self.output(self.norm(x))

    def places(self, real: Tensor, num_new: int) -> Tensor:
        return positions(real)[:, -num_new:]

    def visible(self, real: Tensor, num_new: int) -> Tensor:
        return causal(real, num_new)

    def loss(self, ids: Tensor, scored: Tensor) -> Tensor:
        labels = ids[:, 1:].masked_fill(~scored[:, 1:], -100)
        return F.cross_entropy(self(ids[:, :-1]).flatten(0, 1), labels.flatten())

    def begin(self) -> Session:
        return Session()

    def select(self, session: Session, rows: Tensor) -> Session:
        layers = [{name: tensor[rows] for name, tensor in past.items()} for past in session.layers]
        return Session(layers, None if session.real is None else session.real[rows])


def language_model(kind: type[Decoder] = Decoder, **changes: Any) -> CausalLanguageModel:
    """Everything that the audit can be told of such a model; ``changes`` replace fields."""
    torch.manual_seed(0)
    fields: dict[str, Any] = {
        "vocab_size": VOCAB,
        "max_length": MAX_LENGTH,
        "pad_id": PAD,
        "masked_call": lambda module, ids, mask: module(ids, mask),
        "loss_call": lambda module, ids, scored: module.loss(ids, scored),
        "cache": CachedDecoding(
            start=lambda module, _source, _mask, _rows: module.begin(),
            step=lambda module, session, new, mask: (module(new, mask, session), session),
            select=lambda module, session, rows: module.select(session, rows),
        ),
        "residuals": lambda module: [
            ResidualBlock(f"layers.{number}.{place}", block, list(block.sublayer.output.parameters()))
            for number, layer in enumerate(module.layers)
            for place, block in enumerate(layer)
        ],
        "tied": (("embedding.weight", "output.weight"),),
        "build": lambda: kind().float(),
        "fresh": True,
    }
    return CausalLanguageModel(kind().float(), **(fields | changes))
