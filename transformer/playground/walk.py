"""One attention, step by step: what the project's own function does inside, beside what it gives."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.nn.attention import attention
from transformer.nn.masks import causal_mask
from transformer.playground.matrices import Matrices


class Walk(NamedTuple):
    """The numbers of the five steps, for every query, in float64.

    Attributes:
        query_QE, key_KE, value_KU: what goes in.
        scale: what scores are multiplied by, ``1 / sqrt(E)``, or 1 without scaling.
        visible_QK: bool, True where the query may attend to the key.
        dots_QK: step 1, each query times each key.
        scaled_QK: step 2, times the scale.
        masked_QK: step 3, minus infinity where the query may not look.
        weights_QK: step 4, the softmax of each row, as :func:`transformer.nn.attention.attention` returns it.
        output_QU: step 5, the mean of the values with these weights, returned by the same call.
    """

    query_QE: Tensor
    key_KE: Tensor
    value_KU: Tensor
    scale: float
    visible_QK: Tensor
    dots_QK: Tensor
    scaled_QK: Tensor
    masked_QK: Tensor
    weights_QK: Tensor
    output_QU: Tensor


def walk(matrices: Matrices, *, scaled: bool, causal: bool) -> Walk:
    """Attend with one head.

    Args:
        matrices: queries, keys and values.
        scaled: divide the dot products by the square root of the keys' width.
        causal: the last query sees every key, the one before it all but the last, and so on.
    """
    query_QE, key_KE, value_KU = (torch.tensor(matrix, dtype=torch.float64) for matrix in matrices)
    scale = 1 / math.sqrt(key_KE.shape[1]) if scaled else 1.0
    attended = attention(
        query_QE[None, None],
        key_KE[None, None],
        value_KU[None, None],
        causal=causal,
        scale=scale,
        backend="explicit",
    )
    assert attended.weights is not None, "the explicit backend returns the weights"
    num_queries, num_keys = query_QE.shape[0], key_KE.shape[0]
    visible_QK = torch.ones(num_queries, num_keys, dtype=torch.bool)
    if causal:
        visible_QK = causal_mask(num_queries, num_keys)[0, 0]
    dots_QK = query_QE @ key_KE.T
    scaled_QK = dots_QK * scale
    return Walk(
        query_QE,
        key_KE,
        value_KU,
        scale,
        visible_QK,
        dots_QK,
        scaled_QK,
        scaled_QK.masked_fill(~visible_QK, -math.inf),
        attended.weights[0, 0],
        attended.output[0, 0],
    )
