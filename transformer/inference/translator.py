"""Translate texts with a bundle."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch

from transformer.bundle import Bundle, load_bundle
from transformer.data.batches.collate import pad
from transformer.data.corpora.document_config import TextCorpusConfig
from transformer.data.corpora.sources import pair_corpora
from transformer.decoding.config import DecodingConfig
from transformer.decoding.search import search
from transformer.inference.batching import in_batches
from transformer.inference.mode import evaluation_mode
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.models.stepping import TranslationSteps, output_limits

log = logging.getLogger(__name__)


class Translator:
    """A translation model ready to use.

    A line's translation depends on that line alone: not on the others, their number or their order. A model in training
    mode translates in evaluation mode, without dropout, and is in training mode again afterwards.

    Args:
        bundle: a trained encoder-decoder and its tokenizers.
        device: where to run.
    """

    def __init__(self, bundle: Bundle, device: torch.device | str = "cpu") -> None:
        if not isinstance(bundle.model, EncoderDecoder):
            raise ValueError("this bundle holds a language model; use transformer-generate.")
        self.bundle, self.device = bundle, torch.device(device)
        self.model = bundle.model.to(self.device)

    @classmethod
    def load(cls, folder: Path | str, device: torch.device | str = "cpu") -> Self:
        """From a bundle's folder. Raises ValueError if it is none, or no translation model."""
        return cls(load_bundle(folder), device)

    def translate(
        self,
        texts: Sequence[str],
        decoding: DecodingConfig | None = None,
        *,
        tags: Sequence[str | None] | None = None,
        max_tokens_per_batch: int = 2048,
        first_line: int = 1,
    ) -> list[str]:
        """One translation for each text, blank for a blank one.

        A source longer than the model's maximum length is cut, with a warning that names its line.

        Args:
            texts: sources.
            decoding: the search; default: the bundle's.
            tags: for a model of several directions, which one: the tag of each text, such as ``<2de>``; see
                :meth:`encode`.
            max_tokens_per_batch: padded source tokens searched at once; a matter of speed and memory only.
            first_line: number of the first text in the user's input, for warnings and for sampling.

        Raises:
            ValueError: the model was not trained with a tag, or not without one.
        """
        decoding = self.bundle.config.decoding if decoding is None else decoding
        kept = [number for number, text in enumerate(texts) if text.strip()]
        kept_tags = None if tags is None else [tags[number] for number in kept]
        sources = self.encode([texts[number] for number in kept], kept_tags)
        room = self.model.config.max_length - 1  # and the end token
        for number, ids in zip(kept, sources, strict=True):
            if len(ids) > room:
                log.warning("line %d has %d tokens and is cut to the model's %d.", first_line + number, len(ids), room)
                del ids[room:]

        def run(places: list[int]) -> list[str]:
            return self._search([sources[p] for p in places], [first_line + kept[p] for p in places], decoding)

        outputs = [""] * len(texts)
        with evaluation_mode(self.model):
            answers = in_batches([len(ids) + 1 for ids in sources], max_tokens_per_batch, run)
        for number, answer in zip(kept, answers, strict=True):
            outputs[number] = answer
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

    @torch.inference_mode()
    def _search(self, sources: Sequence[Sequence[int]], lines: Sequence[int], decoding: DecodingConfig) -> list[str]:
        tokenizer = self.bundle.target_tokenizer
        eos_id = self.bundle.source_tokenizer.eos_id
        source_BS, mask_BS = pad([[*ids, eos_id] for ids in sources], self.bundle.source_tokenizer.pad_id)
        source_BS, mask_BS = source_BS.to(self.device), mask_BS.to(self.device)
        hypotheses = search(
            TranslationSteps(self.model, source_BS, mask_BS, tokenizer.bos_id),
            decoding,
            eos_id=tokenizer.eos_id,
            limits=output_limits(mask_BS, self.model.config.max_length),
            lines=lines,
        )
        # One line in, one line out: a line break made up by the model would shift all lines after it.
        texts = tokenizer.decode_batch([hypothesis.tokens for hypothesis in hypotheses])
        return [text.replace("\n", " ") for text in texts]
