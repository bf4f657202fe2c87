"""Logits of the tokens on a shortlist alone: the projection over the vocabulary is most of a small model's step."""

from typing import Self

import numpy as np
import torch
from torch import Tensor, nn

from transformer.nn.int8_linear import select_outputs


class ShortlistedOutput:
    """An output projection over the union of the shortlists of a batch of sources.

    Its logits have one column for each token of the union. Each row is over its own source's shortlist: other columns
    are minus infinity, so that the probabilities of a row, and their sum, depend on its own source alone.

    Args:
        output: the model's projection (D inputs, V outputs), in any precision.
        columns_C: the union: token ids in ascending order.
        allowed_BC: bool, which of them each source may have; at least one each.

    Attributes:
        columns_C: see above; column c of the logits is token ``columns_C[c]``.
    """

    def __init__(self, output: nn.Module, columns_C: Tensor, allowed_BC: Tensor) -> None:
        self.columns_C = columns_C
        self._output = select_outputs(output, columns_C)
        # All the same, as for a single source: nothing is to be masked.
        self._forbidden_BC = None if bool(allowed_BC.all()) else ~allowed_BC

    @classmethod
    def from_numpy(cls, output: nn.Module, columns_C: np.ndarray, allowed_BC: np.ndarray, device: torch.device) -> Self:
        """From what :meth:`Shortlist.for_batch` gives."""
        return cls(output, torch.from_numpy(columns_C).to(device), torch.from_numpy(allowed_BC).to(device))

    def logits(self, hidden_MD: Tensor, source_of_row_M: Tensor) -> Tensor:
        """Logits (M, C) of rows that translate the sources with the given numbers."""
        logits_MC: Tensor = self._output(hidden_MD)
        if self._forbidden_BC is not None:
            logits_MC.masked_fill_(self._forbidden_BC[source_of_row_M], -torch.inf)
        return logits_MC

    def tokens(self, columns: Tensor) -> Tensor:
        """The token ids that columns stand for."""
        return self.columns_C[columns]
