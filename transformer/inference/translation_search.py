"""The search for translations of a batch of sources: by one model or several, in all tokens or in a shortlist."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import torch

from transformer.bundle import Bundle
from transformer.data.batches.collate import pad
from transformer.decoding.config import BeamConfig, SearchConfig
from transformer.decoding.ensemble import EnsembleSteps
from transformer.decoding.interface import Hypothesis, Request
from transformer.decoding.search import search
from transformer.inference.shortlist import Shortlist
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.shortlisted import ShortlistedOutput
from transformer.models.stepping import TranslationSteps


class _Columns(NamedTuple):
    """The token numbers of a search in a shortlist: columns of its logits."""

    tokens: list[int]
    eos: int
    suppressed: list[int]


@torch.inference_mode()
def search_translations(
    models: Sequence[EncoderDecoder],
    bundle: Bundle,
    sources: Sequence[Sequence[int]],
    requests: Sequence[Request],
    decoding: SearchConfig,
    *,
    num_best: int = 1,
    shortlist: Shortlist | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each source.

    Args:
        models: in evaluation mode, all on one device; of several, the mean of their distributions counts.
        bundle: for its tokenizers.
        sources: ids without end tokens.
        requests: of each source.
        decoding: the search.
        num_best: hypotheses of each source.
        shortlist: what tokens each source may be translated with; None for all. Requests then have no phrases and no
            prefixes.
    """
    source_tokenizer, target_tokenizer = bundle.source_tokenizer, bundle.target_tokenizer
    source_BS, mask_BS = pad([[*ids, source_tokenizer.eos_id] for ids in sources], source_tokenizer.pad_id)
    device = next(models[0].parameters()).device
    source_BS, mask_BS = source_BS.to(device), mask_BS.to(device)
    attending = isinstance(decoding, BeamConfig) and decoding.coverage_penalty > 0
    if attending and len(models) > 1:
        raise ValueError("`coverage_penalty` needs the attention of one model, but this is an ensemble.")
    outputs: list[ShortlistedOutput | None] = [None] * len(models)
    columns = None
    if shortlist is not None:
        batch = shortlist.for_batch(sources)
        outputs = [ShortlistedOutput.from_numpy(model.output, *batch, device) for model in models]
        columns = _columns(batch.columns_C.tolist(), target_tokenizer.eos_id, target_tokenizer.silent_ids)
    sessions = [
        TranslationSteps(model, source_BS, mask_BS, target_tokenizer.bos_id, attending=attending, shortlisted=output)
        for model, output in zip(models, outputs, strict=True)
    ]
    found = search(
        sessions[0] if len(sessions) == 1 else EnsembleSteps(sessions),
        decoding,
        requests,
        eos_id=target_tokenizer.eos_id if columns is None else columns.eos,
        suppressed=target_tokenizer.silent_ids if columns is None else columns.suppressed,
        num_best=num_best,
    )
    if columns is None:
        return found
    return [[each._replace(tokens=[columns.tokens[c] for c in each.tokens]) for each in best] for best in found]


def _columns(tokens: list[int], eos_id: int, silent_ids: Collection[int]) -> _Columns:
    return _Columns(tokens, tokens.index(eos_id), [c for c, token in enumerate(tokens) if token in silent_ids])
