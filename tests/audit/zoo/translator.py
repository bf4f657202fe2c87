"""An encoder-decoder without faults, and how the audit calls it and its faulty kin."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.audit.model import ResidualBlock, SequenceToSequence
from zoo.parts import MAX_LENGTH, PAD, VOCAB, WIDTH, Attention, FeedForward, Residual, causal, positions, start


class Translator(nn.Module):
    """One layer on either side, learned positions, one embedding matrix for everything, no cache."""

    encoder_attention: type[Attention] = Attention
    cross_attention: type[Attention] = Attention
    residual: type[Residual] = Residual

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(VOCAB, WIDTH), nn.Embedding(MAX_LENGTH, WIDTH)
        self.encoder = nn.ModuleList([Residual(self.encoder_attention()), Residual(FeedForward())])
        self.encoder_norm = nn.LayerNorm(WIDTH)
        self.decoder = nn.ModuleList(
            [Residual(Attention()), self.residual(self.cross_attention()), Residual(FeedForward())]
        )
        self.norm, self.output = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCAB, bias=False)
        start(self)
        self.output.weight = self.embedding.weight

    def forward(self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor) -> Tensor:
        memory = self.encode(source, source_mask, target)
        return self.decode(target, target_mask, memory, source_mask)

    def encode(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        """The target is there for the faulty ones."""
        x = self.embedding(source) + self.position(self.source_places(mask))
        x = self.encoder[0](x, visible=self.source_visible(mask))
        return self.encoder_norm(self.encoder[1](x))

    def decode(self, target: Tensor, mask: Tensor, memory: Tensor, source_mask: Tensor) -> Tensor:
        x = self.embedding(target) + self.position(positions(mask))
        x = self.decoder[0](x, visible=causal(mask, target.shape[1]))
        x = self.decoder[1](x, visible=self.memory_visible(source_mask), memory=memory)
        return self.output(self.norm(self.decoder[2](x)))

    def source_places(self, mask: Tensor) -> Tensor:
        return positions(mask)

    def source_visible(self, mask: Tensor) -> Tensor:
        return mask[:, None, None]

    def memory_visible(self, mask: Tensor) -> Tensor:
        return mask[:, None, None]

    def loss(self, source: Tensor, source_mask: Tensor, ids: Tensor, scored: Tensor) -> Tensor:
        target = ids[:, :-1]
        logits = self(source, source_mask, target, torch.ones_like(target, dtype=torch.bool))
        labels = ids[:, 1:].masked_fill(~scored[:, 1:], -100)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")


def translation_model(kind: type[Translator] = Translator, **changes: Any) -> SequenceToSequence:
    """Everything that the audit can be told of such a model; ``changes`` replace fields."""
    torch.manual_seed(0)
    fields: dict[str, Any] = {
        "vocab_size": VOCAB,
        "max_length": MAX_LENGTH,
        "pad_id": PAD,
        "call": lambda module, *arguments: module(*arguments),
        "pads_target": ("right", "left"),
        "memory": lambda module: module.encoder_norm,
        "loss_call": lambda module, *arguments: module.loss(*arguments),
        "residuals": lambda module: [
            ResidualBlock(f"{side}.{place}", block, list(block.sublayer.output.parameters()))
            for side, blocks in (("encoder", module.encoder), ("decoder", module.decoder))
            for place, block in enumerate(blocks)
        ],
        "tied": (("embedding.weight", "output.weight"),),
        "build": lambda: kind().float(),
        "fresh": True,
    }
    return SequenceToSequence(kind().float(), **(fields | changes))
