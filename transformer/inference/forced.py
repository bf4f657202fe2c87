"""The forced pass over pairs: a model reads each target, whatever it would have written itself."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer.data.batches.collate import collate_translation
from transformer.data.preparation.arrow import TokenIds
from transformer.inference.translator import Translator
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import Decoded, EncoderDecoder
from transformer.nn.attention import Backend
from transformer.nn.loss import CPU_CHUNK_ELEMENTS, GPU_CHUNK_ELEMENTS


class ForcedPass(NamedTuple):
    """What models make of a batch of pairs. Tensors are on the translator's device.

    Attributes:
        decoded: of each of the translator's models, padded on the right.
        labels_BT: the targets, each with an end token: position t of a decoder predicts label t.
        scored_BT: bool, True where there is a label and no padding.
    """

    decoded: list[Decoded]
    labels_BT: Tensor
    scored_BT: Tensor


def forced_pass(
    translator: Translator,
    sources: Sequence[TokenIds],
    targets: Sequence[TokenIds],
    *,
    backend: Backend = "fused",
) -> ForcedPass:
    """Run all models of a translator over one batch of pairs.

    Args:
        translator: the models; they run in the mode they are in.
        sources: token ids, behind their tags, without end tokens; see :meth:`Translator.encode`.
        targets: token ids without start and end tokens.
        backend: ``"explicit"`` also gives attention weights.
    """
    tokenizer = translator.bundle.target_tokenizer
    examples = [(number, *pair) for number, pair in enumerate(zip(sources, targets, strict=True))]
    batch = collate_translation(examples, pad_id=tokenizer.pad_id, bos_id=tokenizer.bos_id, eos_id=tokenizer.eos_id)
    source_BS, mask_BS, target_BT, labels_BT, scored_BT = (tensor.to(translator.device) for tensor in batch[1:6])
    decoded = [
        model.decode(target_BT, model.encode(source_BS, mask_BS).memory_BSD, mask_BS, backend=backend)
        for model in translator.models
    ]
    return ForcedPass(decoded, labels_BT, scored_BT)


def forced_log_probabilities(
    translator: Translator, sources: Sequence[TokenIds], targets: Sequence[TokenIds]
) -> Tensor:
    """Natural log probabilities (N) of all targets' tokens, pair after pair, each target's end token after its own.

    Of an ensemble they are those of the mean of its models' distributions. Arguments as for :func:`forced_pass`.
    """
    decoded, labels_BT, scored_BT = forced_pass(translator, sources, targets)
    by_model = [
        log_probabilities(model, own.hidden_BTD[scored_BT], labels_BT[scored_BT])
        for model, own in zip(translator.models, decoded, strict=True)
    ]
    return by_model[0] if len(by_model) == 1 else torch.stack(by_model).logsumexp(0) - math.log(len(by_model))


def log_probabilities(
    model: EncoderDecoder | DecoderOnly, hidden_ND: Tensor, labels_N: Tensor, *, chunk_elements: int | None = None
) -> Tensor:
    """Natural log probabilities (N) of ``labels_N``, in float32, without ever holding all logits.

    Args:
        model: its output projection is used.
        hidden_ND: final hidden states.
        labels_N: the tokens after them.
        chunk_elements: upper bound on logits held at once (at least one row of them); default: by the device.
    """
    if chunk_elements is None:
        chunk_elements = GPU_CHUNK_ELEMENTS if hidden_ND.is_cuda else CPU_CHUNK_ELEMENTS
    rows = max(1, chunk_elements // model.vocab_size)
    parts = [torch.empty(0, device=hidden_ND.device)]
    for start in range(0, len(labels_N), rows):
        log_probs_CV = model.output(hidden_ND[start : start + rows]).log_softmax(-1, dtype=torch.float32)
        parts.append(log_probs_CV.gather(1, labels_N[start : start + rows, None])[:, 0])
    return torch.cat(parts)
