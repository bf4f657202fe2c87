"""An encoder-decoder reads its source, and the source is read without the target."""

import torch
from torch import Tensor

from transformer.audit.checks.causality import changed_target
from transformer.audit.model import Inputs, SequenceToSequence
from transformer.audit.outcome import Measurement, NotApplicable
from transformer.audit.sampling import spread
from transformer.audit.subject import Subject, larger, largest, other_ids, smaller


def source_seen(subject: Subject) -> Measurement:
    """Change one source token at a time: outputs move."""
    inputs, size = subject.inputs(), subject.given.source_size
    if inputs.source_BS is None or size is None:
        raise NotApplicable("the model has no encoder")
    before, least = subject.logits(inputs), float("inf")
    for position in spread(subject.sampling.positions, 0, inputs.source_BS.shape[1] - 1):
        source_BS = inputs.source_BS.clone()
        source_BS[:, position] = other_ids(source_BS[:, position], size, subject.given.pad_id)
        least = smaller(least, largest(subject.logits(inputs._replace(source_BS=source_BS)) - before))
    text = "smallest change of the outputs when one source token changes"
    return Measurement(least, subject.tolerance, text, at_least=True)


def memory_of_source_alone(subject: Subject) -> Measurement:
    """What the decoder sees of the source does not depend on the target: nothing leaks through the encoder."""
    if not isinstance(subject.exact, SequenceToSequence):
        raise NotApplicable("the model has no encoder")
    if subject.exact.memory is None:
        raise NotApplicable("the adapter does not say what the decoder sees of the source (`memory`)")
    inputs = subject.inputs()
    before, worst = _memory(subject, subject.exact, inputs), 0.0
    for position in spread(subject.sampling.positions, 0, inputs.target_BT.shape[1] - 1):
        after = _memory(subject, subject.exact, changed_target(subject.given, inputs, slice(position, position + 1)))
        worst = larger(worst, largest(after - before))
    bound = subject.tolerance * max(1.0, largest(before) / max(largest(subject.logits(inputs)), 1e-30))
    return Measurement(worst, bound, "largest change of the encoder's output when a target token changes")


def _memory(subject: Subject, model: SequenceToSequence, inputs: Inputs) -> Tensor:
    assert model.memory is not None
    kept: list[Tensor] = []

    def keep(_module: object, _arguments: object, output: Tensor | tuple[Tensor, ...]) -> None:
        kept.append(output if isinstance(output, Tensor) else output[0])

    handle = model.memory(model.module).register_forward_hook(keep)
    try:
        subject.logits(inputs)
    finally:
        handle.remove()
    if not kept:
        raise NotApplicable("the module that `memory` names is not called")
    return torch.cat([memory.flatten() for memory in kept])
