"""What a batch is trained for, and scored by: cross-entropy, in training with label smoothing and R-Drop."""

from typing import TypeVar

import torch
from torch import Tensor

from transformer.data.batches.collate import TextBatch, TranslationBatch
from transformer.nn.loss import LossSum, cross_entropy
from transformer.nn.r_drop import r_drop_cross_entropy
from transformer.training.config import TrainConfig

BatchT = TypeVar("BatchT", TranslationBatch, TextBatch)


def passes(batch: BatchT, config: TrainConfig, *, training: bool) -> BatchT:
    """What the model reads: the batch, or for R-Drop the batch twice, so that each copy gets dropout of its own."""
    if not _twice(config, training):
        return batch
    # The class is exactly one of two, each a tuple of tensors.
    return type(batch)(*(None if tensor is None else torch.cat([tensor, tensor]) for tensor in batch))  # type: ignore[arg-type]


def token_loss(
    hidden_BLD: Tensor, weight_VD: Tensor, labels_BL: Tensor, scored_BL: Tensor, config: TrainConfig, *, training: bool
) -> LossSum:
    """Loss of what the model made of :func:`passes`.

    Args:
        hidden_BLD: final hidden states, for R-Drop of twice as many rows.
        weight_VD: the output projection.
        labels_BL, scored_BL: of the batch itself.
        config: the run's settings.
        training: whether dropout is on; without, the plain loss of one pass.
    """
    smoothing = config.label_smoothing if training else 0.0
    if not _twice(config, training):
        return cross_entropy(hidden_BLD, weight_VD, labels_BL, scored_BL, label_smoothing=smoothing)
    return r_drop_cross_entropy(
        hidden_BLD.view(2, -1, *hidden_BLD.shape[1:]),
        weight_VD,
        labels_BL,
        scored_BL,
        alpha=config.r_drop,
        label_smoothing=smoothing,
    )


def _twice(config: TrainConfig, training: bool) -> bool:
    return training and config.r_drop > 0
