"""Our own search behind the same functions as the peers'."""

from collections.abc import Sequence
from pathlib import Path

import torch

from peers.settings import Continue, Task, Translate, batches
from transformer.bundle import load_bundle
from transformer.decoding.config import BeamConfig, GreedyConfig
from transformer.decoding.interface import Request
from transformer.decoding.search import search
from transformer.inference.precision import Precision, set_precision
from transformer.inference.shortlist import Shortlist
from transformer.inference.translation_search import search_translations
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.stepping import ContinuationSteps


def load_translating(folder: Path, precision: Precision = "float32", *, shortlist: bool = False) -> Translate:
    """What :class:`~transformer.inference.translator.Translator` does between cutting texts and joining tokens.

    Args:
        folder: of the bundle.
        precision: of the computation.
        shortlist: whether to search in the bundle's shortlist.
    """
    bundle = load_bundle(folder)
    assert isinstance(bundle.model, EncoderDecoder)
    model = set_precision(bundle.model, precision)
    chosen = Shortlist.load(folder, bundle.source_tokenizer, bundle.target_tokenizer) if shortlist else None

    def translate(sources: Sequence[Sequence[int]], task: Task) -> list[list[int]]:
        config: GreedyConfig | BeamConfig = GreedyConfig(name="greedy")
        if task.beam > 1:
            config = BeamConfig(name="beam", size=task.beam, normalization="average", length_penalty=1.0)
        outputs = []
        for batch in batches(sources, task.batch):
            requests = [Request(limit=task.limit([ids]), minimum=task.min_tokens) for ids in batch]
            texts = [ids[:-1] for ids in batch]  # the end token comes back inside
            best = search_translations([model], bundle, texts, requests, config, shortlist=chosen)
            outputs += [hypotheses[0].tokens for hypotheses in best]
        return outputs

    return translate


def continuing(model: DecoderOnly, eos_id: int) -> Continue:
    """Greedy search that does not end before it has as many tokens as asked for."""

    def go_on(prompts: Sequence[Sequence[int]], num_tokens: int) -> list[list[int]]:
        prompt_BL = torch.tensor(prompts)
        with torch.inference_mode():
            best = search(
                ContinuationSteps(model, prompt_BL, torch.ones_like(prompt_BL, dtype=torch.bool)),
                GreedyConfig(name="greedy"),
                [Request(limit=num_tokens, minimum=num_tokens)] * len(prompts),
                eos_id=eos_id,
            )
        return [hypotheses[0].tokens for hypotheses in best]

    return go_on
