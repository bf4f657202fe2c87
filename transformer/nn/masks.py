"""Attention masks: bool, True = may attend. Combine them with ``&``."""

import torch
import torch.nn.functional as F
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


def check_segments(segments_BL: Tensor, shape: tuple[int, ...]) -> None:
    """Refuse segments that are not one number for each token, or whose examples are not contiguous.

    The numbers are checked on the CPU only, like token ids: on an accelerator it would wait for the device.
    """
    if segments_BL.dtype not in (torch.int64, torch.int32) or segments_BL.shape != shape:
        raise ValueError(
            f"the segments must be int64 or int32 and have the token ids' shape {tuple(shape)}, but are "
            f"{segments_BL.dtype} of shape {tuple(segments_BL.shape)}."
        )
    if segments_BL.device.type != "cpu" or segments_BL.numel() == 0:
        return
    before_BL = F.pad(segments_BL[:, :-1], (1, 0))
    highest_BL = before_BL.cummax(1).values
    wrong_BL = (segments_BL < 0) | ((segments_BL != before_BL) & (segments_BL > 0) & (segments_BL <= highest_BL))
    if bool(wrong_BL.any()):
        row, place = wrong_BL.nonzero()[0].tolist()
        raise ValueError(
            f"the segments of a row must be contiguous and numbered upwards from 1, with 0 for padding, but row {row} "
            f"has {int(segments_BL[row, place])} at position {place}."
        )


def segment_mask(query_segments_BQ: Tensor, key_segments_BK: Tensor) -> Tensor:
    """(batch, 1, queries, keys) for rows that hold several examples: a query sees only keys of its own segment.

    Segments are numbers from 1; 0 is padding, which sees nothing and is seen by nothing. Queries and keys may be of
    one sequence or of two (cross-attention), whose segments of the same number then belong together.
    """
    same_BQK = query_segments_BQ[:, :, None] == key_segments_BK[:, None, :]
    return (same_BQK & (key_segments_BK > 0)[:, None, :])[:, None]


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
