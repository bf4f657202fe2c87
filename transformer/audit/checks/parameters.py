"""Parameters: all used, tied where they should be, and all there is to save."""

import dataclasses
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import load_model, save_model

from transformer.audit.outcome import Measurement, NotApplicable, Violation
from transformer.audit.subject import Subject, largest


def all_used(subject: Subject) -> Measurement:
    """The gradient of the outputs, and of the loss if there is one, reaches every parameter that is trained."""
    model = subject.copy(subject.exact_dtype)
    inputs, trained = subject.inputs(), dict[str, torch.nn.Parameter]()
    for name, parameter in model.module.named_parameters():
        if parameter.requires_grad:
            trained[name] = parameter
            if parameter.dim() < 2:  # such as gains of one, which can make a gradient vanish
                noise = torch.randn(parameter.shape, generator=subject.generator(7))
                with torch.no_grad():
                    parameter.add_(0.02 * noise.to(parameter))
    if not trained:
        raise NotApplicable("no parameter is trained")
    subject.seed()
    logits = model.logits(inputs)
    total = (logits * torch.randn(logits.shape, generator=subject.generator(8)).to(logits)).sum()
    scored_BT = torch.ones_like(inputs.target_mask_BT)
    scored_BT[:, 0] = False
    loss = model.loss(inputs, scored_BT)
    (total if loss is None else total + loss).backward()  # type: ignore[no-untyped-call]
    unreached = [name for name, p in trained.items() if p.grad is None or not bool(p.grad.any())]
    if unreached:
        more = f" and {len(unreached) - 1} more" if len(unreached) > 1 else ""
        raise Violation(f"no gradient reaches `{unreached[0]}`{more}")
    return Measurement(0, 0, f"parameters that no gradient reaches, of {len(trained)}")


def tied_shared(subject: Subject) -> Measurement:
    """Tied weights are one parameter; none is a copy of another."""
    groups = subject.given.tied
    named = dict(subject.given.module.named_parameters(remove_duplicate=False))
    for group in groups:
        for name in group[1:]:
            if named[name] is not named[group[0]]:
                raise Violation(f"`{name}` must be the same parameter as `{group[0]}`, but is another one")
    # Fixed ones, such as a table of positions, do not drift apart.
    distinct = [each for each in subject.given.module.named_parameters() if each[1].requires_grad]
    for place, (name, first) in enumerate(distinct):
        if first.dim() < 2 or bool((first == first.flatten()[0]).all()):
            continue  # constants, as of norms and biases, are equal without being tied
        for other, second in distinct[place + 1 :]:
            if _counterparts(name, other):
                continue  # layers that are made as copies of one, as torch's own are, begin equal
            if first.shape == second.shape and torch.equal(first[0], second[0]) and torch.equal(first, second):
                raise Violation(f"`{other}` equals `{name}`, but is a copy: the two will drift apart in training")
    if not groups:
        raise NotApplicable("no weights are said to be tied (`tied`), and none is a copy of another")
    return Measurement(0, 0, "tied weights that are copies")


def _counterparts(name: str, other: str) -> bool:
    """Whether the names differ in numbers alone, as those of the same parameter in two layers do."""
    return re.sub(r"\d+", "0", name) == re.sub(r"\d+", "0", other)


def save_and_load(subject: Subject) -> Measurement:
    """Weights saved as safetensors, loaded into the module made anew: the same outputs, bit by bit."""
    if subject.given.build is None:
        raise NotApplicable("the adapter does not say how to make the module anew (`build`)")
    saved, inputs = subject.copy(wake=False), subject.inputs()
    dtype = next((p.dtype for p in saved.module.parameters() if p.dtype.is_floating_point), torch.float32)
    module = subject.given.build().to(subject.device, dtype).eval()
    with TemporaryDirectory() as folder:
        file = str(Path(folder) / "model.safetensors")
        save_model(saved.module, file)
        try:
            load_model(module, file)
        except RuntimeError as error:
            raise Violation(f"the weights do not fit the module made anew: {' '.join(str(error).split())}") from error
    loaded = dataclasses.replace(saved, module=module)
    difference = subject.logits(inputs, loaded) - subject.logits(inputs, saved)
    return Measurement(largest(difference), 0.0, "largest difference of the outputs after saving and loading")
