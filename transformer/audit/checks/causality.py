"""No output may depend on a later token, and every token must count for something."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from transformer.audit.model import AuditedModel, Inputs
from transformer.audit.outcome import Measurement, NotApplicable
from transformer.audit.sampling import spread
from transformer.audit.subject import Subject, larger, largest, other_ids, smaller


def future_changed(subject: Subject) -> Measurement:
    """Change one target token at a time: no earlier output moves.

    In a long input, of which only some positions can be tried, all tokens from the position on change at once, so that
    whatever crosses one of these borders is seen.
    """
    sampling, worst, count = subject.sampling, 0.0, 0
    tried = [(subject.inputs(), sampling.positions, False)]
    if sampling.long_length is not None:
        tried.append((subject.inputs(rows=1, target_length=sampling.long_length), sampling.long_positions, True))
    for inputs, positions, onwards in tried:
        for position, difference in _changes(subject, inputs, positions + 1, onwards=onwards):
            if position > 0:
                worst, count = larger(worst, largest(difference[:, :position])), count + 1
    text = f"largest change of an output when later tokens change, {count} positions in turn"
    return Measurement(worst, subject.tolerance, text)


def past_seen(subject: Subject) -> Measurement:
    """Change one target token at a time: an output behind it moves, or its own if it is the last.

    Else causality would mean nothing: a model that sees each token alone passes every other check.
    """
    inputs, least = subject.inputs(), math.inf
    last = inputs.target_BT.shape[1] - 1
    for position, difference in _changes(subject, inputs, subject.sampling.positions + 1):
        least = smaller(least, largest(difference[:, min(position + 1, last) :]))
    text = "smallest change of the outputs behind a token that changes, or at the last one"
    return Measurement(least, subject.tolerance, text, at_least=True)


def future_gradient(subject: Subject) -> Measurement:
    """The gradient of output i for the embedding of token j is zero for all j > i."""
    inputs = subject.inputs(rows=2)
    length, worst, scale = inputs.target_BT.shape[1], 0.0, 0.0
    with _Embeddings(subject.exact.module, inputs.target_BT) as embeddings:
        logits = subject.exact.logits(inputs)
        if not embeddings.found:
            raise NotApplicable("no embedding module is called with the target's ids")
        weights = torch.randn(logits.shape, generator=subject.generator(4)).to(logits)
        for position in range(length):
            total = (logits[:, position] * weights[:, position]).sum()
            for gradient in torch.autograd.grad(total, embeddings.found, retain_graph=True, allow_unused=True):
                if gradient is not None:
                    scale = larger(scale, largest(gradient))
                    worst = larger(worst, largest(gradient[:, position + 1 :]))
    share = worst if scale == 0 else worst / scale
    largest_logit = max(largest(logits.detach()), torch.finfo(subject.exact_dtype).tiny)
    text = "largest gradient of an output for a later token, as a share of the largest gradient"
    return Measurement(share, subject.tolerance / largest_logit, text)


def _changes(subject: Subject, inputs: Inputs, count: int, *, onwards: bool = False) -> Iterator[tuple[int, Tensor]]:
    """Positions, and the difference (B, T, V) that another token there makes, or others from there on."""
    before = subject.logits(inputs)
    for position in spread(count, 0, inputs.target_BT.shape[1] - 1):
        end = None if onwards else position + 1
        yield position, subject.logits(changed_target(subject.given, inputs, slice(position, end))) - before


def changed_target(model: AuditedModel, inputs: Inputs, positions: slice) -> Inputs:
    """Other tokens at some positions of every row."""
    target_BT = inputs.target_BT.clone()
    target_BT[:, positions] = other_ids(target_BT[:, positions], model.vocab_size, model.pad_id)
    return inputs._replace(target_BT=target_BT)


class _Embeddings:
    """Within the context, what embedding modules give for certain ids is kept, as leaves of the gradient."""

    def __init__(self, module: nn.Module, ids_BT: Tensor) -> None:
        self.ids_BT, self.found = ids_BT, list[Tensor]()
        self._embeddings = [each for each in module.modules() if isinstance(each, nn.Embedding)]

    def __enter__(self) -> "_Embeddings":
        self._handles = [each.register_forward_hook(self._keep) for each in self._embeddings]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _keep(self, module: nn.Module, arguments: tuple[object, ...], output: Tensor) -> Tensor | None:
        ids = arguments[0] if arguments else None
        if not isinstance(ids, Tensor) or ids.shape != self.ids_BT.shape or not torch.equal(ids, self.ids_BT):
            return None
        self.found.append(output.detach().requires_grad_())
        return self.found[-1]
