"""The loss: of the next token, of real tokens alone, and near that of a guess at the beginning."""

import math

import torch
from torch import Tensor

from transformer.audit.model import Inputs
from transformer.audit.outcome import Measurement, NotApplicable, Violation
from transformer.audit.sampling import spread
from transformer.audit.subject import Subject, larger, largest, padded

INITIAL_MARGIN = 1.0  # nats above the logarithm of the vocabulary


def label_shift(subject: Subject) -> Measurement:
    """The loss of a token comes from the outputs before it: as the token changes, they do not.

    With only token t scored, and the label running through the vocabulary, the loss must be the output of position
    t - 1 for that label, times a negative number, plus a constant. (With label smoothing, too: it adds a constant.)
    Without the shift, each label changes the output that it is scored by; with two, the output is one too early.
    """
    inputs = subject.inputs(rows=1, target_length=4)
    pad_id, size, worst = subject.given.pad_id, subject.given.vocab_size, 0.0
    labels = [each for each in spread(subject.sampling.num_labels, 0, size - 1) if each != pad_id]
    for place in (2, 3):
        scored_BT = torch.zeros_like(inputs.target_mask_BT)
        scored_BT[:, place] = True
        # What the loss reads is cut behind the token, so that nothing later can count.
        ids_BT = inputs.target_BT[:, : place + 1]
        losses = []
        for label in labels:
            ids_BT = ids_BT.clone()
            ids_BT[:, place] = label
            losses.append(_loss(subject, inputs._replace(target_BT=ids_BT), scored_BT[:, : place + 1]))
        before = inputs._replace(target_BT=inputs.target_BT[:, :place], target_mask_BT=inputs.target_mask_BT[:, :place])
        outputs = -subject.logits(before)[0, -1, labels]
        worst = larger(worst, _not_in_line(torch.stack(losses).to(outputs), outputs))
    bound = 1e-4 if subject.exact_dtype == torch.float64 else 1e-2
    text = f"share of the loss of {len(labels)} labels that the output before them does not explain"
    return Measurement(worst, bound, text)


def padding_unscored(subject: Subject) -> Measurement:
    """The loss of padded rows is that of the same rows without padding: their sum, or their mean over scored tokens."""
    length = subject.sampling.target_length
    inputs = subject.inputs(target_length=length)
    rows, pad_id = len(inputs.target_BT), subject.given.pad_id
    lengths = [max(2, length - row) for row in range(rows)]
    target_BT = inputs.target_BT.clone()
    # One real token has the id of the padding, as where the padding and the end token are the same.
    target_BT[0, length - 1] = pad_id
    scored_BT = torch.zeros_like(inputs.target_mask_BT)
    sums = []
    for row, real in enumerate(lengths):
        one = Inputs(*(None if each is None else each[row : row + 1] for each in inputs))  # type: ignore[arg-type]
        for place in range(1, real):
            only = torch.zeros_like(one.target_mask_BT[:, :real])
            only[:, place] = True
            alone = one._replace(target_BT=target_BT[row : row + 1, :real])
            sums.append(float(_loss(subject, alone, only)))
        scored_BT[row, 1:real] = True
        target_BT[row, real:] = pad_id
    expected = {"a sum": sum(sums), "a mean": sum(sums) / len(sums)}
    kinds = dict[str, float]()
    for kind, value in expected.items():
        found = 0.0
        for extra in range(2):
            ids_BT, mask_BT = padded(target_BT, inputs.target_mask_BT, extra, "right", pad_id)
            scored, _ = padded(scored_BT, inputs.target_mask_BT, extra, "right", 0)
            loss = float(_loss(subject, inputs._replace(target_BT=ids_BT, target_mask_BT=mask_BT), scored))
            share = abs(loss - value) / abs(value)
            found = larger(found, share)
        kinds[kind] = found
    kind = "a sum" if kinds["a sum"] <= kinds["a mean"] else "a mean"
    bound = 1e-6 if subject.exact_dtype == torch.float64 else 1e-3
    text = f"share by which the loss of padded rows differs from {kind} over the real tokens of the rows, one by one"
    return Measurement(kinds[kind], bound, text)


def initial_loss(subject: Subject) -> Measurement:
    """With initial weights the loss is near ln(vocabulary): the model has no opinion yet.

    Averaged over all labels, so that no luck is involved: that mean is never below the logarithm.
    """
    if not subject.given.fresh:
        raise NotApplicable("the weights are not initial ones")
    logits = subject.logits(subject.inputs(), subject.copy(wake=False)).double()
    loss = float((logits.logsumexp(-1) - logits.mean(-1)).mean())
    uniform = math.log(subject.given.vocab_size)
    text = f"nats by which the initial loss, {loss:.2f}, exceeds ln({subject.given.vocab_size:,}) = {uniform:.2f}"
    return Measurement(loss - uniform, INITIAL_MARGIN, text)


def _loss(subject: Subject, inputs: Inputs, scored_BT: Tensor) -> Tensor:
    subject.seed()
    with torch.no_grad():
        loss = subject.exact.loss(inputs, scored_BT)
    if loss is None:
        raise NotApplicable("the adapter gives no loss (`loss_call`)")
    if loss.numel() != 1:
        raise Violation(f"the loss must be one number, but has the shape {tuple(loss.shape)}")
    return loss.reshape(())


def _not_in_line(losses: Tensor, outputs: Tensor) -> float:
    """The share of the losses' deviation that no falling line through the outputs explains; 1 for a rising one."""
    losses, outputs = losses.double() - losses.double().mean(), outputs.double() - outputs.double().mean()
    size = float(losses.norm())
    if size == 0 or not math.isfinite(size):
        return 1.0
    slope = float(losses @ outputs / outputs.square().sum())
    return 1.0 if slope <= 0 else largest(losses - slope * outputs) / largest(losses)
