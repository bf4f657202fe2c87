"""The position-wise feed-forward network: mixes features, never positions."""

from typing import assert_never

import torch.nn.functional as F
from torch import Tensor, nn

from transformer.nn.config import ActivationName
from transformer.nn.dropout import Dropout


class FeedForward(nn.Module):
    """``W2 act(W1 x)``, or SwiGLU ``W2 (silu(Wg x) * Wu x)`` (Shazeer 2020), gate and up in one projection.

    Among the activations is the squared ReLU of Primer (So et al. 2021).
    """

    def __init__(self, d_model: int, d_ff: int, activation: ActivationName, *, bias: bool, dropout: float) -> None:
        super().__init__()
        self.activation = activation
        self.inner = nn.Linear(d_model, 2 * d_ff if activation == "swiglu" else d_ff, bias=bias)
        self.dropout = Dropout(dropout)
        self.outer = nn.Linear(d_ff, d_model, bias=bias)

    def forward(self, x_BLD: Tensor) -> Tensor:
        return self.outer(self.dropout(self._activate(self.inner(x_BLD))))  # type: ignore[no-any-return]

    def _activate(self, x_BLF: Tensor) -> Tensor:
        match self.activation:
            case "relu":
                return F.relu(x_BLF)
            case "relu_squared":
                return F.relu(x_BLF).square()
            case "gelu":
                return F.gelu(x_BLF)
            case "gelu_tanh":
                return F.gelu(x_BLF, approximate="tanh")
            case "swiglu":
                gate_BLF, up_BLF = x_BLF.chunk(2, dim=-1)
                return F.silu(gate_BLF) * up_BLF
            case _:
                assert_never(self.activation)
