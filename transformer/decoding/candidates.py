"""The most probable next tokens of each row, without sorting the vocabulary."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

BLOCK = 64  # columns whose maximum is looked at first
CACHED_NUMBERS = 1 << 17  # of 4 bytes each: half a megabyte


class NextTokens(NamedTuple):
    """On the host: the best next tokens of M rows, best first.

    Attributes:
        tokens_MK: ids.
        gains_MK: log probabilities that the search ranks by; minus infinity for what is forbidden.
        log_probabilities_MK: the model's own.
    """

    tokens_MK: np.ndarray
    gains_MK: np.ndarray
    log_probabilities_MK: np.ndarray


def best_columns(values_MV: Tensor, count: int) -> Tensor:
    """Columns (M, count) of the greatest values of each row, greatest first.

    The greatest ``count`` values lie in the ``count`` blocks of columns with the greatest maxima, so most of a large
    vocabulary is looked at once only.
    """
    num_columns = values_MV.shape[1]
    num_blocks = num_columns // BLOCK
    if num_blocks <= 2 * count:
        return values_MV.topk(count).indices
    whole_MPB = values_MV[:, : num_blocks * BLOCK].view(-1, num_blocks, BLOCK)
    blocks_MK = whole_MPB.amax(-1).topk(count).indices
    columns_MX = (blocks_MK[:, :, None] * BLOCK + torch.arange(BLOCK, device=values_MV.device)).flatten(1)
    rest = torch.arange(num_blocks * BLOCK, num_columns, device=values_MV.device)
    columns_MX = torch.cat([columns_MX, rest.expand(len(values_MV), -1)], dim=1)
    return columns_MX.gather(1, values_MV.gather(1, columns_MX).topk(count).indices)


def log_normalizers(logits_MV: Tensor) -> Tensor:
    """What to subtract from the logits of each row for log probabilities, float32 or better (M)."""
    # On the CPU a few rows at a time, so that what exp() writes stays in the processor's cache.
    rows = CACHED_NUMBERS // max(1, logits_MV.shape[1]) if logits_MV.device.type == "cpu" else len(logits_MV)
    return torch.cat([_log_sum_exp(part_RV) for part_RV in torch.split(logits_MV, max(1, rows))])


def _log_sum_exp(logits_RV: Tensor) -> Tensor:
    logits_RV = logits_RV.to(torch.promote_types(logits_RV.dtype, torch.float32))
    sum_R = logits_RV.exp().sum(-1)
    # Logits of usual size need no shift by their maximum, which would be two more passes over them.
    usual_R = (sum_R > 1e-20) & (sum_R < 1e20)
    if bool(usual_R.all()):
        return sum_R.log_()
    return torch.where(usual_R, sum_R.log(), logits_RV.logsumexp(-1))


def check_numbers(normalizers_M: np.ndarray) -> None:
    """Refuse the output of a broken model instead of searching in it."""
    if not np.isfinite(normalizers_M).all():
        raise ValueError("the model's logits must be finite numbers, but some are not: its weights are broken.")
