"""The order of a search's rows: whoever can keep its place does, so that a model has little to copy."""

import numpy as np


def in_place_order(parents_M: np.ndarray) -> np.ndarray:
    """The order (M) of new rows in which row m continues row m wherever any row does.

    Args:
        parents_M: which earlier row each new row continues.
    """
    num_rows = len(parents_M)
    order_M = np.full(num_rows, -1)
    continued, first_child = np.unique(parents_M, return_index=True)
    staying = continued < num_rows
    order_M[continued[staying]] = first_child[staying]
    moving = np.ones(num_rows, dtype=bool)
    moving[first_child[staying]] = False
    order_M[order_M < 0] = moving.nonzero()[0]
    return order_M
