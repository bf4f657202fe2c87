"""Encoder-decoders that read the source wrongly, or not at all."""

import torch
from torch import Tensor

from zoo.parts import HEADS, WIDTH, Attention, Past, Residual
from zoo.translator import Translator


class EncoderSeesPadding(Translator):
    """The encoder gets no mask."""

    def source_visible(self, mask: Tensor) -> Tensor:
        return torch.ones_like(mask)[:, None, None]


class DecoderSeesPadding(Translator):
    """Cross-attention gets no mask."""

    def memory_visible(self, mask: Tensor) -> Tensor:
        return torch.ones_like(mask)[:, None, None]


class SourcePositionsOfPadding(Translator):
    """Source positions count the padding on the left."""

    def source_places(self, mask: Tensor) -> Tensor:
        return torch.arange(mask.shape[1])[None]


class OverItself(Attention):
    def forward(self, x: Tensor, visible: Tensor, memory: Tensor | None = None, past: Past | None = None) -> Tensor:
        return super().forward(x, torch.eye(x.shape[1], dtype=torch.bool))


class SourceIgnored(Translator):
    """Cross-attention takes its keys and values from the target: each token attends to itself."""

    cross_attention = OverItself


class LeakingEncoder(Translator):
    """The encoder reads the target behind the source, coming tokens included."""

    def encode(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        x = self.embedding(source) + self.position(self.source_places(mask))
        x = x + self.embedding(target).mean(1, keepdim=True)
        x = self.encoder[0](x, visible=self.source_visible(mask))
        return self.encoder_norm(self.encoder[1](x))


class QueryLength(Attention):
    def forward(self, x: Tensor, visible: Tensor, memory: Tensor | None = None, past: Past | None = None) -> Tensor:
        assert memory is not None
        length = x.shape[1]
        query, key, value = (
            each.view(len(x), length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for each in (self.query(x), self.key(memory), self.value(memory))
        )
        return self.output(self.merge(self.weights(query @ key.mT, visible) @ value))


class KeysOfQueryLength(Translator):
    """Cross-attention gives keys and values the queries' length."""

    cross_attention = QueryLength


class MinusInfinity(Attention):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        return scores.masked_fill(~visible, -torch.inf).softmax(-1)


class NanOfMaskedRows(Translator):
    """Forbidden scores are minus infinity: a row without any visible key becomes NaN."""

    encoder_attention = cross_attention = MinusInfinity


class Mixed(Attention):
    def split(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), HEADS, x.shape[1], -1)


class EncoderHeadsMixedWithTime(Translator):
    """The encoder's heads are split without a transpose: the mask then meets other tokens than it was made for."""

    encoder_attention = Mixed


class AfterNorm(Residual):
    def forward(self, x: Tensor, **context: object) -> Tensor:
        x = self.norm(x)
        return x + self.dropout(self.sublayer(x, **context))


class ResidualAfterNorm(Translator):
    """One residual in three of the decoder is taken after the norm."""

    residual = AfterNorm


class EncoderDetached(Translator):
    """The encoder is run without gradients, and never learns."""

    def encode(self, source: Tensor, mask: Tensor, target: Tensor) -> Tensor:
        return super().encode(source, mask, target).detach()
