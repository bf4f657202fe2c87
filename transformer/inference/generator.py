"""Continue texts with a bundle."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch

from transformer.bundle import Bundle, load_bundle
from transformer.decoding.config import DecodingConfig
from transformer.decoding.search import search
from transformer.inference.batching import in_batches
from transformer.inference.mode import evaluation_mode
from transformer.models.decoder_only import DecoderOnly
from transformer.models.stepping import ContinuationSteps

log = logging.getLogger(__name__)


class Generator:
    """A language model ready to use. A prompt's continuation depends on that prompt alone.

    A model in training mode generates in evaluation mode, without dropout, and is in training mode again afterwards.

    Args:
        bundle: a trained decoder-only model and its tokenizer.
        device: where to run.
    """

    def __init__(self, bundle: Bundle, device: torch.device | str = "cpu") -> None:
        if not isinstance(bundle.model, DecoderOnly):
            raise ValueError("this bundle holds a translation model; use transformer-translate.")
        self.bundle, self.device = bundle, torch.device(device)
        self.model = bundle.model.to(self.device)

    @classmethod
    def load(cls, folder: Path | str, device: torch.device | str = "cpu") -> Self:
        """From a bundle's folder. Raises ValueError if it is none, or no language model."""
        return cls(load_bundle(folder), device)

    def generate(
        self,
        prompts: Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        max_tokens_per_batch: int = 2048,
        first_line: int = 1,
    ) -> list[str]:
        """One continuation for each prompt, without the prompt; blank for a blank one.

        A prompt gets the same beginning as texts in training (the start token where documents were marked), never an
        end. One that leaves no room in the model keeps its last tokens, with a warning that names its line.

        Args:
            prompts: beginnings of texts.
            decoding: the search; default: the bundle's. Without ``max_new_tokens`` it goes on as far as the model can.
            max_tokens_per_batch: padded tokens searched at once; a matter of speed and memory only.
            first_line: number of the first prompt in the user's input, for warnings and for sampling.
        """
        decoding = self.bundle.config.decoding if decoding is None else decoding
        tokenizer, longest = self.bundle.target_tokenizer, self.model.config.max_length
        wanted = longest if decoding.max_new_tokens is None else decoding.max_new_tokens
        # Half of the model at least is left to the prompt. A model of n positions reads n tokens and adds one more.
        room = min(max(longest - wanted + 1, (longest + 1) // 2), longest)
        kept = [number for number, prompt in enumerate(prompts) if prompt.strip()]
        ids = tokenizer.encode_batch([prompts[number] for number in kept])
        if self.bundle.config.mark_documents:
            ids = [[tokenizer.bos_id, *prompt] for prompt in ids]
        for number, prompt in zip(kept, ids, strict=True):
            if len(prompt) > room:
                log.warning(
                    "line %d has %d tokens, of which the last %d are used.", first_line + number, len(prompt), room
                )
                del prompt[:-room]

        def run(places: list[int]) -> list[str]:
            return self._search([ids[p] for p in places], [first_line + kept[p] for p in places], decoding)

        with evaluation_mode(self.model):
            answers = in_batches([len(prompt) for prompt in ids], max_tokens_per_batch, run)
        outputs = [""] * len(prompts)
        for number, answer in zip(kept, answers, strict=True):
            outputs[number] = answer
        return outputs

    @torch.inference_mode()
    def _search(self, prompts: Sequence[Sequence[int]], lines: Sequence[int], decoding: DecodingConfig) -> list[str]:
        tokenizer = self.bundle.target_tokenizer
        width = max(len(prompt) for prompt in prompts)
        prompt_BL = torch.full((len(prompts), width), tokenizer.pad_id, device=self.device)
        mask_BL = torch.zeros_like(prompt_BL, dtype=torch.bool)
        for row, prompt in enumerate(prompts):  # padded on the left: all rows go on at the same column
            prompt_BL[row, width - len(prompt) :] = torch.tensor(prompt, device=self.device)
            mask_BL[row, width - len(prompt) :] = True
        hypotheses = search(
            ContinuationSteps(self.model, prompt_BL, mask_BL),
            decoding,
            eos_id=tokenizer.eos_id,
            limits=[self.model.config.max_length - len(prompt) + 1 for prompt in prompts],
            lines=lines,
        )
        return tokenizer.decode_batch([hypothesis.tokens for hypothesis in hypotheses])
