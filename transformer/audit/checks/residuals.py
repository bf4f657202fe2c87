"""The residual stream goes through every sublayer as it is, and starts at a reasonable size."""

import math

import torch
from torch import Tensor

from transformer.audit.model import AuditedModel, ResidualBlock
from transformer.audit.outcome import Measurement, NotApplicable, Violation
from transformer.audit.subject import Subject, larger, largest

LARGEST_GROWTH = 10.0  # of the root mean square, from the input of a block to its output


def residual_kept(subject: Subject) -> Measurement:
    """Put each sublayer's output projection to zero in turn: what comes out of its block is what went in.

    With Pre-Norm that is ``y = x``; with Post-Norm, the norm of x. A residual that is taken after the norm gives LN(x).
    """
    model = subject.copy(subject.exact_dtype)
    blocks, worst, where = _blocks(model), 0.0, ""
    in_turn = subject.sampling.blocks_in_turn
    for group in [[block] for block in blocks] if in_turn else [blocks]:
        outputs = [parameter for block in group for parameter in block.outputs]
        kept = [parameter.detach().clone() for parameter in outputs]
        with torch.no_grad():
            for parameter in outputs:
                parameter.zero_()
            for block, (before, after) in zip(group, _streams(subject, model, group), strict=True):
                expected = before if block.untouched is None else block.untouched(before)
                difference = largest(after - expected) / max(largest(expected), 1e-30)
                if not difference <= worst and not math.isnan(worst):
                    worst, where = difference, f" (`{block.name}`)"
            for parameter, value in zip(outputs, kept, strict=True):
                parameter.copy_(value)
    scale = max(largest(subject.logits(subject.inputs())), 1e-30)
    how = "in turn" if in_turn else "at once"
    text = f"largest share by which a block without its sublayers changes what goes in, {len(blocks)} {how}{where}"
    return Measurement(worst, subject.tolerance / scale, text)


def initial_scale(subject: Subject) -> Measurement:
    """With initial weights, no block makes the residual stream much larger or smaller."""
    if not subject.given.fresh:
        raise NotApplicable("the weights are not initial ones")
    model = subject.copy(wake=False)
    blocks, worst, where = _blocks(model), 1.0, ""
    for block, (before, after) in zip(blocks, _streams(subject, model, blocks), strict=True):
        growth = _root_mean_square(after) / max(_root_mean_square(before), 1e-30)
        factor = larger(growth, 1 / growth if growth > 0 else math.inf)
        if not factor <= worst and not math.isnan(worst):
            worst, where = factor, f" (`{block.name}`)"
    text = f"largest factor by which one of {len(blocks)} blocks changes the root mean square of the stream{where}"
    return Measurement(worst, LARGEST_GROWTH, text)


def _root_mean_square(tensor: Tensor) -> float:
    return float(tensor.double().square().mean().sqrt())


def _blocks(model: AuditedModel) -> list[ResidualBlock]:
    if model.residuals is None:
        raise NotApplicable("the adapter does not name the blocks around sublayers (`residuals`)")
    return list(model.residuals(model.module))


def _streams(subject: Subject, model: AuditedModel, blocks: list[ResidualBlock]) -> list[tuple[Tensor, Tensor]]:
    """What goes into each block, and what comes out."""
    found: dict[int, tuple[Tensor, Tensor]] = {}
    handles = []
    for number, block in enumerate(blocks):

        def keep(_module: object, arguments: tuple[Tensor, ...], output: object, number: int = number) -> None:
            after = output if isinstance(output, Tensor) else output[0]  # type: ignore[index]
            found[number] = arguments[0].detach().clone(), after.detach().clone()

        handles.append(block.module.register_forward_hook(keep))
    try:
        subject.seed()
        with torch.no_grad():
            model.logits(subject.inputs())
    finally:
        for handle in handles:
            handle.remove()
    missing = [block.name for number, block in enumerate(blocks) if number not in found]
    if missing:
        raise Violation(f"the block `{missing[0]}` is not called")
    return [found[number] for number in range(len(blocks))]
