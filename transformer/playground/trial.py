"""A bundle that visitors may try: it translates or continues a text and shows what it attended to."""

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

from transformer.attention_maps.maps import AttentionMap, text_maps
from transformer.attention_maps.token_texts import read_tokens
from transformer.bundle import Bundle
from transformer.decoding.config import DecodingConfig
from transformer.inference.attention_maps import translation_attention
from transformer.inference.generator import Generator
from transformer.inference.mode import evaluation_mode
from transformer.inference.output import Output
from transformer.inference.scorer import check_lengths
from transformer.inference.translator import Translator
from transformer.models.encoder_decoder import EncoderDecoder
from transformer.playground.search_form import Search

MAX_CHARACTERS = 2000


class Found(NamedTuple):
    """Outputs of a text, best first.

    Attributes:
        text: what was translated or continued.
        tag: the direction, None for a model of one.
        outputs: as the search gave them.
        remarks: sentences about what was done to the text, such as that it was cut.
    """

    text: str
    tag: str | None
    outputs: list[Output]
    remarks: list[str]


class Trial:
    """Answers with one bundle.

    Args:
        bundle: an encoder-decoder translates, a language model continues.
        device: where to run.
    """

    def __init__(self, bundle: Bundle, device: torch.device | str = "cpu") -> None:
        self.translates = isinstance(bundle.model, EncoderDecoder)
        self._model = Translator(bundle, device) if self.translates else Generator(bundle, device)

    @property
    def own_search(self) -> DecodingConfig:
        """The bundle's search."""
        return self._model.bundle.config.decoding

    @property
    def name(self) -> str:
        """What the bundle is, in words."""
        config = self._model.bundle.config
        kind = "Translation model" if self.translates else "Language model"
        return f"{kind}, trained on {config.data.name}, reads {config.model.max_length} tokens at most"

    @property
    def max_length(self) -> int:
        """Tokens that the model reads at most."""
        return self._model.bundle.config.model.max_length

    @property
    def tags(self) -> list[str | None]:
        """The directions of a model of several; None is that without a tag."""
        return self._model.tags if isinstance(self._model, Translator) else [None]

    def search(self, text: str, search: Search, tag: str | None = None) -> Found:
        """Translate or continue a text.

        Raises:
            ValueError: the text is blank or has too many characters, or the search does not suit the model.
        """
        if not text.strip():
            raise ValueError(f"There is no text to {'translate' if self.translates else 'continue'} yet.")
        if len(text) > MAX_CHARACTERS:
            raise ValueError(f"The text must have {MAX_CHARACTERS} characters at most, but has {len(text)}.")
        with _warnings() as remarks:
            if isinstance(self._model, Translator):
                tags = None if len(self.tags) == 1 else [tag]
                [outputs] = self._model.search([text], search.decoding, num_best=search.num_best, tags=tags)
            else:
                [outputs] = self._model.search([text], search.decoding, num_best=search.num_best)
        return Found(text, tag, outputs, remarks)

    def attention(self, found: Found, chosen: int) -> list[AttentionMap]:
        """The attention of a model that reads the text and an output of it, which is counted from 0.

        Raises:
            ValueError: both are longer than the model takes.
        """
        output = found.outputs[chosen]
        if isinstance(self._model, Translator):
            tag = found.tag or (self.tags[0] if len(self.tags) == 1 else None)
            return translation_attention(self._model, found.text, output.tokens, tag=tag).maps
        # As ids: the text of them, such as of an unknown token, may be cut into others.
        tokenizer = self._model.bundle.target_tokenizer
        start = [tokenizer.bos_id] if self._model.bundle.config.mark_documents else []
        ids = [*start, *tokenizer.encode(found.text), *output.tokens]
        if len(ids) == self.max_length + 1:
            ids.pop()  # Nothing was predicted from the last token, so the model never read it.
        check_lengths([ids], self.max_length, "the text", 1)
        with evaluation_mode(self._model.model):
            return text_maps(self._model.model, read_tokens(tokenizer, ids))


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """The warnings that the package logs in this thread, as sentences about the text."""
    sentences: list[str] = []
    own = threading.get_ident()

    class _Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.thread == own:
                sentences.append(re.sub(r"^line 1\b", "The text", record.getMessage()))

    handler, logger = _Collect(logging.WARNING), logging.getLogger("transformer")
    logger.addHandler(handler)
    try:
        yield sentences
    finally:
        logger.removeHandler(handler)
