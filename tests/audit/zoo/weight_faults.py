"""Language models whose parameters are unused, untied, unsaved or too large, and losses of the wrong tokens."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from zoo.decoder import Decoder, Session
from zoo.parts import PAD, VOCAB, WIDTH


class UnusedParameter(Decoder):
    """A layer is made and never called."""

    def __init__(self) -> None:
        super().__init__()
        self.forgotten = nn.Linear(WIDTH, WIDTH)


class GradientCutOff(Decoder):
    """The logits are detached, as where a forward for evaluation is also that of training."""

    def forward(self, ids: Tensor, mask: Tensor | None = None, session: Session | None = None) -> Tensor:
        return super().forward(ids, mask, session).detach()


class UntiedCopy(Decoder):
    """The output projection begins as a copy of the embedding and goes its own way."""

    def __init__(self) -> None:
        super().__init__()
        self.output.weight = nn.Parameter(self.embedding.weight.detach().clone())


class BufferUnsaved(Decoder):
    """Random numbers that the outputs depend on are not saved with the weights."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("direction", torch.randn(WIDTH), persistent=False)

    def forward(self, ids: Tensor, mask: Tensor | None = None, session: Session | None = None) -> Tensor:
        return super().forward(ids, mask, session) + F.linear(self.direction, self.output.weight)


class EmbeddingsTooLarge(Decoder):
    """Embeddings of standard deviation 1, torch's default, are the output projection, too."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(2)
        with torch.no_grad():
            self.embedding.weight.copy_(torch.randn(VOCAB, WIDTH, generator=generator, dtype=torch.float64))


class LayersTooLarge(Decoder):
    """The layers' weights have standard deviation 2: the stream explodes."""

    def __init__(self) -> None:
        super().__init__()
        with torch.no_grad():
            for parameter in self.layers.parameters():
                if parameter.dim() == 2:
                    parameter.mul_(2 / 0.15)


class LossUnshifted(Decoder):
    """Each token is scored by the output that has already read it."""

    def loss(self, ids: Tensor, scored: Tensor) -> Tensor:
        return F.cross_entropy(self(ids).flatten(0, 1), ids.masked_fill(~scored, -100).flatten())


class LossShiftedTwice(Decoder):
    """Each token is scored by the output two tokens before it."""

    def loss(self, ids: Tensor, scored: Tensor) -> Tensor:
        labels = ids[:, 2:].masked_fill(~scored[:, 2:], -100)
        return F.cross_entropy(self(ids[:, :-2]).flatten(0, 1), labels.flatten())


class LossOfPadding(Decoder):
    """Padding is scored as if it were text."""

    def loss(self, ids: Tensor, scored: Tensor) -> Tensor:
        return F.cross_entropy(self(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


class LossOverAllPlaces(Decoder):
    """The sum over real tokens is divided by the number of all places."""

    def loss(self, ids: Tensor, scored: Tensor) -> Tensor:
        labels = ids[:, 1:].masked_fill(~scored[:, 1:], -100)
        return F.cross_entropy(self(ids[:, :-1]).flatten(0, 1), labels.flatten(), reduction="sum") / labels.numel()


class LossOfRowMeans(Decoder):
    """The mean over rows of their means: a token of a short row counts more."""

    def loss(self, ids: Tensor, scored: Tensor) -> Tensor:
        labels = ids[:, 1:].masked_fill(~scored[:, 1:], -100)
        losses = F.cross_entropy(self(ids[:, :-1]).mT, labels, reduction="none")
        return (losses.sum(1) / scored[:, 1:].sum(1)).mean()


class LossIgnoresAnId(Decoder):
    """Padding is known by its id, which a real token may have, too: where the end token pads, it is never learnt."""

    def loss(self, ids: Tensor, scored: Tensor) -> Tensor:
        labels = ids[:, 1:].masked_fill(~scored[:, 1:], PAD)
        return F.cross_entropy(self(ids[:, :-1]).flatten(0, 1), labels.flatten(), ignore_index=PAD)
