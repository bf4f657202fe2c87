"""Our own search behind the same functions as the peers'."""

from collections.abc import Sequence

import torch

from peers.settings import Continue, Task, Translate, batches
from transformer.bundle import Bundle
from transformer.data.batches.collate import pad
from transformer.decoding.config import BeamConfig, GreedyConfig
from transformer.decoding.interface import Request
from transformer.decoding.search import search
from transformer.models.decoder_only import DecoderOnly
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.stepping import ContinuationSteps, TranslationSteps


def translating(model: EncoderDecoder, bundle: Bundle) -> Translate:
    """What :class:`~transformer.inference.translator.Translator` does between cutting texts and joining tokens.

    Args:
        model: the bundle's, or the same in another precision.
        bundle: for its tokenizers.
    """
    source, target = bundle.source_tokenizer, bundle.target_tokenizer

    def translate(sources: Sequence[Sequence[int]], task: Task) -> list[list[int]]:
        config: GreedyConfig | BeamConfig = GreedyConfig(name="greedy")
        if task.beam > 1:
            config = BeamConfig(name="beam", size=task.beam, normalization="average", length_penalty=1.0)
        outputs = []
        with torch.inference_mode():
            for batch in batches(sources, task.batch):
                source_BS, mask_BS = pad(batch, source.pad_id)
                best = search(
                    TranslationSteps(model, source_BS, mask_BS, target.bos_id),
                    config,
                    [Request(limit=task.max_tokens, minimum=task.min_tokens)] * len(batch),
                    eos_id=target.eos_id,
                    suppressed=target.silent_ids,
                )
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
