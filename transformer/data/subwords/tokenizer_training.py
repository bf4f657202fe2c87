"""A tokenizer's vocabulary, learnt from texts: special tokens first, then pieces, symbols, tags and padding."""

import json
import logging
from collections.abc import Iterable, Sequence
from typing import Any, assert_never

import tokenizers
from tokenizers import normalizers

from transformer.data.subwords.added_tokens import add_symbols, add_tags, any_of, between, check_names, pad_vocabulary
from transformer.data.subwords.byte_vocabulary import (
    BYTE_ALPHABET,
    learn_bpe,
    learn_unigram,
    learn_wordpiece,
    only_bytes,
)
from transformer.data.subwords.character_vocabulary import WORDS, learn_character_bpe, learn_characters
from transformer.data.subwords.config import (
    BpeConfig,
    ByteConfig,
    CharConfig,
    SpecialTokens,
    UnigramConfig,
    WordPieceConfig,
)
from transformer.data.subwords.thinning import EvenSample

logger = logging.getLogger(__name__)

SubwordConfig = BpeConfig | UnigramConfig | WordPieceConfig
TrainedConfig = SubwordConfig | CharConfig | ByteConfig


def train_backend(config: TrainedConfig, texts: Iterable[str], tags: Sequence[str] = ()) -> tokenizers.Tokenizer:
    """Learn a vocabulary from `texts`, read once. The same arguments give the same tokenizer, byte for byte.

    Raises:
        ValueError: A tag or symbol is no token of its own; characters are to be learnt and there are none.
    """
    symbols = config.user_symbols
    check_names(SpecialTokens(), tags, symbols)
    normalizer = _normalizer(config)
    match config:
        case ByteConfig():
            backend = only_bytes(normalizer)
        case CharConfig():
            backend = learn_characters(config, _without(symbols, texts, normalizer), normalizer)
        case BpeConfig() | UnigramConfig() | WordPieceConfig():
            backend = _learn_subwords(config, texts, normalizer, num_tags=len(tags))
        case _:
            assert_never(config)
    add_symbols(backend, symbols)
    add_tags(backend, tags)
    if isinstance(config, SubwordConfig) and (size := backend.get_vocab_size()) != config.vocab_size:
        logger.warning("`vocab_size` is %d, but these texts give %d tokens: that is the size.", config.vocab_size, size)
    pad_vocabulary(backend, config.pad_vocab_to_multiple_of)
    return backend


def _learn_subwords(
    config: SubwordConfig, texts: Iterable[str], normalizer: normalizers.Normalizer | None, *, num_tags: int
) -> tokenizers.Tokenizer:
    symbols = config.user_symbols
    sample = EvenSample.of(texts, config.max_training_texts)
    kept = sample.texts
    if len(kept) < sample.num_seen:
        logger.info("The vocabulary is learnt from %d of %d texts, evenly spread.", len(kept), sample.num_seen)
    if sample.num_cut > 0:
        text = "Of %d of %d texts only the first %d characters are learnt from, because they are longer."
        logger.info(text, sample.num_cut, sample.num_seen, sample.longest)
    parts = list(_without(symbols, kept, normalizer)) if symbols else kept
    if isinstance(config, BpeConfig) and config.units == "characters":
        return learn_character_bpe(config, parts, normalizer, size=config.vocab_size - num_tags - len(symbols))
    # A symbol that is one ASCII character is a token already.
    size = config.vocab_size - num_tags - len(set(symbols).difference(BYTE_ALPHABET))
    match config:
        case BpeConfig():
            return learn_bpe(config, parts, normalizer, size=size)
        case UnigramConfig():
            return learn_unigram(config, parts, normalizer, size=size)
        case WordPieceConfig():
            return learn_wordpiece(config, parts, normalizer, size=size)
        case _:
            assert_never(config)


def _without(symbols: Sequence[str], texts: Iterable[str], normalizer: normalizers.Normalizer | None) -> Iterable[str]:
    """What is cut into pieces of these texts: all that is no symbol."""
    if not symbols:
        return texts
    return between(texts if normalizer is None else map(normalizer.normalize_str, texts), any_of(symbols))


def _normalizer(config: TrainedConfig) -> normalizers.Normalizer | None:
    match config.normalization:
        case "none":
            return None
        case "nfc":
            return normalizers.NFC()
        case "nfkc":
            return normalizers.NFKC()
        case _:
            assert_never(config.normalization)


def cuts_at_words(backend: tokenizers.Tokenizer) -> bool:
    """Whether the ids of a text are surely those of its parts, when it is cut before white space.

    So it is for all that is trained here, unless a symbol has white space inside. Files of others are recognised by
    the same steps: what else they may do, such as to put a space before every text, is not known.
    """
    content: dict[str, Any] = json.loads(backend.to_str())
    # Special tokens are no tokens of a text. Symbols are looked for before the text is cut into words.
    symbols = [token for token in content["added_tokens"] if not token["special"]]
    if any(token["lstrip"] or token["rstrip"] or token["single_word"] for token in symbols):
        return False
    if any(character.isspace() for token in symbols for character in token["content"]):
        return False
    if content["normalizer"] not in (None, {"type": "NFC"}, {"type": "NFKC"}):
        return False
    before = content["pre_tokenizer"]
    steps = [] if before is None else before["pretokenizers"] if before["type"] == "Sequence" else [before]
    if len(steps) > 1 and steps[0]["type"] == "Digits":
        steps = steps[1:]
    if len(steps) > 1 and steps[-1]["type"] == "FixedLength":
        steps = steps[:-1]
    match steps:
        case [{"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}]:
            return True
        case [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}]:
            return bool(pattern == WORDS)
        case [] | [{"type": "ByteLevel", "add_prefix_space": False}]:
            # The whole text is one word: it must be one token a character or byte.
            model = content["model"]
            dependent = ("merges", "fuse_unk", "ignore_merges", "continuing_subword_prefix", "end_of_word_suffix")
            return model["type"] == "BPE" and not any(model[setting] for setting in dependent)
        case _:
            return False
