"""Language models whose rows see each other, or are drawn at random."""

import torch
from torch import Tensor

from zoo.decoder import Decoder, Session
from zoo.parts import Attention, Past


class BatchNorm(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(0, keepdim=True)) / (x.var(0, unbiased=False, keepdim=True) + 1.0).sqrt()


class NormOverBatch(Decoder):
    """The last norm takes its statistics over the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = BatchNorm()


class NeighboursLeak(Decoder):
    """Every output gets a little of the row before its own."""

    def forward(self, ids: Tensor, mask: Tensor | None = None, session: Session | None = None) -> Tensor:
        logits = super().forward(ids, mask, session)
        return logits + 0.01 * logits.roll(1, 0)


class PositionOfRow(Decoder):
    """The position encoding is added along the batch, as if the time came first."""

    def places(self, real: Tensor, num_new: int) -> Tensor:
        return (torch.arange(len(real)) % 16)[:, None].expand(-1, num_new)


class OverRows(Attention):
    """Attention of torch's own layout, (time, batch, width)."""

    def forward(self, x: Tensor, visible: Tensor, memory: Tensor | None = None, past: Past | None = None) -> Tensor:
        everything = torch.ones(1, dtype=torch.bool)
        return super().forward(x.transpose(0, 1), everything, memory, past).transpose(0, 1)


class TimeFirst(Decoder):
    """An attention that expects (time, batch, width) is given (batch, time, width): rows attend to rows."""

    attention = OverRows


class DropoutStaysOn(Decoder):
    """Functional dropout that is not told of the mode."""

    def forward(self, ids: Tensor, mask: Tensor | None = None, session: Session | None = None) -> Tensor:
        return torch.nn.functional.dropout(super().forward(ids, mask, session), 0.1)


class DropoutNeverOn(Decoder):
    """A constructor leaves the module in evaluation mode for good."""

    def train(self, mode: bool = True) -> "DropoutNeverOn":
        super().train(False)
        return self


class DifferentEachTime(Decoder):
    """The outputs depend on how often the module was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, ids: Tensor, mask: Tensor | None = None, session: Session | None = None) -> Tensor:
        self.calls += 1
        return super().forward(ids, mask, session) * (1 + 0.01 * (self.calls % 7))
