"""Training sees a whole target at once, decoding one piece after the other: both must give the same logits."""

from collections.abc import Sequence
from itertools import combinations, pairwise

import torch
from torch import Tensor

from transformer.audit.model import AuditedModel, CachedDecoding, Inputs
from transformer.audit.outcome import Measurement, NotApplicable
from transformer.audit.subject import Subject, larger, largest


def stepwise(subject: Subject) -> Measurement:
    """Without a cache: the last output of every beginning equals the same output of the whole."""
    inputs, worst = subject.inputs(), 0.0
    whole = subject.logits(inputs)
    for length in range(1, whole.shape[1] + 1):
        mask_BT = inputs.target_mask_BT[:, :length]
        prefix = subject.logits(inputs._replace(target_BT=inputs.target_BT[:, :length], target_mask_BT=mask_BT))
        worst = larger(worst, largest(prefix[:, -1] - whole[:, length - 1]))
    text = "largest difference between the last output of a beginning and the same output of the whole"
    return Measurement(worst, subject.tolerance, text)


def cached(subject: Subject) -> Measurement:
    """With a cache, however the target is split: pieces of one token, of several, and all at once."""
    return _all_splits(subject, subject.inputs(target_length=subject.sampling.split_length), "")


def cached_padding(subject: Subject) -> Measurement:
    """The same for rows of different lengths: the target padded on the left, the source on the right."""
    _cache(subject.given)
    inputs = subject.inputs(target_length=subject.sampling.split_length)
    left, right = "left" in subject.given.target_sides, "right" in subject.given.source_sides
    if not left and not right:
        raise NotApplicable("the adapter names no padding that a cache has to deal with")
    if left:
        inputs = inputs._replace(target_mask_BT=_staircase(inputs.target_mask_BT))
    if right and inputs.source_mask_BS is not None:
        inputs = inputs._replace(source_mask_BS=_staircase(inputs.source_mask_BS).flip(1))
    return _all_splits(subject, inputs, ", rows of different lengths")


def cached_rows(subject: Subject) -> Measurement:
    """A search takes rows several times, in another order, or not at all: each goes on from its own past."""
    cache = _cache(subject.given)
    if cache.select is None:
        raise NotApplicable("the adapter gives no way to choose rows of the cache (`select`)")
    length = max(2, subject.sampling.split_length)
    inputs, worst = subject.inputs(target_length=length), 0.0
    module, rows = subject.exact.module, len(inputs.target_BT)
    for chosen in ([1, 1, 0, rows - 1, rows - 1], [rows - 1, 0]):
        rows_M = torch.tensor(chosen)
        new_MT = subject.ids(len(chosen), length, subject.given.vocab_size, salt=5)
        picked = Inputs(*(None if each is None else each[rows_M.to(each.device)] for each in inputs))  # type: ignore[arg-type]
        target_MT = torch.cat([picked.target_BT, new_MT], dim=1)[:, : subject.given.max_length]
        real_MT = torch.ones_like(target_MT, dtype=torch.bool)
        whole = subject.logits(picked._replace(target_BT=target_MT, target_mask_BT=real_MT))[:, length:]
        subject.seed()
        with torch.no_grad():
            state = cache.start(module, inputs.source_BS, inputs.source_mask_BS, rows)
            _, state = cache.step(module, state, inputs.target_BT, inputs.target_mask_BT)
            state = cache.select(module, state, rows_M)
            pieces = []
            for place in range(length, target_MT.shape[1]):
                piece = slice(place, place + 1)
                logits, state = cache.step(module, state, target_MT[:, piece], real_MT[:, piece])
                pieces.append(logits)
        worst = larger(worst, largest(torch.cat(pieces, dim=1) - whole))
    return Measurement(worst, subject.tolerance, "largest difference after rows of the cache were chosen anew")


def cached_sessions(subject: Subject) -> Measurement:
    """Two sessions side by side do not disturb each other, nor does a later step the logits of an earlier one."""
    cache = _cache(subject.given)
    batches = [subject.inputs(target_length=subject.sampling.split_length, salt=salt) for salt in (2, 6)]
    module, worst = subject.exact.module, 0.0
    expected = [subject.logits(inputs) for inputs in batches]
    subject.seed()
    with torch.no_grad():
        states = [cache.start(module, each.source_BS, each.source_mask_BS, len(each.target_BT)) for each in batches]
        pieces: list[list[Tensor]] = [[], []]
        for place in range(expected[0].shape[1]):
            piece = slice(place, place + 1)
            for number, inputs in enumerate(batches):
                new, mask = inputs.target_BT[:, piece], inputs.target_mask_BT[:, piece]
                logits, states[number] = cache.step(module, states[number], new, mask)
                pieces[number].append(logits)
    for number, whole in enumerate(expected):
        worst = larger(worst, largest(torch.cat(pieces[number], dim=1) - whole))
    return Measurement(worst, subject.tolerance, "largest difference when two sessions take turns")


def splits(length: int) -> list[list[int]]:
    """All ways to cut a sequence into pieces, as their lengths: 2 ** (length - 1) of them."""
    cuts = [each for count in range(length) for each in combinations(range(1, length), count)]
    return [[end - start for start, end in pairwise((0, *each, length))] for each in cuts]


def _all_splits(subject: Subject, inputs: Inputs, what: str) -> Measurement:
    cache, whole, worst = _cache(subject.given), subject.logits(inputs), 0.0
    ways = splits(inputs.target_BT.shape[1])
    real_BT = inputs.target_mask_BT
    for split in ways:
        pieces = _decode(subject, cache, inputs, split)
        worst = larger(worst, largest((pieces - whole)[real_BT]))
    text = f"largest difference between cached and parallel outputs, {len(ways)} ways to split{what}"
    return Measurement(worst, subject.tolerance, text)


def _decode(subject: Subject, cache: CachedDecoding, inputs: Inputs, split: Sequence[int]) -> Tensor:
    """Logits of all pieces."""
    subject.seed()
    module = subject.exact.module
    found, sizes = [], list(split)
    with torch.no_grad():
        state = cache.start(module, inputs.source_BS, inputs.source_mask_BS, len(inputs.target_BT))
        pieces = zip(torch.split(inputs.target_BT, sizes, 1), torch.split(inputs.target_mask_BT, sizes, 1), strict=True)
        for new_BN, mask_BN in pieces:
            logits, state = cache.step(module, state, new_BN, mask_BN)
            found.append(logits)
    return torch.cat(found, dim=1)


def _cache(model: AuditedModel) -> CachedDecoding:
    if model.cache is None:
        raise NotApplicable("the adapter gives no decoding with a cache (`cache`)")
    return model.cache


def _staircase(mask: Tensor) -> Tensor:
    """Row r has r tokens less, on the left, but one at least."""
    rows, length = mask.shape
    removed = torch.arange(rows, device=mask.device).clamp(max=length - 1)
    return torch.arange(length, device=mask.device)[None] >= removed[:, None]
