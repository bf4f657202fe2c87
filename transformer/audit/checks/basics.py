"""Does the model run at all, always the same, with gradients, and with dropout where it belongs?"""

from collections.abc import Iterator

from torch import Tensor, nn

from transformer.audit.outcome import Measurement, NotApplicable, Violation, one_line
from transformer.audit.subject import SEED, Subject, larger, largest

# Numbers of rows, target and source lengths: more, fewer and as many keys as queries in cross-attention.
SHAPES = ((1, 2, 3), (2, 3, 2), (3, 4, 4))
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


def runs(subject: Subject) -> Measurement:
    """Logits of the right shape, all finite, for several numbers of rows and lengths of both sides."""
    wrong, shapes = 0, list(SHAPES)
    longest = subject.sampling.long_length
    if longest is not None:
        shapes.append((1, longest, longest))
    for rows, target_length, source_length in shapes:
        inputs = subject.inputs(rows, target_length, source_length)
        try:
            logits = subject.logits(inputs)
        except Exception as error:  # whatever a foreign module raises
            if target_length != longest:
                raise
            raise Violation(
                f"an input of {longest:,} tokens, which `max_length` allows, raised {one_line(error)}"
            ) from error
        if not isinstance(logits, Tensor):  # of a foreign module's call, whatever the types promise
            kind = type(logits).__name__  # type: ignore[unreachable]
            raise Violation(
                f"the call must give the logits as a tensor, but gives a {kind}; take them out of it in `call`"
            )
        expected = (rows, target_length, subject.given.vocab_size)
        if tuple(logits.shape) != expected:
            raise Violation(f"the logits must have shape {expected}, but have {tuple(logits.shape)}")
        wrong += int((~logits.isfinite()).sum())
    return Measurement(wrong, 0, f"logits that are not finite, over {len(shapes)} shapes of the input")


def deterministic(subject: Subject) -> Measurement:
    """The same input, weights and random numbers give the same logits, bit by bit, in both modes."""
    worst = 0.0
    for training in (False, True):
        worst = larger(worst, _difference(subject, training, SEED))
    return Measurement(worst, 0.0, "difference between two calls with the same input and the same random numbers")


def gradients_flow(subject: Subject) -> Measurement:
    """The logits are differentiable, if any parameter is to be trained."""
    if not any(parameter.requires_grad for parameter in subject.exact.module.parameters()):
        raise NotApplicable("no parameter is trained")
    subject.seed()
    if not subject.exact.logits(subject.inputs()).requires_grad:
        raise Violation("the logits carry no gradient: the call detaches them, or computes them under `torch.no_grad`")
    return Measurement(0, 0, "logits without a gradient")


def dropout_off(subject: Subject) -> Measurement:
    """In evaluation mode the logits do not depend on random numbers."""
    return Measurement(_difference(subject, False, SEED + 1), 0.0, "difference between two calls in evaluation mode")


def dropout_on(subject: Subject) -> Measurement:
    """In training mode they do."""
    expected = subject.given.has_dropout
    if expected is None:
        expected = any(share > 0 for share in _dropouts(subject.given.module))
        if not expected:
            raise NotApplicable("no module with dropout was found; if there is dropout, say so (`has_dropout`)")
    if not expected:
        raise NotApplicable("the model has no dropout")
    text = "difference between two calls in training mode with different random numbers"
    return Measurement(_difference(subject, True, SEED + 1), 0.0, text, at_least=True)


def _dropouts(module: nn.Module) -> Iterator[float]:
    """The dropout of torch's own modules. That of a function called in a forward cannot be seen."""
    for each in module.modules():
        if isinstance(each, DROPOUTS):
            yield each.p
        elif isinstance(each, nn.MultiheadAttention):
            yield each.dropout


def _difference(subject: Subject, training: bool, seed: int) -> float:
    """Between two calls with the same input, in the module's own precision and a given mode."""
    inputs, model = subject.inputs(), subject.plain
    model.module.train(training)
    return largest(subject.logits(inputs, model) - subject.logits(inputs, model, seed=seed))
