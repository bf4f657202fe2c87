"""Attention masks: bool, True = may attend. Combine them with ``&``."""

import torch
from torch import Tensor


def padding_mask(real_BK: Tensor) -> Tensor:
    """From (batch, keys), True for real tokens, to (batch, 1, 1, keys): no query may attend to padding."""
    return real_BK[:, None, None, :]


def check_real(real_BL: Tensor | None, tokens_BL: Tensor) -> None:
    """Refuse a mark of real tokens that is not one truth value for each token of this call.

    With a cache, a mask over all positions so far would otherwise pass for one over the new positions.
    """
    if real_BL is not None and (real_BL.dtype != torch.bool or real_BL.shape != tokens_BL.shape):
        raise ValueError(
            f"the mask must be bool (True = a real token) and have the token ids' shape {tuple(tokens_BL.shape)}, "
            f"but is {real_BL.dtype} of shape {tuple(real_BL.shape)}."
        )


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
