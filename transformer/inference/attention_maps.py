"""The attention of a bundle's model for given texts."""

from collections.abc import Sequence
from typing import NamedTuple

from transformer.attention_maps.maps import AttentionMap, text_maps, translation_maps
from transformer.attention_maps.token_texts import read_tokens
from transformer.inference.generator import Generator
from transformer.inference.mode import evaluation_mode
from transformer.inference.scorer import check_lengths, token_ids
from transformer.inference.translator import Translator


class Attention(NamedTuple):
    """The attention weights of one example.

    Attributes:
        source: the sentence that is translated, or the prompt of a language model.
        target: the translation that the decoder reads; None for a language model.
        maps: of a translation model encoder, decoder and cross-attention; of a language model decoder alone.
    """

    source: str
    target: str | None
    maps: list[AttentionMap]


def translation_attention(
    translator: Translator,
    source: str,
    target: str | Sequence[int] | None = None,
    *,
    tag: str | None = None,
    line: int = 1,
) -> Attention:
    """Every layer's and head's weights while the model reads a source and, token by token, a target.

    Args:
        translator: one model, no ensemble; it answers in evaluation mode.
        source: the sentence.
        target: its translation: a text, or token ids without an end token; default: the best of the bundle's own
            search.
        tag: the direction, for a model of several; see :meth:`Translator.encode`.
        line: number of the pair in the user's input, for messages.

    Raises:
        ValueError: the source is blank, source or target is longer than the model takes, the translator is an
            ensemble, or the tag is not one of training.
    """
    if len(translator.models) > 1:
        raise ValueError(f"attention is that of one model, but this is an ensemble of {len(translator.models)}.")
    _check_not_blank(source, "the source", line)
    tags = None if tag is None else [tag]
    [source_ids] = translator.encode([source], tags)
    room, tokenizer = translator.model.config.max_length - 1, translator.bundle.target_tokenizer
    check_lengths([source_ids], room, "the source", line)
    ends = True
    if target is None:
        [[best]] = translator.search([source], tags=tags, first_line=line)
        target, target_ids, ends = best.text, best.tokens, best.finished
    else:
        [target_ids] = token_ids(tokenizer, [target])
        check_lengths([target_ids], room, "the target", line)
    # Cut by a length limit, a target has no end that the model would have predicted.
    read = [tokenizer.bos_id, *target_ids, *([tokenizer.eos_id] if ends else [])]
    source_tokens = read_tokens(translator.bundle.source_tokenizer, [*source_ids, tokenizer.eos_id])
    with evaluation_mode(translator.model):
        maps = translation_maps(translator.model, source_tokens, read_tokens(tokenizer, read))
    return Attention(source, target if isinstance(target, str) else tokenizer.decode(target_ids), maps)


def text_attention(generator: Generator, text: str, *, line: int = 1) -> Attention:
    """Every layer's and head's weights while a language model reads a text, with a start token if it was trained so.

    Args:
        generator: the model; it answers in evaluation mode.
        text: the prompt.
        line: its number in the user's input, for messages.

    Raises:
        ValueError: the text is blank, or longer than the model takes.
    """
    _check_not_blank(text, "the prompt", line)
    tokenizer, room = generator.bundle.target_tokenizer, generator.model.config.max_length
    start = [tokenizer.bos_id] if generator.bundle.config.mark_documents else []
    ids = tokenizer.encode(text)
    check_lengths([ids], room - len(start), "the prompt", line)
    with evaluation_mode(generator.model):
        return Attention(text, None, text_maps(generator.model, read_tokens(tokenizer, [*start, *ids])))


def _check_not_blank(text: str, what: str, line: int) -> None:
    if not text.strip():
        raise ValueError(f"line {line}: {what} is blank, so there is nothing to attend to.")
