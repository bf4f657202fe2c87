"""Continue texts with a bundle."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch

from transformer.bundle import Bundle, load_bundle
from transformer.decoding.config import BeamConfig, DecodingConfig, GreedyConfig, MbrConfig, SampleConfig, SearchConfig
from transformer.decoding.interface import Hypothesis, Request
from transformer.decoding.lengths import check_no_source, continuation_lengths
from transformer.decoding.rules import Rules
from transformer.decoding.search import search
from transformer.decoding.speculative import Drafted, speculative_search
from transformer.inference.batching import in_batches
from transformer.inference.constraints import (
    NO_CONSTRAINTS,
    ConstraintCompiler,
    Constraints,
    check_one_for_each,
    warn_of_unmet,
)
from transformer.inference.mode import evaluation_mode
from transformer.inference.output import BLANK, Output, outputs_of
from transformer.inference.same_tokenizers import check_same_tokenizers
from transformer.models.decoder_only import DecoderOnly
from transformer.models.drafting import RewindableSteps
from transformer.models.stepping import ContinuationSteps

log = logging.getLogger(__name__)


class Generator:
    """A language model ready to use. A prompt's continuation depends on that prompt alone.

    A model in training mode generates in evaluation mode, without dropout, and is in training mode again afterwards.

    Args:
        bundle: a trained decoder-only model and its tokenizer.
        device: where to run.
        draft: a smaller model with the same tokenizer, which drafts tokens in greedy search and sampling, one prompt at
            a time. Greedy outputs stay the same, sampled ones have the same distribution.
        draft_tokens: tokens that it drafts at once.

    Attributes:
        drafted: with a draft: tokens that it proposed in the last search, and those that were taken.
    """

    def __init__(
        self,
        bundle: Bundle,
        device: torch.device | str = "cpu",
        *,
        draft: Bundle | None = None,
        draft_tokens: int = 4,
    ) -> None:
        self.bundle, self.device = bundle, torch.device(device)
        self.model = _language_model(bundle).to(self.device)
        self.drafted = Drafted(0, 0)
        self._draft, self._draft_tokens = None, draft_tokens
        if draft is not None:
            if draft_tokens < 1:
                raise ValueError(f"`draft_tokens` must be at least 1, but is {draft_tokens}.")
            check_same_tokenizers(bundle, draft, "the draft")
            self._draft = _language_model(draft).to(self.device)
            reads, longest = self._draft.config.max_length, self.model.config.max_length
            if reads < longest:
                log.warning(
                    "the draft model reads %d tokens at most, the model %d; from there it goes on alone.",
                    reads,
                    longest,
                )
        self._compiler = ConstraintCompiler(bundle.target_tokenizer)

    @classmethod
    def load(
        cls,
        folder: Path | str,
        device: torch.device | str = "cpu",
        *,
        draft: Path | str | None = None,
        draft_tokens: int = 4,
    ) -> Self:
        """From bundles' folders. Raises ValueError if one is none, or no language model, or they do not fit."""
        draft_bundle = None if draft is None else load_bundle(draft)
        return cls(load_bundle(folder), device, draft=draft_bundle, draft_tokens=draft_tokens)

    def generate(
        self,
        prompts: Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        constraints: Sequence[Constraints] | None = None,
        max_tokens_per_batch: int = 8192,
        first_line: int = 1,
    ) -> list[str]:
        """One continuation for each prompt, without the prompt; blank for a blank one. Arguments: :meth:`search`."""
        best = self.search(
            prompts,
            decoding,
            constraints=constraints,
            max_tokens_per_batch=max_tokens_per_batch,
            first_line=first_line,
        )
        return [outputs[0].text for outputs in best]

    def search(
        self,
        prompts: Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
        max_tokens_per_batch: int = 8192,
        first_line: int = 1,
    ) -> list[list[Output]]:
        """The best continuations of each prompt, without the prompt; for a blank one, a single blank one.

        A prompt gets the same beginning as texts in training (the start token where documents were marked), never an
        end. One that leaves no room in the model keeps its last tokens, with a warning that names its line.

        Args:
            prompts: beginnings of texts.
            decoding: the search; default: the bundle's. Without ``max_new_tokens`` it goes on as far as the model can.
            num_best: continuations of each; with sampling, independent samples.
            constraints: of each prompt: phrases that its continuations must or must not contain, and how they begin.
            max_tokens_per_batch: padded tokens of prompts and continuations searched at once, times the samples of
                each; a matter of speed and memory only.
            first_line: number of the first prompt in the user's input, for warnings and for sampling.
        """
        decoding = self.bundle.config.decoding if decoding is None else decoding
        if isinstance(decoding, MbrConfig):
            raise ValueError("minimum Bayes risk is for translation; a language model's continuations differ too much.")
        check_no_source(decoding)
        if constraints is not None:
            check_one_for_each("constraints", constraints, prompts)
        if isinstance(decoding, BeamConfig) and self._draft is not None:
            raise ValueError("a draft model serves greedy search and sampling, but the search is a beam.")
        tokenizer, longest = self.bundle.target_tokenizer, self.model.config.max_length
        wanted = longest if decoding.max_new_tokens is None else decoding.max_new_tokens
        # Half of the model at least is left to the prompt. A model of n positions reads n tokens and adds one more.
        room = min(max(longest - wanted + 1, (longest + 1) // 2), longest)
        kept = [number for number, prompt in enumerate(prompts) if prompt.strip()]
        ids = tokenizer.encode_batch([prompts[number] for number in kept])
        if self.bundle.config.mark_documents:
            ids = [[tokenizer.bos_id, *prompt] for prompt in ids]
        for number, prompt in zip(kept, ids, strict=True):
            if not prompt:  # a tokenizer may drop invisible characters
                raise ValueError(f"line {first_line + number}: the prompt has no token in this model's vocabulary.")
        requests = []
        for number, prompt in zip(kept, ids, strict=True):
            line = first_line + number
            if len(prompt) > room:
                log.warning("line %d has %d tokens, of which the last %d are used.", line, len(prompt), room)
                del prompt[:-room]
            most = longest - len(prompt) + 1
            lengths = continuation_lengths(most, decoding)
            wanted_of_it = NO_CONSTRAINTS if constraints is None else constraints[number]
            request = Request(lengths.limit, lengths.minimum, line=line)
            requests.append(self._compiler.apply(request, wanted_of_it, lengths.limit))

        def run(places: list[int]) -> list[list[Output]]:
            return self._search([ids[p] for p in places], [requests[p] for p in places], decoding, num_best)

        self.drafted = Drafted(0, 0)
        with evaluation_mode(self.model, *([] if self._draft is None else [self._draft])):
            copies = num_best if isinstance(decoding, SampleConfig) else 1
            sizes = [(len(prompt) + request.limit) * copies for prompt, request in zip(ids, requests, strict=True)]
            answers = in_batches(sizes, max_tokens_per_batch, run)
        if self.drafted.proposed:
            proposed, taken = self.drafted
            log.info("%d of %d drafted tokens were taken (%.0f%%).", taken, proposed, 100 * taken / proposed)
        outputs = [[BLANK] for _ in prompts]
        for number, answer in zip(kept, answers, strict=True):
            outputs[number] = answer
        return outputs

    @torch.inference_mode()
    def _search(
        self, prompts: Sequence[Sequence[int]], requests: Sequence[Request], decoding: SearchConfig, num_best: int
    ) -> list[list[Output]]:
        tokenizer = self.bundle.target_tokenizer
        if self._draft is not None:
            assert not isinstance(decoding, BeamConfig), "refused before"
            hypotheses = [
                self._drafted_search(self._draft, prompt, request, decoding, num_best)
                for prompt, request in zip(prompts, requests, strict=True)
            ]
            return outputs_of(hypotheses, tokenizer)
        width = max(len(prompt) for prompt in prompts)
        prompt_BL = torch.full((len(prompts), width), tokenizer.pad_id, device=self.device)
        mask_BL = torch.zeros_like(prompt_BL, dtype=torch.bool)
        for row, prompt in enumerate(prompts):  # padded on the left: all rows go on at the same column
            prompt_BL[row, width - len(prompt) :] = torch.tensor(prompt, device=self.device)
            mask_BL[row, width - len(prompt) :] = True
        hypotheses = search(
            ContinuationSteps(self.model, prompt_BL, mask_BL),
            decoding,
            requests,
            eos_id=tokenizer.eos_id,
            suppressed=tokenizer.silent_ids,
            num_best=num_best,
        )
        warn_of_unmet(requests, [best[0].finished for best in hypotheses])
        return outputs_of(hypotheses, tokenizer)

    def _drafted_search(
        self,
        draft: DecoderOnly,
        prompt: Sequence[int],
        request: Request,
        decoding: GreedyConfig | SampleConfig,
        num_best: int,
    ) -> list[Hypothesis]:
        tokenizer = self.bundle.target_tokenizer
        hypotheses, drafted = speculative_search(
            RewindableSteps(self.model, prompt, self.device),
            RewindableSteps(draft, prompt, self.device),
            decoding,
            Rules(decoding, [request], eos_id=tokenizer.eos_id, suppressed=tokenizer.silent_ids),
            draft_tokens=self._draft_tokens,
            num_samples=num_best,
        )
        proposed, taken = self.drafted
        self.drafted = Drafted(proposed + drafted.proposed, taken + drafted.taken)
        return hypotheses


def _language_model(bundle: Bundle) -> DecoderOnly:
    if not isinstance(bundle.model, DecoderOnly):
        raise ValueError("this bundle holds a translation model; use transformer-translate.")
    return bundle.model
