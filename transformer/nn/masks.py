"""Attention masks: bool, True = may attend. Combine them with ``&``."""

import torch
from torch import Tensor


def padding_mask(real_BK: Tensor) -> Tensor:
    """From (batch, keys), True for real tokens, to (batch, 1, 1, keys): no query may attend to padding."""
    return real_BK[:, None, None, :]


def lengths_to_mask(lengths_B: Tensor, max_length: int) -> Tensor:
    """(batch, max_length), True for the first ``lengths_B[b]`` positions of row b."""
    return torch.arange(max_length, device=lengths_B.device)[None, :] < lengths_B[:, None]


def causal_mask(query_length: int, key_length: int, device: torch.device | None = None) -> Tensor:
    """(1, 1, queries, keys), bottom-right aligned: query i sees keys up to ``i + key_length - query_length``.

    With as many queries as keys it is the lower triangle. With more keys (cached ones), the last query sees all of
    them. With fewer keys than queries, the first queries see nothing.
    """
    queries = torch.arange(key_length - query_length, key_length, device=device)
    keys = torch.arange(key_length, device=device)
    return (keys[None, :] <= queries[:, None])[None, None]


def sliding_window_mask(window: int, query_length: int, key_length: int, device: torch.device | None = None) -> Tensor:
    """(1, 1, queries, keys): a query sees keys less than ``window`` positions away, itself included, on either side.

    Aligned like :func:`causal_mask`; combined with it, each query sees itself and the ``window - 1`` keys before.
    """
    queries = torch.arange(key_length - query_length, key_length, device=device)
    keys = torch.arange(key_length, device=device)
    return ((keys[None, :] - queries[:, None]).abs() < window)[None, None]
