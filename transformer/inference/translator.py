"""Translate texts with a bundle."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch

from transformer.bundle import Bundle, load_bundle
from transformer.data.corpora.document_config import TextCorpusConfig
from transformer.data.corpora.sources import pair_corpora
from transformer.decoding.config import DecodingConfig, MbrConfig, SampleConfig, SearchConfig
from transformer.decoding.interface import Request
from transformer.decoding.lengths import translation_lengths
from transformer.inference.batching import in_batches
from transformer.inference.constraints import (
    NO_CONSTRAINTS,
    ConstraintCompiler,
    Constraints,
    check_one_for_each,
    warn_of_unmet,
)
from transformer.inference.mbr import least_risk
from transformer.inference.mode import evaluation_mode
from transformer.inference.output import BLANK, Output, outputs_of
from transformer.inference.same_tokenizers import check_same_tokenizers
from transformer.inference.shortlist import Shortlist
from transformer.inference.translation_search import search_translations
from transformer.models.encoder_decoder import EncoderDecoder

log = logging.getLogger(__name__)


class Translator:
    """A translation model ready to use.

    A line's translation depends on that line alone: not on the others, their number or their order. A model in training
    mode translates in evaluation mode, without dropout, and is in training mode again afterwards.

    Args:
        bundle: a trained encoder-decoder and its tokenizers.
        device: where to run.
        ensemble: more models, with the same tokenizers; the mean of all distributions decides.
        shortlist: tokens that a source may be translated with, which is faster; None for all. Lines with constraints
            are searched in all tokens. Log probabilities are then those among the tokens on the list.
    """

    def __init__(
        self,
        bundle: Bundle,
        device: torch.device | str = "cpu",
        *,
        ensemble: Sequence[Bundle] = (),
        shortlist: Shortlist | None = None,
    ) -> None:
        self.bundle, self.device = bundle, torch.device(device)
        self.models = [_translation_model(each).to(self.device) for each in (bundle, *ensemble)]
        for number, other in enumerate(ensemble, start=2):
            check_same_tokenizers(bundle, other, f"model {number}")
        self.shortlist = shortlist
        self._compiler = ConstraintCompiler(bundle.target_tokenizer)

    @property
    def model(self) -> EncoderDecoder:
        """The only model, or the first of an ensemble."""
        return self.models[0]

    @classmethod
    def load(cls, folder: Path | str, device: torch.device | str = "cpu", *, ensemble: Sequence[Path | str] = ()
             ) -> Self:  # fmt: skip
        """From bundles' folders. Raises ValueError if one is none, or no translation model, or they do not fit."""
        return cls(load_bundle(folder), device, ensemble=[load_bundle(each) for each in ensemble])

    def translate(
        self,
        texts: Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        constraints: Sequence[Constraints] | None = None,
        tags: Sequence[str | None] | None = None,
        max_tokens_per_batch: int = 2048,
        first_line: int = 1,
    ) -> list[str]:
        """One translation for each text, blank for a blank one. Arguments as for :meth:`search`."""
        best = self.search(
            texts,
            decoding,
            constraints=constraints,
            tags=tags,
            max_tokens_per_batch=max_tokens_per_batch,
            first_line=first_line,
        )
        return [outputs[0].text for outputs in best]

    def search(
        self,
        texts: Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        num_best: int = 1,
        constraints: Sequence[Constraints] | None = None,
        tags: Sequence[str | None] | None = None,
        max_tokens_per_batch: int = 2048,
        first_line: int = 1,
    ) -> list[list[Output]]:
        """The best translations of each text, best first; for a blank text, a single blank one.

        A source longer than the model's maximum length is cut, with a warning that names its line.

        Args:
            texts: sources.
            decoding: the search; default: the bundle's.
            num_best: translations of each; with sampling, independent samples.
            constraints: of each text: phrases that its translations must or must not contain, and how they begin.
            tags: for a model of several directions, which one: the tag of each text, such as ``<2de>``; see
                :meth:`encode`.
            max_tokens_per_batch: padded source tokens searched at once, times the samples of each; a matter of speed
                and memory only.
            first_line: number of the first text in the user's input, for warnings and for sampling.

        Raises:
            ValueError: the model was not trained with a tag, or not without one; constraints cannot be met within the
                lengths allowed.
        """
        decoding = self.bundle.config.decoding if decoding is None else decoding
        for what, given in (("constraints", constraints), ("tags", tags)):
            if given is not None:
                check_one_for_each(what, given, texts)
        if isinstance(decoding, MbrConfig):
            data = self.bundle.config.data
            assert not isinstance(data, TextCorpusConfig), "a translation model is trained on pairs"
            return least_risk(self, texts, decoding, num_best=num_best, constraints=constraints, tags=tags,
                              bleu_tokenize=data.bleu_tokenize, max_tokens_per_batch=max_tokens_per_batch,
                              first_line=first_line)  # fmt: skip
        kept = [number for number, text in enumerate(texts) if text.strip()]
        kept_tags = None if tags is None else [tags[number] for number in kept]
        sources = self.encode([texts[number] for number in kept], kept_tags)
        longest = min(model.config.max_length for model in self.models)
        for number, ids in zip(kept, sources, strict=True):
            if len(ids) > longest - 1:  # and the end token
                log.warning(
                    "line %d has %d tokens and is cut to the model's %d.", first_line + number, len(ids), longest - 1
                )
                del ids[longest - 1 :]
        requests = []
        for number, ids in zip(kept, sources, strict=True):
            lengths = translation_lengths(len(ids) + 1, decoding, longest)
            request = Request(lengths.limit, lengths.minimum, line=first_line + number)
            wanted = NO_CONSTRAINTS if constraints is None else constraints[number]
            most = longest if decoding.max_new_tokens is None else min(longest, decoding.max_new_tokens)
            if decoding.max_length_factor is not None:
                most = lengths.limit
            requests.append(self._compiler.apply(request, wanted, most))

        outputs = [[BLANK] for _ in texts]
        copies = num_best if isinstance(decoding, SampleConfig) else 1
        # Lines with demands are searched in all tokens, so they must not share a batch with lines in a shortlist.
        for plain in (True, False):
            group = [place for place, request in enumerate(requests) if request.is_plain == plain]

            def run(members: list[int], group: list[int] = group) -> list[list[Output]]:
                places = [group[member] for member in members]
                return self._search([sources[p] for p in places], [requests[p] for p in places], decoding, num_best)

            with evaluation_mode(*self.models):
                answers = in_batches([(len(sources[place]) + 1) * copies for place in group], max_tokens_per_batch, run)
            for place, answer in zip(group, answers, strict=True):
                outputs[kept[place]] = answer
        return outputs

    def encode(self, texts: Sequence[str], tags: Sequence[str | None] | None) -> list[list[int]]:
        """Token ids of sources, each behind its tag, without end tokens.

        Args:
            texts: sources.
            tags: of each, None for a source without one. Without `tags`, all sources have the tag of the training
                sources if that is only one, and none if some of those had none.

        Raises:
            ValueError: the model was not trained with a tag, or not without one.
        """
        tokenizer, known = self.bundle.source_tokenizer, self.tags
        if tags is None:
            tags = (known if len(known) == 1 else [None]) * len(texts)
        for tag in tags:
            if tag not in known:
                given = "without a tag" if tag is None else f"tagged {tag!r}"
                trained = ", ".join("without a tag" if each is None else repr(each) for each in known)
                raise ValueError(f"sources must be tagged as in training ({trained}), but one is {given}.")
        starts = {tag: [] if tag is None else [tokenizer.tag_id(tag)] for tag in set(tags)}
        return [[*starts[tag], *ids] for tag, ids in zip(tags, tokenizer.encode_batch(texts), strict=True)]

    @property
    def tags(self) -> list[str | None]:
        """What sources began with in training; None stands for those without a tag."""
        data = self.bundle.config.data
        if isinstance(data, TextCorpusConfig):
            return [None]
        return list(dict.fromkeys(corpus.tag for corpus in pair_corpora(data).values()))

    def _search(
        self, sources: Sequence[Sequence[int]], requests: Sequence[Request], decoding: SearchConfig, num_best: int
    ) -> list[list[Output]]:
        plain = all(request.is_plain for request in requests)
        hypotheses = search_translations(
            self.models,
            self.bundle,
            sources,
            requests,
            decoding,
            num_best=num_best,
            shortlist=self.shortlist if plain else None,
        )
        warn_of_unmet(requests, [best[0].finished for best in hypotheses])
        # One line in, one line out: a line break made up by the model would shift all lines after it.
        return [
            [output._replace(text=output.text.replace("\n", " ")) for output in outputs]
            for outputs in outputs_of(hypotheses, self.bundle.target_tokenizer)
        ]


def _translation_model(bundle: Bundle) -> EncoderDecoder:
    if not isinstance(bundle.model, EncoderDecoder):
        raise ValueError("this bundle holds a language model; use transformer-generate.")
    return bundle.model
