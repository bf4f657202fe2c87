"""An example's output does not depend on the batch that it is in."""

import torch
from torch import Tensor

from transformer.audit.model import Inputs
from transformer.audit.outcome import Measurement
from transformer.audit.subject import Subject, larger, largest, other_ids


def alone(subject: Subject) -> Measurement:
    """Each row alone, as a batch of one."""
    inputs = subject.inputs()
    together, worst = subject.logits(inputs), 0.0
    for row in range(len(together)):
        worst = larger(worst, largest(subject.logits(_rows(inputs, torch.tensor([row]))) - together[row : row + 1]))
    return Measurement(worst, subject.tolerance, "largest difference between a row alone and in its batch")


def order(subject: Subject) -> Measurement:
    """The same rows in another order."""
    inputs = subject.inputs()
    together, worst = subject.logits(inputs), 0.0
    rows = torch.arange(len(together))
    for permuted in (rows.flip(0), rows.roll(1)):
        after = subject.logits(_rows(inputs, permuted))
        worst = larger(worst, largest(after - together[permuted.to(together.device)]))
    return Measurement(worst, subject.tolerance, "largest difference when the rows of a batch change places")


def neighbours(subject: Subject) -> Measurement:
    """Change all rows but one: its output stays."""
    inputs, model = subject.inputs(), subject.given
    together, worst = subject.logits(inputs), 0.0
    for row in range(len(together)):
        others = torch.arange(len(together), device=subject.device) != row
        target_BT = inputs.target_BT.clone()
        target_BT[others] = other_ids(target_BT[others], model.vocab_size, model.pad_id)
        source_BS = inputs.source_BS
        if source_BS is not None and model.source_size is not None:
            source_BS = source_BS.clone()
            source_BS[others] = other_ids(source_BS[others], model.source_size, model.pad_id)
        after = subject.logits(inputs._replace(target_BT=target_BT, source_BS=source_BS))
        worst = larger(worst, largest(after[row] - together[row]))
    return Measurement(worst, subject.tolerance, "largest change of a row's outputs when all other rows change")


def _rows(inputs: Inputs, rows_M: Tensor) -> Inputs:
    return Inputs(*(None if tensor is None else tensor[rows_M.to(tensor.device)] for tensor in inputs))  # type: ignore[arg-type]
