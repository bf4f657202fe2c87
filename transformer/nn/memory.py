"""An encoder's output as decoding steps see it: projected once for each source, however many rows look at it."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transformer.nn.moves import Moves, moves_to


class SharedRows(NamedTuple):
    """Which rows look at the same memory, as a table with a line for each memory.

    Attributes:
        place_M: where each row stands in the table, counted line by line.
        row_NW: which row stands at each place of each memory; at free places any row.
    """

    place_M: Tensor
    row_NW: Tensor

    def gather(self, x_MD: Tensor) -> Tensor:
        """Rows (M, D) as a table (memories, width, D); at free places there is a copy of some row."""
        return x_MD.index_select(0, self.row_NW.flatten()).view(*self.row_NW.shape, -1)

    def scatter(self, table_NWD: Tensor) -> Tensor:
        """The rows (M, D) of a table."""
        return table_NWD.flatten(0, 1).index_select(0, self.place_M)


class MemoryCache:
    """Keys and values of one cross-attention.

    Attributes:
        key_NHSE, value_NHSU: of each memory; None before the first step.
        shared: which rows look at which memory; None if row m looks at memory m.
    """

    def __init__(self) -> None:
        self.key_NHSE: Tensor | None = None
        self.value_NHSU: Tensor | None = None
        self.shared: SharedRows | None = None

    def rearrange(self, moves: Moves | None, shared: SharedRows | None) -> None:
        """Let memories change places or leave (None: all stay), and note which rows look at which."""
        self.shared = shared
        if moves is not None and self.key_NHSE is not None and self.value_NHSU is not None:
            moves.apply(self.key_NHSE)
            moves.apply(self.value_NHSU)
            self.key_NHSE, self.value_NHSU = self.key_NHSE[: moves.num_rows], self.value_NHSU[: moves.num_rows]


class SharedMemories:
    """Which rows of a search look at which memory, and the memories' masks.

    Attributes:
        mask_NS: True for real source tokens of each memory; None if all are.
        shared: which rows look at which memory; None if row m looks at memory m.
    """

    def __init__(self, num_memories: int, mask_NS: Tensor | None) -> None:
        self.mask_NS = None if mask_NS is None else mask_NS.clone()
        self.shared: SharedRows | None = None
        self._num_memories = num_memories
        self._memory_of_row_M = np.arange(num_memories)

    def select(self, rows_M: np.ndarray, device: torch.device | None) -> Moves | None:
        """Keep the given rows. Returns how the memories change places, or None if all stay."""
        memory_of_row_M, counts_N = self._memory_of_row_M[rows_M], np.zeros(self._num_memories, dtype=np.int64)
        np.add.at(counts_N, memory_of_row_M, 1)
        moves, present_N = None, counts_N.nonzero()[0]
        if len(present_N) < self._num_memories:
            # The last ones fill the gaps of those that nobody looks at any more.
            kept_N = np.arange(len(present_N))
            kept_N[counts_N[: len(present_N)] == 0] = present_N[present_N >= len(present_N)]
            moves = moves_to(torch.from_numpy(kept_N), device)
            new_number_N = np.empty(self._num_memories, dtype=np.int64)
            new_number_N[kept_N] = np.arange(len(kept_N))
            memory_of_row_M, counts_N = new_number_N[memory_of_row_M], counts_N[kept_N]
            self._num_memories = len(kept_N)
            if self.mask_NS is not None:
                moves.apply(self.mask_NS)
                self.mask_NS = self.mask_NS[: self._num_memories]
        self._memory_of_row_M = memory_of_row_M
        self.shared = _shared_rows(memory_of_row_M, counts_N, device)
        return moves


def _shared_rows(memory_of_row_M: np.ndarray, counts_N: np.ndarray, device: torch.device | None) -> SharedRows | None:
    if np.array_equal(memory_of_row_M, np.arange(len(counts_N))):
        return None
    order_M = np.argsort(memory_of_row_M, kind="stable")
    starts_N, width, sorted_M = counts_N.cumsum() - counts_N, int(counts_N.max()), memory_of_row_M[order_M]
    place_M = np.empty_like(order_M)
    place_M[order_M] = sorted_M * width + np.arange(len(order_M)) - starts_N[sorted_M]
    row_NW = np.zeros((len(counts_N), width), dtype=np.int64)
    row_NW.flat[place_M] = np.arange(len(order_M))
    return SharedRows(torch.from_numpy(place_M).to(device), torch.from_numpy(row_NW).to(device))
