"""Does the model run at all, always the same, with dropout where it belongs?"""

from torch import Tensor, nn

from transformer.audit.outcome import Measurement, NotApplicable, Violation
from transformer.audit.subject import SEED, Subject, larger, largest

# Numbers of rows, target and source lengths: more, fewer and as many keys as queries in cross-attention.
SHAPES = ((1, 2, 3), (2, 3, 2), (3, 4, 4))


def runs(subject: Subject) -> Measurement:
    """Logits of the right shape, all finite, for several numbers of rows and lengths of both sides."""
    wrong = 0
    for rows, target_length, source_length in SHAPES:
        inputs = subject.inputs(rows, target_length, source_length)
        logits = subject.logits(inputs)
        if not isinstance(logits, Tensor):  # of a foreign module's call, whatever the types promise
            kind = type(logits).__name__  # type: ignore[unreachable]
            raise Violation(
                f"the call must give the logits as a tensor, but gives a {kind}; take them out of it in `call`"
            )
        expected = (rows, target_length, subject.given.vocab_size)
        if tuple(logits.shape) != expected:
            raise Violation(f"the logits must have shape {expected}, but have {tuple(logits.shape)}")
        wrong += int((~logits.isfinite()).sum())
    return Measurement(wrong, 0, "logits that are not finite, over three shapes of the input")


def deterministic(subject: Subject) -> Measurement:
    """The same input, weights and random numbers give the same logits, bit by bit, in both modes."""
    worst = 0.0
    for training in (False, True):
        worst = larger(worst, _difference(subject, training, SEED))
    return Measurement(worst, 0.0, "difference between two calls with the same input and the same random numbers")


def dropout_off(subject: Subject) -> Measurement:
    """In evaluation mode the logits do not depend on random numbers."""
    return Measurement(_difference(subject, False, SEED + 1), 0.0, "difference between two calls in evaluation mode")


def dropout_on(subject: Subject) -> Measurement:
    """In training mode they do."""
    expected = subject.given.has_dropout
    if expected is None:
        modules = subject.given.module.modules()
        expected = any(each.p > 0 for each in modules if isinstance(each, nn.modules.dropout._DropoutNd))
    if not expected:
        raise NotApplicable("the model has no dropout")
    text = "difference between two calls in training mode with different random numbers"
    return Measurement(_difference(subject, True, SEED + 1), 0.0, text, at_least=True)


def _difference(subject: Subject, training: bool, seed: int) -> float:
    """Between two calls with the same input, in the module's own precision and a given mode."""
    inputs, model = subject.inputs(), subject.plain
    model.module.train(training)
    return largest(subject.logits(inputs, model) - subject.logits(inputs, model, seed=seed))
