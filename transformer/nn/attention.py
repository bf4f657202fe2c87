"""Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1) as a function with two backends.

Masks are bool, True = may attend. Causal is bottom-right aligned: the last query sees every key, so the same call is
right for a whole sequence and for a few new queries over cached keys. A query that may attend to nothing gets a zero
output and a zero gradient, in both backends and in every precision.
"""

import math
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer.nn.masks import causal_mask

Backend = Literal["fused", "explicit"]


class Attended(NamedTuple):
    """What attention gives: the outputs, and the weights where the explicit backend was asked for them."""

    output: Tensor
    weights: Tensor | None


def attention(
    query_BHQE: Tensor,
    key_BGKE: Tensor,
    value_BGKU: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    bias: Tensor | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
    backend: Backend = "fused",
) -> Attended:
    """``softmax(Q K^T * scale + bias) V`` over the keys that the mask and causality allow.

    Args:
        query_BHQE: queries of shape (batch, heads, query length, head size).
        key_BGKE: keys (batch, key heads, key length, head size); the key heads must divide the heads (grouped-query
            attention: consecutive query heads share a key head).
        value_BGKU: values (batch, key heads, key length, value size); the value size may differ from the head size.
        mask: bool (B, 1, 1, K) or (B, 1, Q, K), where B may be 1; True = may attend.
        causal: also forbid query i (of Q) the keys after position ``i + K - Q``.
        bias: added to the scaled scores, broadcastable to (B, H, Q, K), such as ALiBi's.
        scale: default ``1 / sqrt(head size)``.
        dropout: probability of dropping a weight. The caller passes 0 outside of training.
        backend: ``"fused"`` (``scaled_dot_product_attention``, keeps no weights) or ``"explicit"`` (returns them).

    Raises:
        ValueError: for lengths, head counts or mask shapes that do not fit together.
    """
    check_shapes(query_BHQE, key_BGKE, value_BGKU, mask)
    query_length, key_length = query_BHQE.shape[2], key_BGKE.shape[2]
    if causal and query_length == 1:
        causal = False  # the last query sees every key
    device = query_BHQE.device.type
    low_precision = query_BHQE.dtype in (torch.float16, torch.bfloat16) or torch.is_autocast_enabled(device)
    if backend == "explicit" or (bias is not None and low_precision):
        # A bias of hundreds of positions does not survive 16-bit rounding: the explicit path adds it in float32.
        if causal:
            mask = _both(mask, causal_mask(query_length, key_length, query_BHQE.device))
        output, weights = _explicit(query_BHQE, key_BGKE, value_BGKU, mask, bias, scale, dropout)
        return Attended(output, weights if backend == "explicit" else None)
    if causal and (query_length != key_length or mask is not None or bias is not None):
        # torch's own is_causal is top-left aligned and does not combine with a mask.
        mask, causal = _both(mask, causal_mask(query_length, key_length, query_BHQE.device)), False
    return Attended(_fused(query_BHQE, key_BGKE, value_BGKU, mask, causal, bias, scale, dropout), None)


def check_shapes(query_BHQE: Tensor, key_BGKE: Tensor, value_BGKU: Tensor, mask: Tensor | None) -> None:
    """Refuse shapes that do not fit, naming both sides of the disagreement."""
    batch, heads, query_length, head_size = query_BHQE.shape
    key_heads, key_length = key_BGKE.shape[1:3]
    if value_BGKU.shape[2] != key_length:
        raise ValueError(
            f"keys and values must have the same length, but there are {key_length} keys and "
            f"{value_BGKU.shape[2]} values."
        )
    if key_BGKE.shape[3] != head_size:
        raise ValueError(f"queries have head size {head_size}, but keys have {key_BGKE.shape[3]}.")
    if value_BGKU.shape[1] != key_heads or heads % key_heads != 0:
        raise ValueError(
            f"the number of key and value heads must be equal and divide the query heads ({heads}), but they are "
            f"{key_heads} and {value_BGKU.shape[1]}."
        )
    if mask is None:
        return
    if mask.dtype != torch.bool:
        raise ValueError(f"`mask` must be bool (True = may attend), but is {mask.dtype}.")
    rows_fit = mask.dim() == 4 and mask.shape[0] in (1, batch) and mask.shape[2] in (1, query_length)
    if not (rows_fit and mask.shape[1] == 1 and mask.shape[3] == key_length):
        raise ValueError(
            f"`mask` must have shape ({batch}, 1, 1, {key_length}) or ({batch}, 1, {query_length}, {key_length}) "
            f"[batch, 1, 1 or queries, keys], but has {tuple(mask.shape)}."
        )


def _both(mask: Tensor | None, other: Tensor) -> Tensor:
    return other if mask is None else mask & other


def _explicit(
    query_BHQE: Tensor,
    key_BGKE: Tensor,
    value_BGKU: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    scale: float | None,
    dropout: float,
) -> tuple[Tensor, Tensor]:
    key_BHKE, value_BHKU = _share_heads(query_BHQE, key_BGKE, value_BGKU)
    scale = 1.0 / math.sqrt(query_BHQE.shape[-1]) if scale is None else scale
    precision = torch.promote_types(query_BHQE.dtype, torch.float32)  # float64 stays float64
    scores_BHQK = (query_BHQE * scale @ key_BHKE.transpose(-2, -1)).to(precision)
    if bias is not None:
        scores_BHQK = scores_BHQK + bias.to(precision)
    if mask is not None:
        # A finite fill keeps a fully masked row finite (it becomes uniform); the second fill makes every forbidden
        # weight exactly zero, and with it the gradient through it.
        scores_BHQK = scores_BHQK.masked_fill(~mask, torch.finfo(precision).min)
    weights_BHQK = scores_BHQK.softmax(-1)
    if mask is not None:
        weights_BHQK = weights_BHQK.masked_fill(~mask, 0.0)
    dropped_BHQK = F.dropout(weights_BHQK, dropout) if dropout > 0 else weights_BHQK
    return dropped_BHQK.to(value_BHKU.dtype) @ value_BHKU, weights_BHQK


def _fused(
    query_BHQE: Tensor,
    key_BGKE: Tensor,
    value_BGKU: Tensor,
    mask: Tensor | None,
    causal: bool,
    bias: Tensor | None,
    scale: float | None,
    dropout: float,
) -> Tensor:
    key_BHKE, value_BHKU = _share_heads(query_BHQE, key_BGKE, value_BGKU)
    visible = None
    if mask is not None:
        # Kernels differ on rows without any key (zero, NaN or a mean over padding): let such a row see everything and
        # zero its output, which also zeroes its gradient.
        visible = mask.any(-1, keepdim=True)
        if _no_row_is_empty(visible):
            visible = None
        else:
            mask = mask | ~visible
    if bias is not None:
        bias = bias.to(query_BHQE.dtype)
        mask = bias if mask is None else bias.masked_fill(~mask, -math.inf)
    if mask is not None and query_BHQE.is_cuda:
        # cuDNN's kernel gives NaN gradients with explicit masks (pytorch#196678).
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            output_BHQU = F.scaled_dot_product_attention(
                query_BHQE, key_BHKE, value_BHKU, attn_mask=mask, dropout_p=dropout, scale=scale
            )
    else:
        output_BHQU = F.scaled_dot_product_attention(
            query_BHQE, key_BHKE, value_BHKU, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale
        )
    return output_BHQU if visible is None else output_BHQU.masked_fill(~visible, 0.0)


def _no_row_is_empty(visible: Tensor) -> bool:
    """Whether every row is known to see a key. Only looked at on the CPU: the answer of a GPU would have to wait."""
    return visible.device.type == "cpu" and not torch.compiler.is_compiling() and bool(visible.all())


def _share_heads(query_BHQE: Tensor, key_BGKE: Tensor, value_BGKU: Tensor) -> tuple[Tensor, Tensor]:
    """Repeat key and value heads for the query heads that share them.

    torch's ``enable_gqa`` silently falls back to a slow kernel in several settings; repeating is always right.
    """
    groups = query_BHQE.shape[1] // key_BGKE.shape[1]
    if groups == 1:
        return key_BGKE, value_BGKU
    return key_BGKE.repeat_interleave(groups, dim=1), value_BGKU.repeat_interleave(groups, dim=1)
