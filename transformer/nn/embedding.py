"""Token embeddings."""

import math

import torch
from torch import Tensor, nn


class TokenEmbedding(nn.Embedding):
    """Look tokens up; optionally multiply by ``sqrt(d_model)`` (Vaswani et al. 2017, section 3.4).

    Scaling keeps a shared embedding of standard deviation ``1/sqrt(d_model)`` at the size of the positions added to it.
    """

    def __init__(self, vocab_size: int, d_model: int, *, scaled: bool) -> None:
        super().__init__(vocab_size, d_model)
        self.scale = math.sqrt(d_model) if scaled else 1.0

    def forward(self, tokens_BL: Tensor) -> Tensor:
        check_tokens(tokens_BL, self.num_embeddings)
        return super().forward(tokens_BL) * self.scale


def check_tokens(tokens_BL: Tensor, vocab_size: int) -> None:
    """Refuse anything but integer ids of shape (batch, length) within the vocabulary.

    The range is checked on the CPU only: on an accelerator it would wait for the device at every step. The ids of our
    own batches are in range, as model and tokenizer come together; whoever makes ids otherwise can check them with this
    function before they leave the CPU.
    """
    if tokens_BL.dim() != 2:
        raise ValueError(f"token ids must have shape (batch, length), but have {tuple(tokens_BL.shape)}.")
    if tokens_BL.shape[1] == 0:
        raise ValueError("the sequences are empty: there must be at least one token, such as a start token.")
    if tokens_BL.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"token ids must be int64 or int32, but are {tokens_BL.dtype}.")
    if tokens_BL.device.type == "cpu" and tokens_BL.numel() > 0:
        low, high = (int(bound) for bound in tokens_BL.aminmax())
        if low < 0 or high >= vocab_size:
            raise ValueError(
                f"token ids must be from 0 to {vocab_size - 1} (a vocabulary of {vocab_size}), but range from "
                f"{low} to {high}."
            )
