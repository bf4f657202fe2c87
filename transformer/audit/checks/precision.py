"""Nothing becomes infinite or undefined: rows without any visible key, and extreme inputs in every precision."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer.audit.model import AuditedModel, Inputs
from transformer.audit.outcome import Measurement, NotApplicable, Violation, one_line
from transformer.audit.subject import Subject

# By how much every matrix enlarges what goes through it: attention scores reach tens in float16, hundreds elsewhere.
# An exponential overflows at 11 in float16 and at 89 in the others.
GAIN = {torch.float16: 4.0, torch.bfloat16: 8.0, torch.float32: 8.0}
NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
# What torch says where the processor lacks an operation, or a module mixes precisions on purpose.
MISSING = ("not implemented for", "not supported")
MIXED = ("same dtype", "scalar type", "data type", "dtype mismatch")


def fully_masked_rows(subject: Subject) -> Measurement:
    """A row of nothing but padding, and left padding, whose queries see no key: logits and gradients stay finite."""
    given, inputs = subject.given, subject.inputs()
    masked = []
    if inputs.source_mask_BS is not None and given.source_sides:
        source_mask_BS = inputs.source_mask_BS.clone()
        source_mask_BS[0] = False
        inputs, masked = inputs._replace(source_mask_BS=source_mask_BS), ["a source"]
    if "left" in given.target_sides:
        target_mask_BT = inputs.target_mask_BT.clone()
        target_mask_BT[0], target_mask_BT[1, 0] = False, False
        inputs, masked = inputs._replace(target_mask_BT=target_mask_BT), [*masked, "a target"]
    if not masked:
        raise NotApplicable("the adapter gives no mask that could hide a whole row")
    broken = _not_finite(subject, subject.copy(subject.exact_dtype), inputs)
    text = f"logits and gradients that are not finite with {' and '.join(masked)} of nothing but padding"
    return Measurement(broken, 0, text)


def finite(subject: Subject, dtype: torch.dtype) -> Measurement:
    """Weights that make every projection large, equal tokens, padding: logits and gradients stay finite."""
    model = subject.copy(dtype)
    inputs = _extreme(subject)
    try:
        calm = _not_finite(subject, model, inputs)
        _enlarge(model.module, GAIN[dtype])
        broken = calm + _not_finite(subject, model, inputs)
    except RuntimeError as error:
        message = one_line(error)
        if any(part in message for part in MISSING):
            raise NotApplicable(f"this processor cannot: {message[:120]}") from error
        if any(part in message for part in MIXED):
            raise NotApplicable(f"the module does not take weights of this precision: {message[:120]}") from error
        raise Violation(f"the model raised {message}") from error
    text = f"logits and gradients that are not finite in {NAMES[dtype]}, attention scores up to tens or hundreds"
    return Measurement(broken, 0, text)


def _extreme(subject: Subject) -> Inputs:
    """A batch with a row of equal tokens and, where there may be padding, a row that is padded."""
    given, inputs = subject.given, subject.inputs(rows=3)
    target_BT = inputs.target_BT.clone()
    target_BT[1] = target_BT[1, 0]
    inputs = inputs._replace(target_BT=target_BT)
    if inputs.source_mask_BS is not None and given.source_sides:
        source_mask_BS = inputs.source_mask_BS.clone()
        source_mask_BS[2, 0 if given.source_sides[0] == "left" else -1] = False
        inputs = inputs._replace(source_mask_BS=source_mask_BS)
    if "left" in given.target_sides:
        target_mask_BT = inputs.target_mask_BT.clone()
        target_mask_BT[2, 0] = False
        inputs = inputs._replace(target_mask_BT=target_mask_BT)
    return inputs


def _enlarge(module: nn.Module, gain: float) -> None:
    """Scale every matrix so that independent inputs come out ``gain`` times as large, whatever its weights were."""
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.dim() >= 2 and parameter.dtype.is_floating_point:
                wide = parameter.float()
                size = float(wide.square().mean().sqrt()) * (parameter[0].numel() ** 0.5)
                if size > 0:
                    parameter.copy_(wide * (gain / size))


def _not_finite(subject: Subject, model: AuditedModel, inputs: Inputs) -> int:
    """How many logits and gradients of their cross-entropy are not finite."""
    subject.seed()
    model.module.zero_grad()
    logits = model.logits(inputs)
    labels = inputs.target_BT.roll(-1, 1)
    loss = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
    if loss.requires_grad:  # if not, no parameter is trained
        loss.backward()  # type: ignore[no-untyped-call]
    tensors: list[Tensor] = [logits, *(p.grad for p in model.module.parameters() if p.grad is not None)]
    return sum(int((~tensor.isfinite()).sum()) for tensor in tensors)
