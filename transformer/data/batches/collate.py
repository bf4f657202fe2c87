"""From token ids to batches: shifting and padding. Which examples share a batch is the business of ``buckets.py``."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from transformer.data.preparation.arrow import TokenIds


class TranslationBatch(NamedTuple):
    """Padded source and target of B examples. Padding is on the right and decided by the masks, not by ids.

    Attributes:
        index_B: place of each example in its split.
        source_BS, source_mask_BS: source ids ending with the end token; True for real tokens.
        target_BT: decoder input, the target shifted right, beginning with the start token.
        labels_BT, scored_BT: the target ending with the end token; True where it counts.
        source_segments_BS, target_segments_BT: None, or for packed rows the number of the example in its row, from 1
            upwards, and 0 for padding; ``index_B`` then has an entry for each example, row by row.
    """

    index_B: Tensor
    source_BS: Tensor
    source_mask_BS: Tensor
    target_BT: Tensor
    labels_BT: Tensor
    scored_BT: Tensor
    source_segments_BS: Tensor | None = None
    target_segments_BT: Tensor | None = None


class TextBatch(NamedTuple):
    """B windows of text.

    Attributes:
        index_B: position of each window's first token in its stream.
        tokens_BL, labels_BL, scored_BL: input ids, the id after each, and True where it counts.
        segments_BL: None, or for packed rows the number of the document in its row, from 1 upwards, and 0 for padding;
            ``index_B`` then has an entry for each document, row by row.
    """

    index_B: Tensor
    tokens_BL: Tensor
    labels_BL: Tensor
    scored_BL: Tensor
    segments_BL: Tensor | None = None


def shift_targets(ids: Sequence[int], bos_id: int, eos_id: int) -> tuple[list[int], list[int]]:
    """Decoder input and labels of one target: ``a b`` gives ``BOS a b`` and ``a b EOS``."""
    return [bos_id, *ids], [*ids, eos_id]


def pad(
    rows: Sequence[TokenIds], pad_id: int, *, first: int | None = None, last: int | None = None
) -> tuple[Tensor, Tensor]:
    """Rows of ids to (rows, longest) padded on the right, and the mask of real ones.

    Args:
        rows: ids, in lists or arrays.
        pad_id: fills up.
        first, last: put before and after every row, if given.
    """
    before, after = int(first is not None), int(last is not None)
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)) + before + after
    width = int(lengths.max(initial=0))
    ids = np.full((len(rows), width), pad_id, dtype=np.int64)
    real = np.arange(width)[None, :] < lengths[:, None]
    for place, row in enumerate(rows):
        ids[place, before : before + len(row)] = row
    if first is not None:
        ids[:, 0] = first
    if last is not None:
        ids[np.arange(len(rows)), lengths - 1] = last
    return torch.from_numpy(ids), torch.from_numpy(real)


def collate_translation(
    examples: Sequence[tuple[int, TokenIds, TokenIds]], *, pad_id: int, bos_id: int, eos_id: int
) -> TranslationBatch:
    """Batch (index, source ids, target ids), both without start and end tokens."""
    targets = [target for _, _, target in examples]
    source_BS, source_mask_BS = pad([source for _, source, _ in examples], pad_id, last=eos_id)
    target_BT, _ = pad(targets, pad_id, first=bos_id)
    labels_BT, scored_BT = pad(targets, pad_id, last=eos_id)
    index_B = torch.tensor([index for index, _, _ in examples])
    return TranslationBatch(index_B, source_BS, source_mask_BS, target_BT, labels_BT, scored_BT)


def collate_texts(examples: Sequence[tuple[int, TokenIds]], pad_id: int) -> TextBatch:
    """Batch (index, ids): each id but the first is the label of the one before it."""
    tokens_BL, _ = pad([ids[:-1] for _, ids in examples], pad_id)
    labels_BL, scored_BL = pad([ids[1:] for _, ids in examples], pad_id)
    return TextBatch(torch.tensor([index for index, _ in examples]), tokens_BL, labels_BL, scored_BL)
