"""Rearranging the rows of a buffer in place: only rows that change places are copied."""

from typing import NamedTuple

import torch
from torch import Tensor


class Moves(NamedTuple):
    """Afterwards there are ``num_rows`` rows, and row ``targets[i]`` is what row ``sources[i]`` was.

    All other rows stay where they are.
    """

    num_rows: int
    sources_X: Tensor
    targets_X: Tensor

    def apply(self, rows: Tensor) -> None:
        """Let the rows of a buffer, or of a view of one, change places; it must have room for ``num_rows``."""
        if len(self.targets_X) > 0:
            rows.index_copy_(0, self.targets_X, rows.index_select(0, self.sources_X))


def moves_to(rows_M: Tensor, device: torch.device | None) -> Moves:
    """The moves after which row m is what row ``rows_M[m]`` was; rows may be repeated and left out.

    Args:
        rows_M: on the CPU.
        device: of the buffers.
    """
    targets_X = (rows_M != torch.arange(len(rows_M))).nonzero()[:, 0]
    return Moves(len(rows_M), rows_M[targets_X].to(device), targets_X.to(device))
