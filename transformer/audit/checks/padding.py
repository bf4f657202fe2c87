"""Padding changes nothing, on either side of either sequence, whatever its ids are."""

import torch

from transformer.audit.model import Side
from transformer.audit.outcome import Measurement, NotApplicable
from transformer.audit.subject import Subject, larger, largest, padded


def source_padding(subject: Subject, side: Side) -> Measurement:
    """Pad the source on one side: no output moves."""
    inputs = subject.inputs()
    if inputs.source_BS is None or inputs.source_mask_BS is None or subject.given.source_size is None:
        raise NotApplicable("the model has no encoder")
    if side not in subject.given.source_sides:
        raise NotApplicable(f"the adapter says that sources are not padded on the {side}")
    before, worst = subject.logits(inputs), 0.0
    for filler in (subject.given.pad_id, _other(subject.given.pad_id)):
        for count in range(1, subject.sampling.padding + 1):
            source_BS, mask_BS = padded(inputs.source_BS, inputs.source_mask_BS, count, side, filler)
            after = subject.logits(inputs._replace(source_BS=source_BS, source_mask_BS=mask_BS))
            worst = larger(worst, largest(after - before))
    return Measurement(worst, subject.tolerance, f"largest change of an output when the source is padded on the {side}")


def target_padding(subject: Subject, side: Side) -> Measurement:
    """Pad the target on one side: no output of a real token moves.

    On the right, padding is hidden by causality alone, as in training, and must be with a mask, too.
    """
    if side not in subject.given.target_sides:
        raise NotApplicable(f"the adapter says that targets are not padded on the {side}")
    inputs, worst = subject.inputs(), 0.0
    before, length = subject.logits(inputs), inputs.target_BT.shape[1]
    masks = (True, False) if side == "right" and "left" in subject.given.target_sides else (side == "left",)
    for filler in (subject.given.pad_id, _other(subject.given.pad_id)):
        for count in range(1, subject.sampling.padding + 1):
            target_BT, mask_BT = padded(inputs.target_BT, inputs.target_mask_BT, count, side, filler)
            for masked in masks:
                mask_BT = mask_BT if masked else torch.ones_like(mask_BT)
                after = subject.logits(inputs._replace(target_BT=target_BT, target_mask_BT=mask_BT))
                real = slice(length) if side == "right" else slice(count, None)
                worst = larger(worst, largest(after[:, real] - before))
    text = f"largest change of a real token's output when the target is padded on the {side}"
    return Measurement(worst, subject.tolerance, text)


def _other(pad_id: int) -> int:
    """An id that padding usually does not have: the masks decide what is padding."""
    return 1 if pad_id == 0 else 0
