"""Language models that are wrong in what a token sees, and where it believes to stand."""

import torch
from torch import Tensor

from zoo.decoder import Decoder, Session
from zoo.parts import HEADS, Attention


class Bidirectional(Decoder):
    """No causal mask: as an encoder."""

    def visible(self, real: Tensor, num_new: int) -> Tensor:
        return real[:, None, None].expand(-1, -1, num_new, -1)


class SeesItself(Decoder):
    """A mask that hides the past as well."""

    def visible(self, real: Tensor, num_new: int) -> Tensor:
        places = torch.arange(real.shape[1])
        return super().visible(real, num_new) & (places[-num_new:, None] == places)


class OverQueries(Attention):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        lowest = torch.finfo(scores.dtype).min
        return scores.masked_fill(~visible, lowest).softmax(-2).masked_fill(~visible, 0.0)


class SoftmaxOverQueries(Decoder):
    """The softmax normalises the wrong axis: the weights of a key sum to one, not those of a query."""

    attention = OverQueries


class MaskedAfter(Attention):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        return scores.softmax(-1).masked_fill(~visible, 0.0)


class MaskAfterSoftmax(Decoder):
    """Forbidden weights are put to zero after the softmax, whose denominator has seen the forbidden scores."""

    attention = MaskedAfter


class Mixed(Attention):
    def split(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), HEADS, x.shape[1], -1)


class HeadsMixedWithTime(Decoder):
    """(B, T, H * E) is reshaped to (B, H, T, E) directly, without a transpose."""

    attention = Mixed


class NormOverSequence(Decoder):
    """The last norm takes its statistics over the sequence, too."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = SequenceNorm()


class SequenceNorm(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean((1, 2), keepdim=True)) / x.std((1, 2), keepdim=True)


class ShiftedTwice(Decoder):
    """The data are shifted, and so is the model's own input: each output misses the token that it should know best."""

    def forward(self, ids: Tensor, mask: Tensor | None = None, session: Session | None = None) -> Tensor:
        return super().forward(torch.cat([ids.new_full((len(ids), 1), 1), ids[:, :-1]], dim=1), mask, session)


class PositionsOfPadding(Decoder):
    """Positions count the padding on the left."""

    def places(self, real: Tensor, num_new: int) -> Tensor:
        return torch.arange(real.shape[1])[None, -num_new:]


class PositionsFromEnd(Decoder):
    """Positions are counted from the end of the batch's rows, which padding on the right moves."""

    def places(self, real: Tensor, num_new: int) -> Tensor:
        return torch.arange(real.shape[1]).flip(0)[None, -num_new:]


class PaddingSeen(Decoder):
    """The padding mask is not passed on."""

    def visible(self, real: Tensor, num_new: int) -> Tensor:
        return super().visible(torch.ones_like(real), num_new)


class NaiveExponential(Attention):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        powers = scores.exp().masked_fill(~visible, 0.0)
        return powers / powers.sum(-1, keepdim=True).clamp_min(1e-6)


class SoftmaxOverflows(Decoder):
    """The softmax does not subtract the largest score."""

    attention = NaiveExponential


class LargeMaskValue(Attention):
    def weights(self, scores: Tensor, visible: Tensor) -> Tensor:
        return scores.masked_fill(~visible, -1e9).softmax(-1).masked_fill(~visible, 0.0)


class MaskValueTooLarge(Decoder):
    """Forbidden scores are put to -1e9, which float16 does not have."""

    attention = LargeMaskValue


class OneTokenTakenForStep(Decoder):
    """A single token is taken for a later step of decoding, although nothing came before it."""

    def places(self, real: Tensor, num_new: int) -> Tensor:
        places = super().places(real, num_new)
        return places + 1 if real.shape[1] == 1 else places
